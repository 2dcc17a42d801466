"""Read the keys of a settings file into a document."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from ..values.agent import Budget
from ..values.errors import Mistake
from ..values.field_reader import BUDGET_KEYS, FieldReader, Key, Keys, KeyScope, read_budget, read_command
from ..values.hook import HookTable
from ..values.hook_keys import HOOK_KEYS, read_hooks
from ..values.key_schema import POSITIVE, STRING, STRING_TABLE, STRINGS, accepts
from ..values.located_yaml import MappingNode, ScalarNode, quote_text
from ..values.mcp_server import NAME_RULE, VARIABLE, McpServer, is_server_name
from ..values.placement_address import require_known_queue
from ..values.store_address import is_postgres_url
from ..workspace.worktrees.worktree_folder import must_be_folder_pattern
from .model_role import Role
from .settings_document import (
    MODES,
    NOTIFY_WORDS,
    InstallSettings,
    Launch,
    LimitSettings,
    NotifyCommand,
    NotifyTarget,
    ProviderLimits,
    SettingsDocument,
    WorktreeSettings,
)

COMMAND_TABLE = {"type": "object", "additionalProperties": STRINGS}
TARGETS = {"type": ["string", "array", "object"]}
HOOKS = {"type": ["string", "array"]}
NOTIFY_EXAMPLES = "bell, title, desktop, a URL or {command: PROGRAM}"


def read_document(top: FieldReader) -> SettingsDocument:
    """Read the top-level mapping of a file."""
    fields = top.read_fields(KEYS, also={"mcp_servers": "mcpServers"})
    values: dict[str, Any] = {}
    for name, key in KEYS.items():
        if name in fields:
            found = key.read(fields[name])
            values |= found if name in GROUPS else {FIELDS.get(name, name): found}
    return SettingsDocument(**values)


def find_scope(key: str) -> KeyScope:
    """Return who can set a key, which is spelled as in files, such as `limits.max_wait`."""
    top, _, below = key.partition(".")
    found = KEYS[top]
    nested = {} if found.keys is None or found.is_table else found.keys
    return nested[below].scope if found.scope == "repository" and below in nested else found.scope


@accepts(STRING)
def read_roles(reader: FieldReader) -> dict[str, Role]:
    """Read roles, keyed by name. A string is short for a role that sets only `model`."""
    found: dict[str, Role] = {}
    for name, entry in reader.iter_entries("a mapping of names to roles, such as fast: openai:gpt-5-mini"):
        if not isinstance(entry.node, MappingNode):
            found[name] = Role(model=entry.read_text("a model, or a mapping with the key model"))
            continue
        values = entry.read_values(ROLE_KEYS)
        if "model" in values:
            found[name] = Role(**values)
        else:
            entry.add_error("this role has no model; add model: PROVIDER:MODEL")
    return found


@accepts(STRINGS)
def read_role_rules(reader: FieldReader) -> tuple[str, ...]:
    """Read a role's allow rules. In a repository's file they have no effect."""
    if not reader.context.is_yours:
        reader.add_warning("ignored: a repository can only tighten permissions")
        return ()
    # Imported here to keep start-up fast: most files have no rules.
    from ..policy.rule_entry import read_rules

    return read_rules(reader, "allow")


def read_engines(reader: FieldReader) -> dict[str, Launch]:
    """Read engines, keyed by name. Each has a command that starts it, or access settings for a known coding agent."""
    found: dict[str, Launch] = {}
    for name, entry in reader.iter_entries("a mapping of names to engines, such as mine: {command: PROGRAM}"):
        values = entry.read_values(ENGINE_KEYS)
        if values.keys() & {"command", *ENGINE_ACCESS_KEYS}:
            found[name] = Launch(**values)
        elif isinstance(entry.node, MappingNode):
            entry.add_error("this engine has no command; add command: PROGRAM")
    return found


@accepts(HOOKS)
def read_settings_hooks(reader: FieldReader) -> HookTable:
    """Read the hooks for each event. Only the user's own hooks can run outside the sandbox."""
    return read_hooks(reader, may_leave_sandbox=reader.context.is_yours)


