"""Read the keys of a settings file into a document."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, cast

from ..values.agent import Budget
from ..values.errors import Mistake
from ..values.field_reader import BUDGET_READERS, FieldReader, Readers, read_budget, read_command
from ..values.hook_keys import read_hooks
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
    PermissionMode,
    ProviderLimits,
    SettingsDocument,
    WorktreeSettings,
)

Side = Literal["user", "repo"]

NOTIFY_EXAMPLES = "bell, title, desktop, a URL or {command: PROGRAM}"


def read_document(top: FieldReader, side: Side) -> SettingsDocument:
    """Read the top-level mapping of a file."""
    fields = top.read_fields(KEYS, also={"mcp_servers": "mcpServers"})
    values: dict[str, Any] = {key: read(fields[key]) for key, read in READERS.items() if key in fields}
    if "mcpServers" in fields:
        values["mcp_servers"] = read_mcp_servers(fields["mcpServers"], side)
    if "models" in fields:
        values["models"] = read_roles(fields["models"], side)
    if "budget" in fields:
        values |= read_budgets(fields["budget"])
    if "hooks" in fields:
        values["hooks"] = read_hooks(fields["hooks"], may_leave_sandbox=side == "user")
    if "permissions" in fields:
        values |= read_permissions(fields["permissions"])
    if "approvals" in fields and (timeout := fields["approvals"].read_fields(("timeout",)).get("timeout")):
        values["approval_seconds"] = read_approval_timeout(timeout)
    return SettingsDocument(**values)


def read_roles(reader: FieldReader, side: Side) -> dict[str, Role]:
    """Read roles, keyed by name. A string is short for a role that sets only `model`."""
    found: dict[str, Role] = {}
    for name, entry in reader.iter_entries("a mapping of names to roles, such as fast: openai:gpt-5-mini"):
        if not isinstance(entry.node, MappingNode):
            found[name] = Role(model=entry.read_text("a model, or a mapping with the key model"))
            continue
        values = entry.read_values(ROLE_READERS if side == "user" else {**ROLE_READERS, "rules": ignore_role_rules})
        if "model" in values:
            found[name] = Role(**values)
        else:
            entry.add_error("this role has no model; add model: PROVIDER:MODEL")
    return found


def read_role_rules(reader: FieldReader) -> tuple[str, ...]:
    """Read a role's allow rules."""
    # Imported here to keep start-up fast: most files have no rules.
    from ..policy.rule_entry import read_rules

    return read_rules(reader, "allow")


def ignore_role_rules(reader: FieldReader) -> tuple[str, ...]:
    """Warn that rules in a repository's file have no effect."""
    reader.add_warning("ignored: a repository can only tighten permissions")
    return ()


def read_engines(reader: FieldReader) -> dict[str, Launch]:
    """Read engines, keyed by name. Each has a command that starts it, or access settings for a known coding agent."""
    found: dict[str, Launch] = {}
    for name, entry in reader.iter_entries("a mapping of names to engines, such as mine: {command: PROGRAM}"):
        values = entry.read_values(ENGINE_READERS)
        if values.keys() & {"command", *ENGINE_ACCESS_READERS}:
            found[name] = Launch(**values)
        elif isinstance(entry.node, MappingNode):
            entry.add_error("this engine has no command; add command: PROGRAM")
    return found


def read_mcp_servers(reader: FieldReader, side: Side) -> dict[str, McpServer]:
    """Read MCP servers, keyed by name. Each has either a command or a URL."""
    found: dict[str, McpServer] = {}
    for name, entry in reader.iter_entries("a mapping of names to MCP servers, such as files: {command: PROGRAM}"):
        fields = entry.read_fields(SERVER_READERS)
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
        keys = (*(SERVER_LAUNCH_READERS if "command" in fields else ("url",)), "headers")
        values = {key: SERVER_READERS[key](fields[key]) for key in keys if key in fields}
        found[name] = McpServer(name=name, source=side, **values)
    return found


def warn_unfilled_variable(fields: Mapping[str, FieldReader]) -> None:
    """Warn that a variable in `command` is not expanded: variables must not determine which program is started."""
    node = fields["command"].node if "command" in fields else None
    named = VARIABLE.search(node.raw) if isinstance(node, ScalarNode) else None
    if named:
        right = "variables are expanded only in args, env, url and headers"
        fields["command"].add_warning(f"{named[0]} is not expanded; {right}")


def read_secrets(reader: FieldReader) -> dict[str, str]:
    """Read a mapping of names to strings that may be secret."""
    expected = "a mapping of names to strings, such as TOKEN: ${TOKEN}"
    return {name: entry.read_secret() for name, entry in reader.iter_entries(expected)}


def read_permissions(reader: FieldReader) -> dict[str, Any]:
    """Read the permission mode, and the allow, ask and deny rules."""
    # Imported here to keep start-up fast: most files have no rules.
    from ..policy.rule_entry import KINDS, read_rule_lists

    fields = reader.read_fields((*KINDS, "mode"))
    found: dict[str, Any] = {"permissions": read_rule_lists(fields)}
    if "mode" in fields:
        found["permission_mode"] = cast(PermissionMode, fields["mode"].read_choice(MODES))
    return found


def read_checks(reader: FieldReader) -> dict[str, tuple[str, ...]]:
    """Read the check commands, keyed by name."""
    return {
        name: read_command(entry)
        for name, entry in reader.iter_entries("a mapping of names to commands, such as tests: pytest -q")
    }


