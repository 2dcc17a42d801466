"""The keys of a settings file, and how the value of each is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, cast

from ..values.errors import Mistake
from ..values.field_reader import FieldReader, read_budget
from ..values.located_yaml import ListNode, MappingNode, ScalarNode, quote_text
from ..values.mcp_server import NAME_RULE, VARIABLE, McpServer, is_server_name
from ..workspace.worktrees.worktree_folder import must_be_folder_pattern
from .model_role import Role
from .settings_document import MODES, Launch, PermissionMode, ProviderLimits, SettingsDocument, WorktreeSettings

Side = Literal["user", "repo"]

ROLE_KEYS = ("model", "fallbacks", "budget", "prompt", "rules")
LAUNCH_KEYS = ("command", "args", "env")
SERVER_KEYS = (*LAUNCH_KEYS, "url", "headers")
NOTIFY_WORDS = ("bell", "desktop")


def read_document(top: FieldReader, side: Side) -> SettingsDocument:
    """Read the top-level mapping of a file."""
    fields = top.read_fields(KEYS, also={"mcp_servers": "mcpServers"})
    values: dict[str, Any] = {key: read(fields[key]) for key, read in READERS.items() if key in fields}
    if "mcpServers" in fields:
        values["mcp_servers"] = read_mcp_servers(fields["mcpServers"], side)
    if "models" in fields:
        values["models"] = read_roles(fields["models"], side)
    if "permissions" in fields:
        values |= read_permissions(fields["permissions"])
    if "approvals" in fields and (timeout := fields["approvals"].read_fields(("timeout",)).get("timeout")):
        values["approval_seconds"] = read_approval_timeout(timeout)
    return SettingsDocument(**values)


def read_roles(reader: FieldReader, side: Side) -> dict[str, Role]:
    """Read roles by name; a string is a role with only a model."""
    found: dict[str, Role] = {}
    for name, entry in reader.iter_entries("roles such as fast: openai:gpt-5-mini"):
        if not isinstance(entry.node, MappingNode):
            found[name] = Role(model=entry.read_text("a model or a mapping with model"))
            continue
        fields = entry.read_fields(ROLE_KEYS)
        if "model" not in fields:
            entry.add_error("this role has no model; add model: PROVIDER:MODEL")
            continue
        found[name] = Role(
            model=fields["model"].read_text(),
            fallbacks=fields["fallbacks"].read_texts("a list of models") if "fallbacks" in fields else (),
            budget=read_budget(fields["budget"]) if "budget" in fields else None,
            prompt=fields["prompt"].read_text() if "prompt" in fields else "",
            rules=read_role_rules(fields["rules"], side) if "rules" in fields else (),
        )
    return found


def read_role_rules(reader: FieldReader, side: Side) -> tuple[str, ...]:
    """Read the rules that a role allows; those of a repository are ignored."""
    if side == "repo":
        reader.add_warning("ignored: a repository can only tighten permissions")
        return ()
    # For start-up time: most files have no rules.
    from ..policy.rule_entry import read_rules

    return read_rules(reader, "allow")


def read_engines(reader: FieldReader) -> dict[str, Launch]:
    """Read engines by name, with the command that starts each."""
    found: dict[str, Launch] = {}
    for name, entry in reader.iter_entries("entries such as mine: {command: PROGRAM}"):
        fields = entry.read_fields(LAUNCH_KEYS)
        if "command" in fields:
            found[name] = Launch(**read_launch(fields))
        elif isinstance(entry.node, MappingNode):
            entry.add_error("this engine has no command; add command: PROGRAM")
    return found


def read_launch(fields: Mapping[str, FieldReader]) -> dict[str, Any]:
    """Read a program with its arguments and environment variables."""
    found: dict[str, Any] = {"command": fields["command"].read_text()}
    if "args" in fields:
        found["args"] = fields["args"].read_texts()
    if "env" in fields:
        found["env"] = read_secrets(fields["env"])
    return found


def read_mcp_servers(reader: FieldReader, side: Side) -> dict[str, McpServer]:
    """Read MCP servers by name; each has a command or a URL."""
    found: dict[str, McpServer] = {}
    for name, entry in reader.iter_entries("servers such as files: {command: PROGRAM}"):
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
        values: dict[str, Any] = read_launch(fields) if "command" in fields else {"url": fields["url"].read_url()}
        if "headers" in fields:
            values["headers"] = read_secrets(fields["headers"])
        found[name] = McpServer(name=name, source=side, **values)
    return found


def warn_unfilled_variable(fields: Mapping[str, FieldReader]) -> None:
    """Warn about a variable in `command`: variables must not change which program is started."""
    node = fields["command"].node if "command" in fields else None
    named = VARIABLE.search(node.raw) if isinstance(node, ScalarNode) else None
    if named:
        right = "variables are expanded only in args, env, url and headers"
        fields["command"].add_warning(f"{named[0]} is not expanded; {right}")


def read_secrets(reader: FieldReader) -> dict[str, str]:
    """Read a mapping of names to strings that may be secret."""
    return {
        name: entry.read_secret() for name, entry in reader.iter_entries("names with strings such as TOKEN: ${TOKEN}")
    }


def read_permissions(reader: FieldReader) -> dict[str, Any]:
    """Read rules by what they decide, and the permission mode."""
    # For start-up time: most files have no rules.
    from ..policy.rule_entry import KINDS, read_rule_lists

    fields = reader.read_fields((*KINDS, "mode"))
    found: dict[str, Any] = {"permissions": read_rule_lists(fields)}
    if "mode" in fields:
        found["permission_mode"] = cast(PermissionMode, fields["mode"].read_choice(MODES))
    return found


def read_checks(reader: FieldReader) -> dict[str, tuple[str, ...]]:
    """Read commands by name."""
    return {name: read_command(entry) for name, entry in reader.iter_entries("commands such as tests: pytest -q")}


def read_command(reader: FieldReader) -> tuple[str, ...]:
    """Read a command: a string is run by the shell, a list is a program with its arguments."""
    if not isinstance(reader.node, ListNode):
        return ("sh", "-c", reader.read_text("a command"))
    if not reader.node.items:
        reader.add_error("expected a program with its arguments, got an empty list")
    return reader.read_texts()


def read_worktrees(reader: FieldReader) -> WorktreeSettings:
    """Read the settings of worktrees: setup and teardown commands, folder and quota."""
    fields = reader.read_fields(WorktreeSettings.__struct_fields__)
    given: dict[str, Any] = {key: read_command(fields[key]) for key in ("setup", "teardown") if key in fields}
    if "folder" in fields:
        given["folder"] = read_worktree_folder(fields["folder"])
    if "quota" in fields:
        given["quota"] = fields["quota"].read_size()
    return WorktreeSettings(**given)


def read_worktree_folder(reader: FieldReader) -> str:
    """Read the path pattern of a worker's worktree."""
    pattern = reader.read_text("a path such as ../{repo}-worker-{branch}")
    if pattern:
        try:
            must_be_folder_pattern(pattern)
        except Mistake as mistake:
            reader.add_error(str(mistake))
    return pattern