def read_mcp_servers(reader: FieldReader) -> dict[str, McpServer]:
    """Read MCP servers, keyed by name. Each has either a command or a URL."""
    found: dict[str, McpServer] = {}
    for name, entry in reader.iter_entries("a mapping of names to MCP servers, such as files: {command: PROGRAM}"):
        fields = entry.read_fields(SERVER_KEYS)
        if not isinstance(entry.node, MappingNode):
            continue
        if not is_server_name(name):
            tell = entry.add_warning if entry.context.foreign else entry.add_error
            tell(f"invalid MCP server name; {NAME_RULE}")
            continue
        if ("command" in fields) == ("url" in fields):
            entry.add_error("this server needs either a command or a url; set one of them")
            continue
        warn_unfilled_variable(fields)
        keys = (*(SERVER_LAUNCH_KEYS if "command" in fields else ("url",)), "headers")
        values = {key: SERVER_KEYS[key].read(fields[key]) for key in keys if key in fields}
        found[name] = McpServer(name=name, source="user" if reader.context.is_yours else "repo", **values)
    return found


def warn_unfilled_variable(fields: Mapping[str, FieldReader]) -> None:
    """Warn that a variable in `command` is not expanded: variables must not determine which program is started."""
    node = fields["command"].node if "command" in fields else None
    named = VARIABLE.search(node.raw) if isinstance(node, ScalarNode) else None
    if named:
        right = "variables are expanded only in args, env, url and headers"
        fields["command"].add_warning(f"{named[0]} is not expanded; {right}")


@accepts(STRING_TABLE)
def read_secrets(reader: FieldReader) -> dict[str, str]:
    """Read a mapping of names to strings that may be secret."""
    expected = "a mapping of names to strings, such as TOKEN: ${TOKEN}"
    return {name: entry.read_secret() for name, entry in reader.iter_entries(expected)}


def read_permissions(reader: FieldReader) -> dict[str, Any]:
    """Read the permission mode, and the allow, ask and deny rules."""
    # Imported here to keep start-up fast: most files have no rules.
    from ..policy.rule_entry import read_rule_lists

    fields = reader.read_fields(PERMISSION_KEYS)
    found: dict[str, Any] = {"permissions": read_rule_lists(fields)}
    if "mode" in fields:
        found["permission_mode"] = PERMISSION_KEYS["mode"].read(fields["mode"])
    return found


@accepts(COMMAND_TABLE)
def read_checks(reader: FieldReader) -> dict[str, tuple[str, ...]]:
    """Read the check commands, keyed by name."""
    return {
        name: read_command(entry)
        for name, entry in reader.iter_entries("a mapping of names to commands, such as tests: pytest -q")
    }


def read_worktrees(reader: FieldReader) -> WorktreeSettings:
    """Read the settings for worktrees: setup and teardown commands, folder and quota."""
    return WorktreeSettings(**reader.read_values(WORKTREE_KEYS))


@accepts(STRING)
def read_worktree_folder(reader: FieldReader) -> str:
    """Read the path pattern for a worker's worktree."""
    pattern = reader.read_text("a path such as ../{repo}-worker-{branch}")
    if pattern:
        try:
            must_be_folder_pattern(pattern)
        except Mistake as mistake:
            reader.add_error(str(mistake))
    return pattern


def read_providers(reader: FieldReader) -> dict[str, ProviderLimits]:
    """Read the URLs, limits and tool call modes of providers, keyed by name in lower case."""
    entries = reader.iter_entries("a mapping of names to providers, such as openai: {concurrent: 8}")
    return {name.lower(): ProviderLimits(**entry.read_values(PROVIDER_KEYS)) for name, entry in entries}


def read_budgets(reader: FieldReader) -> dict[str, Budget]:
    """Read the limits for each run, and the daily limits for all runs, in total and per repository."""
    found = reader.read_values(RUN_BUDGET_KEYS)
    days = {"day_budget": "per_day", "repository_day_budget": "per_repository_day"}
    budgets = {field: found.pop(key) for field, key in days.items() if key in found}
    return budgets | ({"budget": Budget(**found)} if found else {})


def read_day_budget(reader: FieldReader) -> Budget:
    """Read daily limits. Time and changed files can be limited only per run."""
    return Budget(**reader.read_values(DAY_BUDGET_KEYS))


def read_limits(reader: FieldReader) -> LimitSettings:
    """Read the settings that apply if a provider accepts no calls for a long time."""
    return LimitSettings(**reader.read_values(LIMIT_KEYS))


def read_installs(reader: FieldReader) -> InstallSettings:
    """Read the settings for commands that change the programs in the user's checkout."""
    return InstallSettings(**reader.read_values(INSTALL_KEYS))


@accepts(STRING)
def read_store(reader: FieldReader) -> str:
    """Return `local`, a path or a PostgreSQL URL. It may contain a password, so it is never included in messages."""
    text = reader.read_secret().strip()
    if not text or ("://" in text and not is_postgres_url(text)):
        reader.add_error("expected local, the path of a file or postgresql://…; other servers are not supported")
    return text


