"""Read the keys of a settings file into a document."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..policy.rule_keys import RULE_KINDS
from ..values.errors import Mistake
from ..values.field_reader import FieldReader, read_command
from ..values.hook_keys import read_hook_sandbox, read_hooks, read_tool_patterns
from ..values.key import KeyScope
from ..values.key_schema import POSITIVE, STRING, STRINGS, accepts
from ..values.located_yaml import MappingNode, ScalarNode, quote_text
from ..values.mcp_server import NAME_RULE, VARIABLE, McpServer, is_server_name
from ..values.store_address import is_postgres_url, require_known_queue
from ..values.struct_reader import Reader, list_keys, read_each, read_values
from ..workspace.worktrees.worktree_folder import must_be_folder_pattern
from .model_role import Role
from .settings_document import (
    NOTIFY_WORDS,
    Launch,
    NotifyCommand,
    NotifyTarget,
    ProviderLimits,
    SettingsDocument,
    make_document,
)

COMMAND_TABLE = {"type": "object", "additionalProperties": STRINGS}
TARGETS = {"type": ["string", "array", "object"]}
NOTIFY_EXAMPLES = "bell, title, desktop, a URL or {command: PROGRAM}"


def read_document(top: FieldReader) -> SettingsDocument:
    """Read the top-level mapping of a file."""
    return make_document(**read_values(top, KEYS))


def find_scope(key: str) -> KeyScope:
    """Return who can set a key, which is spelled as in files, such as `limits.max_wait`."""
    top, _, below = key.partition(".")
    found = KEYS[top]
    is_nested = found.key.scope == "repository" and not found.is_table and below in found.keys
    return (found.keys[below] if is_nested else found).key.scope


@accepts(STRING)
def _read_roles(reader: FieldReader) -> dict[str, Role]:
    """Read roles, keyed by name. A string is short for a role that sets only `model`."""
    found: dict[str, Role] = {}
    for name, entry in reader.iter_entries("a mapping of names to roles, such as fast: openai:gpt-5-mini"):
        if not isinstance(entry.node, MappingNode):
            found[name] = Role(model=entry.read_text("a model, or a mapping with the key model"))
            continue
        values = read_values(entry, ROLE_KEYS)
        if "model" in values:
            found[name] = Role(**values)
        else:
            entry.add_error("this role has no model; add model: PROVIDER:MODEL")
    return found


@accepts(STRINGS)
def _read_role_rules(reader: FieldReader) -> tuple[str, ...]:
    """Read a role's allow rules. In a repository's file they have no effect."""
    if not reader.context.is_yours:
        reader.add_warning("ignored: a repository can only tighten permissions")
        return ()
    # Imported here to keep start-up fast: most files have no rules.
    from ..policy.rule_entry import read_rules

    return read_rules(reader, "allow")


def _read_engines(reader: FieldReader) -> dict[str, Launch]:
    """Read engines, keyed by name. Each has a command that starts it, or access settings for a known coding agent."""
    found: dict[str, Launch] = {}
    for name, entry in reader.iter_entries("a mapping of names to engines, such as mine: {command: PROGRAM}"):
        values = read_values(entry, ENGINE_KEYS)
        if "command" in values or any(ENGINE_KEYS[name].key.scope == "user" for name in values):
            found[name] = Launch(**values)
        elif isinstance(entry.node, MappingNode):
            entry.add_error("this engine has no command; add command: PROGRAM")
    return found


def _read_mcp_servers(reader: FieldReader) -> dict[str, McpServer]:
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
        _warn_unfilled_variable(fields)
        keys = SERVER_KEYS if "command" in fields else {key: SERVER_KEYS[key] for key in ("url", "headers")}
        values = read_each(fields, keys)
        found[name] = McpServer(name=name, source="user" if reader.context.is_yours else "repo", **values)
    return found


def _warn_unfilled_variable(fields: Mapping[str, FieldReader]) -> None:
    """Warn that a variable in `command` is not expanded: variables must not determine which program is started."""
    node = fields["command"].node if "command" in fields else None
    named = VARIABLE.search(node.raw) if isinstance(node, ScalarNode) else None
    if named:
        right = "variables are expanded only in args, env, url and headers"
        fields["command"].add_warning(f"{named[0]} is not expanded; {right}")


@accepts(COMMAND_TABLE)
def _read_named_commands(reader: FieldReader) -> dict[str, tuple[str, ...]]:
    """Read commands, keyed by name."""
    return {
        name: read_command(entry)
        for name, entry in reader.iter_entries("a mapping of names to commands, such as tests: pytest -q")
    }


@accepts(STRING)
def _read_worktree_folder(reader: FieldReader) -> str:
    """Read the path pattern for a worker's worktree."""
    pattern = reader.read_text("a path such as ../{repo}-worker-{branch}")
    if pattern:
        try:
            must_be_folder_pattern(pattern)
        except Mistake as mistake:
            reader.add_error(str(mistake))
    return pattern