def read_providers(reader: FieldReader) -> dict[str, ProviderLimits]:
    """Read providers by name, with the URL and rate limits of each."""
    found: dict[str, ProviderLimits] = {}
    for name, entry in reader.iter_entries("providers such as openai: {concurrent: 8}"):
        fields = entry.read_fields(ProviderLimits.__struct_fields__)
        given: dict[str, Any] = {key: field.read_int() for key, field in fields.items() if key != "base_url"}
        if "base_url" in fields:
            given["base_url"] = fields["base_url"].read_url()
        found[name.lower()] = ProviderLimits(**given)
    return found


def read_store(reader: FieldReader) -> str:
    """Return `local` or a path. A URL may contain a password, so no message repeats it."""
    text = reader.read_secret().strip()
    if not text or "://" in text:
        reader.add_error("a store on a server is not supported; use local or the path of a file")
    return text


def read_notify(reader: FieldReader) -> tuple[str, ...]:
    """Read how the user is notified: `bell`, `desktop` or a URL to call."""
    found = reader.read_texts("a list of bell, desktop or URLs")
    for word in found:
        if word not in NOTIFY_WORDS and not word.startswith(("https://", "http://")):
            reader.add_error(f"unknown value {quote_text(word)}; expected bell, desktop or a URL")
    return found


def read_approval_timeout(reader: FieldReader) -> float:
    """Return the seconds after which a request is denied; `never` means no timeout."""
    if reader.text == "never":
        return math.inf
    return reader.read_positive_number("a number of seconds or never")


READERS: Mapping[str, Callable[[FieldReader], object]] = {
    "model": FieldReader.read_text,
    "engines": read_engines,
    "sandbox": FieldReader.read_bool,
    "store": read_store,
    "workers": FieldReader.read_int,
    "max_restarts": partial(FieldReader.read_int, least=0),
    "budget": read_budget,
    "notify": read_notify,
    "checks": read_checks,
    "worktrees": read_worktrees,
    "providers": read_providers,
}
"""The reader for each key whose value depends on nothing else."""

KEYS = (*READERS, "models", "mcpServers", "permissions", "approvals")