@accepts(STRING)
def read_placement(reader: FieldReader) -> str:
    """Return the name of a fleet's queue."""
    text = reader.read_secret().strip()
    try:
        require_known_queue(text)
    except Mistake as error:
        reader.add_error(str(error))
    return text


@accepts(STRINGS)
def read_hosts(reader: FieldReader) -> tuple[str, ...]:
    """Read the list of hosts that commands in the sandbox can reach."""
    from ..workspace.relay.host_grant import HostGrant  # imported here to keep start-up fast: few files list hosts

    hosts: list[str] = []
    for item in reader.iter_items():
        try:
            hosts.append(str(HostGrant.parse(item.read_text())))
        except Mistake as error:
            item.add_error(str(error))
    return tuple(dict.fromkeys(hosts))


@accepts(TARGETS)
def read_notify(reader: FieldReader) -> tuple[NotifyTarget, ...]:
    """Read the list of notification targets: words such as `bell`, URLs to call, and commands to run."""
    return tuple(target for item in reader.iter_items() if (target := _read_notify_target(item)) is not None)


def _read_notify_target(reader: FieldReader) -> NotifyTarget | None:
    """Read one notification target. Return None if it is empty. URLs may be secret, so messages never include them."""
    if isinstance(reader.node, MappingNode):
        command = reader.read_values(NOTIFY_KEYS).get("command")
        if not command:
            reader.add_error("this entry has no command; add command: PROGRAM")
        return NotifyCommand(command=command) if command else None
    word = reader.read_text(NOTIFY_EXAMPLES)
    scheme, mark, rest = word.partition("://")
    if not mark and word not in NOTIFY_WORDS and word:
        reader.add_error(f"unknown value {quote_text(word)}; expected {NOTIFY_EXAMPLES}")
    elif mark and (scheme not in ("http", "https") or not rest or any(sign.isspace() for sign in rest)):
        reader.add_error("not a valid URL; expected one such as https://hooks.example/x")
    return word or None


def read_approvals(reader: FieldReader) -> dict[str, Any]:
    """Read when permission requests time out."""
    values = reader.read_values(APPROVAL_KEYS)
    return {"approval_seconds": values["timeout"]} if "timeout" in values else {}


@accepts({"anyOf": [POSITIVE, {"const": "never"}]})
def read_approval_timeout(reader: FieldReader) -> float:
    """Return the seconds after which a request is denied. `never` means no timeout."""
    if reader.text == "never":
        return math.inf
    return reader.read_positive_number('a number of seconds or "never"')