def _read_providers(reader: FieldReader) -> dict[str, ProviderLimits]:
    """Read the URLs, limits and tool call modes of providers, keyed by name in lower case."""
    entries = reader.iter_entries("a mapping of names to providers, such as openai: {concurrent: 8}")
    return {name.lower(): ProviderLimits(**read_values(entry, PROVIDER_KEYS)) for name, entry in entries}


@accepts(STRING)
def _read_store(reader: FieldReader) -> str:
    """Return `local`, a path or a PostgreSQL URL. It may contain a password, so it is never included in messages."""
    text = reader.read_secret().strip()
    if not text or ("://" in text and not is_postgres_url(text)):
        reader.add_error("expected local, the path of a file or postgresql://…; other servers are not supported")
    return text


@accepts(STRING)
def _read_queue(reader: FieldReader) -> str:
    """Return the name of a fleet's queue."""
    text = reader.read_secret().strip()
    try:
        require_known_queue(text)
    except Mistake as error:
        reader.add_error(str(error))
    return text


@accepts(STRINGS)
def _read_hosts(reader: FieldReader) -> tuple[str, ...]:
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
def _read_notify_targets(reader: FieldReader) -> tuple[NotifyTarget, ...]:
    """Read the list of notification targets: words such as `bell`, URLs to call, and commands to run."""
    return tuple(target for item in reader.iter_items() if (target := _read_notify_target(item)) is not None)


def _read_notify_target(reader: FieldReader) -> NotifyTarget | None:
    """Read one notification target. Return None if it is empty. URLs may be secret, so messages never include them."""
    if isinstance(reader.node, MappingNode):
        command = read_values(reader, NOTIFY_KEYS).get("command")
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


@accepts({"anyOf": [POSITIVE, {"const": "never"}]})
def _read_approval_timeout(reader: FieldReader) -> float:
    """Return the seconds after which a request is denied. `never` means no timeout."""
    if reader.text == "never":
        return math.inf
    return reader.read_positive_number('a number of seconds or "never"')


KINDS: Mapping[str, Reader] = {
    **RULE_KINDS,
    "roles": _read_roles,
    "role rules": _read_role_rules,
    "engines": _read_engines,
    "hooks": read_hooks,
    "servers": _read_mcp_servers,
    "providers": _read_providers,
    "named commands": _read_named_commands,
    "worktree folder": _read_worktree_folder,
    "approval timeout": _read_approval_timeout,
    "hosts": _read_hosts,
    "store": _read_store,
    "queue": _read_queue,
    "notify targets": _read_notify_targets,
    "tool patterns": read_tool_patterns,
    "hook sandbox": read_hook_sandbox,
}
"""The functions that read the kinds of values that only settings contain."""
ROLE_KEYS = list_keys(Role, KINDS)
ENGINE_KEYS = list_keys(Launch, KINDS)
SERVER_KEYS = list_keys(McpServer)
PROVIDER_KEYS = list_keys(ProviderLimits)
NOTIFY_KEYS = list_keys(NotifyCommand)
KEYS = list_keys(SettingsDocument, KINDS)
"""The keys of a settings file, in the order of the documentation."""
