"""The keys of a settings file: which there are, and what the value of each becomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from ..values.agent import Budget, Permissions
from ..values.errors import Mistake
from ..values.located_yaml import Fields, Items, Scalar, quoted
from ..values.mcp_server import NAME_RULE, VARIABLE, McpServer, is_server_name
from ..workspace.worktrees.worktree_folder import must_be_pattern
from .launch import Launch
from .model_role import Role
from .settings_document import MODES, Document, PermissionMode, ProviderLimits
from .settings_field import Slot
from .worktree_settings import WorktreeSettings

if TYPE_CHECKING:
    from ..policy.rule_entry import Kind

Side = Literal["user", "repo"]

KINDS: tuple[Kind, ...] = ("allow", "ask", "deny")
ROLE_KEYS = ("model", "fallbacks", "budget", "prompt", "rules")
LAUNCH_KEYS = ("command", "args", "env")
SERVER_KEYS = (*LAUNCH_KEYS, "url", "headers")
NOTIFY_WORDS = ("bell", "desktop")


def document(top: Slot, side: Side) -> Document:
    """What the whole mapping of a file says."""
    slots = top.fields(KEYS, also={"mcp_servers": "mcpServers"})
    values: dict[str, Any] = {key: read(slots[key]) for key, read in READERS.items() if key in slots}
    if "mcpServers" in slots:
        values["mcp_servers"] = servers(slots["mcpServers"], side)
    if "models" in slots:
        values["models"] = roles(slots["models"], side)
    if "permissions" in slots:
        values |= permissions(slots["permissions"])
    if "approvals" in slots and (timeout := slots["approvals"].fields(("timeout",)).get("timeout")):
        values["approval_seconds"] = waiting(timeout)
    return Document(**values)


def roles(slot: Slot, side: Side) -> dict[str, Role]:
    """Roles by name; a text is a role with only a model. What a repository would allow is ignored."""
    found: dict[str, Role] = {}
    for name, entry in slot.entries("roles, such as fast: openai:gpt-5-mini,"):
        if not isinstance(entry.written, Fields):
            found[name] = Role(model=entry.text("a model, or a mapping with model,"))
            continue
        fields = entry.fields(ROLE_KEYS)
        if "model" not in fields:
            entry.error("this role has no model; model: PROVIDER:MODEL would be right")
            continue
        found[name] = Role(
            model=fields["model"].text(),
            fallbacks=fields["fallbacks"].texts("a list of models") if "fallbacks" in fields else (),
            budget=budget(fields["budget"]) if "budget" in fields else None,
            prompt=fields["prompt"].text() if "prompt" in fields else "",
            rules=rules(fields["rules"], "allow") if "rules" in fields and side == "user" else (),
        )
        if "rules" in fields and side == "repo":
            fields["rules"].warn("is ignored: files of a repository can only tighten")
    return found


def engines(slot: Slot) -> dict[str, Launch]:
    """Coding agents by name, and how each is started."""
    found: dict[str, Launch] = {}
    for name, entry in slot.entries("entries, such as mine: {command: PROGRAM},"):
        fields = entry.fields(LAUNCH_KEYS)
        if "command" in fields:
            found[name] = Launch(**launch(fields))
        elif isinstance(entry.written, Fields):
            entry.error("this engine has no command; command: PROGRAM would be right")
    return found


def launch(fields: Mapping[str, Slot]) -> dict[str, Any]:
    """A program with its arguments and variables."""
    found: dict[str, Any] = {"command": fields["command"].text()}
    if "args" in fields:
        found["args"] = fields["args"].texts()
    if "env" in fields:
        found["env"] = secrets(fields["env"])
    return found


def servers(slot: Slot, side: Side) -> dict[str, McpServer]:
    """MCP servers by name: each is started by a command or called at an address."""
    found: dict[str, McpServer] = {}
    for name, entry in slot.entries("servers, such as files: {command: PROGRAM},"):
        fields = entry.fields(SERVER_KEYS)
        if not isinstance(entry.written, Fields):
            continue
        if not is_server_name(name):
            tell = entry.warn if entry.page.foreign else entry.error
            tell(f"tools cannot be called by this name; {NAME_RULE}")
            continue
        if ("command" in fields) == ("url" in fields):
            entry.error("this server needs either a command or a url; one of them would be right")
            continue
        warn_unfilled(fields)
        values: dict[str, Any] = launch(fields) if "command" in fields else {"url": fields["url"].address()}
        if "headers" in fields:
            values["headers"] = secrets(fields["headers"])
        found[name] = McpServer(name=name, source=side, **values)
    return found


def warn_unfilled(fields: Mapping[str, Slot]) -> None:
    """A variable is filled in only where it cannot change which program is started."""
    written = fields["command"].written if "command" in fields else None
    named = VARIABLE.search(written.raw) if isinstance(written, Scalar) else None
    if named:
        right = "variables are filled in only in args, env, url and headers"
        fields["command"].warn(f"{named[0]} stays as it is written; {right}")


def secrets(slot: Slot) -> dict[str, str]:
    """Names with texts that may be secret."""
    return {name: entry.secret() for name, entry in slot.entries("names with texts, such as TOKEN: ${TOKEN},")}


def permissions(slot: Slot) -> dict[str, Any]:
    """Rules by what they decide, and how requests are met that no rule decides."""
    fields = slot.fields((*KINDS, "mode"))
    found: dict[str, Any] = {
        "permissions": Permissions(**{kind: rules(fields[kind], kind) for kind in KINDS if kind in fields})
    }
    if "mode" in fields:
        found["permission_mode"] = cast(PermissionMode, fields["mode"].choice(MODES))
    return found


def rules(slot: Slot, kind: Kind) -> tuple[str, ...]:
    """Texts of rules, each of which was tried with its examples."""
    if isinstance(slot.written, Fields):
        slot.wrong("a list of rules")
        return ()
    # Only those who have rules pay for what reads them.
    from ..policy.rule_entry import honest_entry

    found = []
    for item in slot.items():
        try:
            entry = honest_entry(item.written, kind)
        except Mistake as mistake:
            item.error(str(mistake))
        else:
            found.append(entry.rule)
            slot.page.lines[f"{slot.key}.{entry.rule}"] = entry.line
    return tuple(found)


def budget(slot: Slot) -> Budget:
    """Limits; one that is not named does not exist."""
    fields = slot.fields(Budget.__struct_fields__)
    given: dict[str, Any] = {key: field.amount() for key, field in fields.items() if key in ("usd", "seconds")}
    given |= {key: field.whole() for key, field in fields.items() if key in ("tokens", "turns")}
    if "files_changed" in fields:
        given["files_changed"] = fields["files_changed"].whole(least=0)
    return Budget(**given)


def checks(slot: Slot) -> dict[str, tuple[str, ...]]:
    """Commands by name."""
    return {name: command(entry) for name, entry in slot.entries("commands, such as tests: pytest -q,")}


def command(slot: Slot) -> tuple[str, ...]:
    """A command: a text is for the shell, a list is a program with its arguments."""
    if not isinstance(slot.written, Items):
        return ("sh", "-c", slot.text("a command"))
    if not slot.written.items:
        slot.error("an empty list stands here; a program with its arguments would be right")
    return slot.texts("a command")


def worktrees(slot: Slot) -> WorktreeSettings:
    """What is run in a worker's checkout when it is made and before it goes, where it is, and how much all may take."""
    fields = slot.fields(WorktreeSettings.__struct_fields__)
    given: dict[str, Any] = {key: command(fields[key]) for key in ("setup", "teardown") if key in fields}
    if "folder" in fields:
        given["folder"] = folder(fields["folder"])
    if "quota" in fields:
        given["quota"] = fields["quota"].size()
    return WorktreeSettings(**given)