ROLE_KEYS: Keys = {
    "model": Key(FieldReader.read_text),
    "fallbacks": Key(partial(FieldReader.read_texts, expected="a list of models")),
    "budget": Key(read_budget),
    "prompt": Key(FieldReader.read_text),
    "rules": Key(read_role_rules),
}
LAUNCH_KEYS: Keys = {
    "command": Key(FieldReader.read_text),
    "args": Key(FieldReader.read_texts),
    "env": Key(read_secrets),
}
ENGINE_ACCESS_KEYS: Keys = {
    "sandbox": Key(FieldReader.read_bool),
    "hosts": Key(read_hosts),
    "readable": Key(FieldReader.read_texts),
}
ENGINE_KEYS: Keys = {**LAUNCH_KEYS, "mode": Key(FieldReader.read_text), **ENGINE_ACCESS_KEYS}
SERVER_LAUNCH_KEYS: Keys = {**LAUNCH_KEYS, "cwd": Key(FieldReader.read_text)}
SERVER_KEYS: Keys = {**SERVER_LAUNCH_KEYS, "url": Key(FieldReader.read_url), "headers": Key(read_secrets)}
WORKTREE_KEYS: Keys = {
    "setup": Key(
        read_command,
        "a command, or `[program, argument, …]`",
        meaning="runs in the sandbox, in a worker's checkout, after the checkout is created",
    ),
    "teardown": Key(
        read_command,
        "a command, or `[program, argument, …]`",
        meaning="runs in the same place before the checkout is removed",
    ),
    "folder": Key(
        read_worktree_folder,
        "a path with `{repo}` and `{branch}`",
        meaning="[where](worktrees.md#location) checkouts are created; default `../{repo}-worker-{branch}`",
    ),
    "quota": Key(
        FieldReader.read_size,
        "a size, such as `20GB`",
        meaning="[how much disk space](worktrees.md#disk-usage-and-quota) all checkouts together may use",
    ),
}
PROVIDER_KEYS: Keys = {
    "base_url": Key(FieldReader.read_url),
    "requests_per_minute": Key(FieldReader.read_int),
    "tokens_per_minute": Key(FieldReader.read_int),
    "concurrent": Key(FieldReader.read_int),
    "first_token_timeout": Key(FieldReader.read_positive_number),
    "silence_timeout": Key(FieldReader.read_positive_number),
    "max_tokens": Key(FieldReader.read_int),
    "tool_calls": Key(partial(FieldReader.read_choice, words=("auto", "native", "text"))),
}
INSTALL_KEYS: Keys = {
    "ask": Key(FieldReader.read_bool),
    "hosts": Key(read_hosts),
}
LIMIT_KEYS: Keys = {
    "max_wait": Key(FieldReader.read_positive_number),
    "fallback_models": Key(partial(FieldReader.read_texts, expected="a list of models")),
}
DAY_BUDGET_KEYS: Keys = {name: BUDGET_KEYS[name] for name in ("usd", "tokens", "turns")}
RUN_BUDGET_KEYS: Keys = {
    **BUDGET_KEYS,
    "per_day": Key(read_day_budget, keys=DAY_BUDGET_KEYS),
    "per_repository_day": Key(read_day_budget, keys=DAY_BUDGET_KEYS),
}
PERMISSION_KEYS: Keys = {
    "allow": Key(FieldReader.read_texts, scope="user"),
    "ask": Key(FieldReader.read_texts),
    "deny": Key(FieldReader.read_texts),
    "mode": Key(partial(FieldReader.read_choice, words=MODES), scope="user"),
}
NOTIFY_KEYS: Keys = {"command": Key(read_command)}
APPROVAL_KEYS: Keys = {"timeout": Key(read_approval_timeout)}
GROUPS = ("budget", "permissions", "approvals")
"""The keys whose values set several fields of a document, or one with another name."""
FIELDS = {"mcpServers": "mcp_servers"}
"""The field of a document for each key with a different name."""
KEYS: Keys = {
    "model": Key(
        FieldReader.read_text,
        "`provider:model`, a provider, an alias or a role",
        meaning="the model for agents that do not select one",
    ),
    "models": Key(
        read_roles,
        "role: model, or role: `{model, fallbacks, budget, prompt, rules}`",
        meaning="see [Models and roles](#models-and-roles)",
        keys=ROLE_KEYS,
        is_table=True,
    ),
    "budget": Key(
        read_budgets,
        "`{usd, tokens, seconds, turns, files_changed, per_day, per_repository_day}`",
        meaning=(
            "limits for each run (see [How limits are enforced](results.md#how-limits-are-enforced)) and for "
            "[all runs in a day](limits.md#budgets-per-day); `per_day` and `per_repository_day` are `{usd, "
            "tokens, turns}`"
        ),
        keys=RUN_BUDGET_KEYS,
    ),
    "permissions": Key(
        read_permissions,
        "`{allow, ask, deny, mode}`",
        meaning=(
            "`allow`, `ask` and `deny` are lists of [rules](permissions.md#rules), each a string or `{rule, "
            "match, not_match}`; `mode` is `default`, `accept-edits`, `plan`, `dont-ask` or `bypass`"
        ),
        keys=PERMISSION_KEYS,
    ),
    "approvals": Key(
        read_approvals,
        "`{timeout}`",
        meaning=(
            "the number of seconds after which an unanswered permission request is denied, or `never`; default 300"
        ),
        keys=APPROVAL_KEYS,
    ),
    "checks": Key(
        read_checks,
        "name: command, or name: `[program, argument, …]`",
        meaning="commands that must pass, such as tests; run by the `run_checks` tool and after each merge",
        scope="trust",
        is_table=True,
    ),
    "worktrees": Key(
        read_worktrees,
        "`{setup, teardown, folder, quota}`",
        meaning="see [Worktree settings](#worktree-settings)",
        scope="trust",
        keys=WORKTREE_KEYS,
    ),
    "providers": Key(
        read_providers,
        (
            "provider: `{base_url, requests_per_minute, tokens_per_minute, concurrent, max_tokens, "
            "first_token_timeout, silence_timeout, tool_calls}`"
        ),
        meaning=(
            "a [provider's](engines.md#providers) address; limits on calls to it and on the length of a "
            "reply; how many seconds a call waits for a [reply to begin](engines.md#errors-and-retries) and "
            "for each further part of it; and [how its models call tools](engines.md#tool-calls-in-text): "
            "`auto`, `native` or `text`"
        ),
        keys=PROVIDER_KEYS,
        is_table=True,
    ),
    "limits": Key(
        read_limits,
        "`{max_wait, fallback_models}`",
        meaning=(
            "what happens when a provider [refuses calls for a long time](limits.md): `max_wait` is the "
            "maximum number of seconds that a call waits (default 60); `fallback_models` are used while an "
            "agent's own models are at their limits"
        ),
        scope="user",
        keys=LIMIT_KEYS,
    ),
    "hooks": Key(
        read_settings_hooks,
        "event: command, or event: `{command, plugin, tools, timeout, sandbox, cwd}`, or a list of them",
        meaning="commands that run when events occur in a run; see [Hooks](hooks.md)",
        scope="trust",
        keys=HOOK_KEYS,
        is_table=True,
    ),
    "mcpServers": Key(
        read_mcp_servers,
        "name: `{command, args, env, cwd}` or name: `{url, headers}`",
        meaning="[MCP servers](mcp.md)",
        scope="trust",
        keys=SERVER_KEYS,
        is_table=True,
    ),
    "engines": Key(
        read_engines,
        "name: `{command, args, env, mode, sandbox, hosts, readable}`",
        meaning=(
            "[coding agents](engines.md#coding-agents) that agents can use as `engine`. `mode` is the coding "
            "agent's own name for the mode in which it asks for permission before it acts. `sandbox: off`, "
            "`hosts` and `readable` change [what it can access](engines.md#what-a-coding-agent-can-reach) and"
            " take effect only in your own settings"
        ),
        scope="trust",
        keys=ENGINE_KEYS,
        is_table=True,
    ),
    "workers": Key(
        FieldReader.read_int,
        "an integer",
        meaning=(
            "the maximum number of workers that run at the same time; default 4. A value in a repository's "
            "file applies to the workers in that repository"
        ),
    ),
    "max_restarts": Key(
        partial(FieldReader.read_int, least=0),
        "an integer, 0 or more",
        meaning="how many times a worker is [restarted](workers.md#the-commander) after a crash; default 1",
    ),
    "labels": Key(
        FieldReader.read_comma_list,
        "a list of labels",
        meaning=(
            "the default labels for workers in a [fleet](fleet.md): if a task is delegated without labels, "
            "its worker runs only on a host that has all of these labels; has no effect without a fleet"
        ),
    ),
    "placement": Key(
        read_placement,
        "`pgqueuer`",
        meaning=(
            "the queue from which the hosts of a [fleet](fleet.md) take jobs; `pgqueuer`, the only one, is in"
            " the store's database"
        ),
        scope="user",
    ),
    "squad_inbox": Key(
        FieldReader.read_bool,
        "true or false",
        meaning=(
            "whether the [decisions](squads.md#decisions) of a squad's runs are written to the squad's inbox;"
            " default false"
        ),
    ),
    "squad_history": Key(
        FieldReader.read_bool,
        "true or false",
        meaning=("whether members of a squad can write notes to their [`history.md`](memory.md#squads); default false"),
    ),
    "forge": Key(
        partial(FieldReader.read_choice, words=("github", "gitlab")),
        "`github` or `gitlab`",
        meaning=(
            "where `podium merge --pull-request` opens [pull requests](merging.md#pull-requests); by default,"
            " this is determined by the remote's host name or, failing that, by the installed program (`gh` "
            "or `glab`)"
        ),
    ),
    "sandbox": Key(
        FieldReader.read_bool, "`on` or `off`", meaning="whether commands run in a sandbox; default `on`", scope="user"
    ),
    "installs": Key(
        read_installs,
        "`{ask, hosts}`",
        meaning=(
            "commands that change [programs in your checkout](sandbox.md#programs-in-your-checkout): `ask: "
            "off` lets every command change them without asking; `hosts` are hosts that an installation can "
            "reach if you allow it, in addition to `network`"
        ),
        scope="user",
        keys=INSTALL_KEYS,
    ),
    "network": Key(
        read_hosts,
        "a list of hosts",
        meaning=(
            "[hosts that commands in the sandbox can reach](sandbox.md#granted-hosts): `pypi.org`, "
            "`example.com:8443`, `*.example.com` or an IP address; default none"
        ),
        scope="user",
    ),
    "store": Key(
        read_store,
        "`local`, a path or `postgresql://…`",
        meaning=(
            "where runs are stored: `local` is `.podium/podium.db` in the repository; a path is relative to "
            "Podium's home; a URL is a [PostgreSQL database](fleet.md), which several machines can share; "
            "default `podium.db` in Podium's home"
        ),
        scope="user",
    ),
    "notify": Key(
        read_notify,
        "a list of `bell`, `title`, `desktop`, URLs or `{command}`",
        meaning="how Podium notifies you; see [Notifications](#notifications)",
        scope="user",
    ),
}
"""The keys of a settings file, in the order of the documentation."""