def read_worktrees(reader: FieldReader) -> WorktreeSettings:
    """Read the settings for worktrees: setup and teardown commands, folder and quota."""
    return WorktreeSettings(**reader.read_values(WORKTREE_READERS))


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
    return {name.lower(): ProviderLimits(**entry.read_values(PROVIDER_READERS)) for name, entry in entries}


def read_budgets(reader: FieldReader) -> dict[str, Budget]:
    """Read the limits for each run, and the daily limits for all runs, in total and per repository."""
    found: dict[str, Any] = reader.read_values(
        {**BUDGET_READERS, "per_day": read_day_budget, "per_repository_day": read_day_budget}
    )
    days = {"day_budget": "per_day", "repository_day_budget": "per_repository_day"}
    budgets = {field: found.pop(key) for field, key in days.items() if key in found}
    return budgets | ({"budget": Budget(**found)} if found else {})


def read_day_budget(reader: FieldReader) -> Budget:
    """Read daily limits. Time and changed files can be limited only per run."""
    return Budget(**reader.read_values({key: BUDGET_READERS[key] for key in ("usd", "tokens", "turns")}))


def read_limits(reader: FieldReader) -> LimitSettings:
    """Read the settings that apply if a provider accepts no calls for a long time."""
    return LimitSettings(**reader.read_values(LIMIT_READERS))


def read_installs(reader: FieldReader) -> InstallSettings:
    """Read the settings for commands that change the programs in the user's checkout."""
    return InstallSettings(**reader.read_values(INSTALL_READERS))


def read_store(reader: FieldReader) -> str:
    """Return `local`, a path or a PostgreSQL URL. It may contain a password, so it is never included in messages."""
    text = reader.read_secret().strip()
    if not text or ("://" in text and not is_postgres_url(text)):
        reader.add_error("expected local, the path of a file or postgresql://…; other servers are not supported")
    return text


def read_placement(reader: FieldReader) -> str:
    """Return the name of a fleet's queue."""
    text = reader.read_secret().strip()
    try:
        require_known_queue(text)
    except Mistake as error:
        reader.add_error(str(error))
    return text


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


def read_notify(reader: FieldReader) -> tuple[NotifyTarget, ...]:
    """Read the list of notification targets: words such as `bell`, URLs to call, and commands to run."""
    return tuple(target for item in reader.iter_items() if (target := _read_notify_target(item)) is not None)


def _read_notify_target(reader: FieldReader) -> NotifyTarget | None:
    """Read one notification target. Return None if it is empty. URLs may be secret, so messages never include them."""
    if isinstance(reader.node, MappingNode):
        command = reader.read_values({"command": read_command}).get("command")
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


def read_approval_timeout(reader: FieldReader) -> float:
    """Return the seconds after which a request is denied. `never` means no timeout."""
    if reader.text == "never":
        return math.inf
    return reader.read_positive_number('a number of seconds or "never"')


ROLE_READERS: Readers = {
    "model": FieldReader.read_text,
    "fallbacks": partial(FieldReader.read_texts, expected="a list of models"),
    "budget": read_budget,
    "prompt": FieldReader.read_text,
    "rules": read_role_rules,
}
LAUNCH_READERS: Readers = {"command": FieldReader.read_text, "args": FieldReader.read_texts, "env": read_secrets}
ENGINE_ACCESS_READERS: Readers = {
    "sandbox": FieldReader.read_bool,
    "hosts": read_hosts,
    "readable": FieldReader.read_texts,
}
ENGINE_READERS: Readers = {**LAUNCH_READERS, "mode": FieldReader.read_text, **ENGINE_ACCESS_READERS}
SERVER_LAUNCH_READERS: Readers = {**LAUNCH_READERS, "cwd": FieldReader.read_text}
SERVER_READERS: Readers = {**SERVER_LAUNCH_READERS, "url": FieldReader.read_url, "headers": read_secrets}
WORKTREE_READERS: Readers = {
    "setup": read_command,
    "teardown": read_command,
    "folder": read_worktree_folder,
    "quota": FieldReader.read_size,
}
PROVIDER_READERS: Readers = {
    "base_url": FieldReader.read_url,
    "requests_per_minute": FieldReader.read_int,
    "tokens_per_minute": FieldReader.read_int,
    "concurrent": FieldReader.read_int,
    "first_token_timeout": FieldReader.read_positive_number,
    "silence_timeout": FieldReader.read_positive_number,
    "max_tokens": FieldReader.read_int,
    "tool_calls": partial(FieldReader.read_choice, words=("auto", "native", "text")),
}
INSTALL_READERS: Readers = {"ask": FieldReader.read_bool, "hosts": read_hosts}
LIMIT_READERS: Readers = {
    "max_wait": FieldReader.read_positive_number,
    "fallback_models": partial(FieldReader.read_texts, expected="a list of models"),
}
READERS: Readers = {
    "model": FieldReader.read_text,
    "engines": read_engines,
    "sandbox": FieldReader.read_bool,
    "network": read_hosts,
    "store": read_store,
    "placement": read_placement,
    "workers": FieldReader.read_int,
    "max_restarts": partial(FieldReader.read_int, least=0),
    "labels": FieldReader.read_comma_list,
    "notify": read_notify,
    "checks": read_checks,
    "worktrees": read_worktrees,
    "providers": read_providers,
    "limits": read_limits,
    "installs": read_installs,
    "squad_inbox": FieldReader.read_bool,
    "squad_history": FieldReader.read_bool,
    "forge": partial(FieldReader.read_choice, words=("github", "gitlab")),
}
"""The reader for each key that sets a single field and is read the same way from every file."""

KEYS = (*READERS, "budget", "models", "mcpServers", "hooks", "permissions", "approvals")