def folder(slot: Slot) -> str:
    """The pattern of a worker's folder."""
    pattern = slot.text("a path such as ../{repo}-worker-{branch}")
    if pattern:
        try:
            must_be_pattern(pattern)
        except Mistake as mistake:
            slot.error(str(mistake))
    return pattern


def providers(slot: Slot) -> dict[str, ProviderLimits]:
    """Providers by name, where each is and how much may be asked of it."""
    found: dict[str, ProviderLimits] = {}
    for name, entry in slot.entries("providers, such as openai: {concurrent: 8},"):
        fields = entry.fields(ProviderLimits.__struct_fields__)
        given: dict[str, Any] = {key: field.whole() for key, field in fields.items() if key != "base_url"}
        if "base_url" in fields:
            given["base_url"] = fields["base_url"].address()
        found[name.lower()] = ProviderLimits(**given)
    return found


def store(slot: Slot) -> str:
    """`local` or a path. An address may carry a password, so that no message repeats it."""
    text = slot.secret().strip()
    if not text or "://" in text:
        slot.error("a store on a server cannot be used; local, or the path of a file, would be right")
    return text


def notify(slot: Slot) -> tuple[str, ...]:
    """How the person is told: by words, or by calling an address."""
    found = slot.texts("a list of bell, desktop or addresses")
    for word in found:
        if word not in NOTIFY_WORDS and not word.startswith(("https://", "http://")):
            slot.error(f"{quoted(word)} is not known; bell, desktop or an address would be right")
    return found


def waiting(slot: Slot) -> float:
    """Seconds until silence is a refusal; `never` waits for ever."""
    if slot.is_text and slot.text() == "never":
        return math.inf
    return slot.amount("a number of seconds, or never,")


READERS: Mapping[str, Callable[[Slot], object]] = {
    "model": Slot.text,
    "engines": engines,
    "sandbox": Slot.flag,
    "store": store,
    "workers": Slot.whole,
    "max_restarts": partial(Slot.whole, least=0),
    "budget": budget,
    "notify": notify,
    "checks": checks,
    "worktrees": worktrees,
    "providers": providers,
}
"""How the value under each key is read, where it depends on nothing else."""

KEYS = (*READERS, "models", "mcpServers", "permissions", "approvals")
