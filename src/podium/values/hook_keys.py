"""Read the key `hooks` in settings files and agent files."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

from .field_reader import FieldReader, Key, Keys, read_command
from .hook import HOOK_EVENTS, Hook, HookTable
from .key_schema import STRINGS, accepts
from .located_yaml import MappingNode, quote_text
from .plain_text import join_words

FOREIGN_EVENTS = {"PreToolUse": "before_tool", "PostToolUse": "after_tool"}
"""Another program's names for events, and Podium's name for each."""

EXAMPLE = "a command, or entries such as {command: ./guard.sh, tools: Bash}"


def read_hooks(reader: FieldReader, *, events: Collection[str] = HOOK_EVENTS, may_leave_sandbox: bool) -> HookTable:
    """Read the hooks for each event. A hook can turn off its sandbox only if `may_leave_sandbox` is true."""
    found: HookTable = {}
    for name, entry in reader.iter_entries("events such as before_tool: {command: ./guard.sh}"):
        event = FOREIGN_EVENTS.get(name, name)
        if event not in events:
            # In agent files, an unknown event is only a warning, because other programs support more events. In
            # settings it is an error, because the hook of a misspelled event would never be called.
            tell = entry.add_error if events == HOOK_EVENTS else entry.add_warning
            known = join_words(list(events))
            tell(f"hooks for the event {quote_text(name)} are not supported in this file; available: {known}")
            continue
        hooks = tuple(
            hook
            for item in entry.iter_items()
            for hook in (_iter_foreign_hooks(item) if name in FOREIGN_EVENTS else _iter_hooks(item, may_leave_sandbox))
        )
        found[event] = found.get(event, ()) + hooks
    return {event: hooks for event, hooks in found.items() if hooks}


def _iter_hooks(reader: FieldReader, may_leave_sandbox: bool) -> Iterator[Hook]:
    if not isinstance(reader.node, MappingNode):
        yield Hook(command=("sh", "-c", reader.read_text(EXAMPLE)))
        return
    values = reader.read_values({**HOOK_KEYS, "sandbox": Key(partial(_read_sandbox, may_leave=may_leave_sandbox))})
    if ("command" in values) == ("plugin" in values):
        reader.add_error("this hook needs either a command or a plugin; set one of them")
    else:
        yield Hook(**values)


def _read_sandbox(reader: FieldReader, *, may_leave: bool) -> bool:
    is_sandboxed = reader.read_bool()
    if not is_sandboxed and not may_leave:
        reader.add_warning("ignored: only your own settings can let a hook run outside the sandbox")
    return is_sandboxed or not may_leave


def _iter_foreign_hooks(reader: FieldReader) -> Iterator[Hook]:
    """Yield the hooks of an entry in another program's format, which has a tool pattern and a list of hooks."""
    fields = reader.read_fields(("matcher", "hooks"))
    tools = _read_matcher(fields["matcher"]) if "matcher" in fields else ()
    for item in fields["hooks"].iter_items() if "hooks" in fields else ():
        values: dict[str, Any] = item.read_values(FOREIGN_HOOK_KEYS)
        if values.pop("type", "command") != "command" or "command" not in values:
            item.add_warning("only hooks with a command are supported, so this hook has no effect")
        else:
            yield Hook(tools=tools, is_foreign=True, **values)


def _read_matcher(reader: FieldReader) -> tuple[str, ...]:
    """Return the tool names in another program's pattern, such as `Edit|Write`.

    If the pattern is not a list of names, return an empty tuple, which means all tools.
    """
    pattern = reader.read_text(allow_blank=True)
    if not _NAMES.fullmatch(pattern.replace("|", "")):
        if pattern != ".*":
            reader.add_warning("this is not a list of names such as Edit|Write, so the hook applies to all tools")
        return ()
    names = tuple(filter(None, map(str.strip, pattern.split("|"))))
    return () if "*" in names else names


@accepts(STRINGS)
def _read_tools(reader: FieldReader) -> tuple[str, ...]:
    tools = reader.read_comma_list("a list of tools, such as Bash, Edit")
    for one in tools:
        if not _NAMES.fullmatch(one):
            # A name that matches no tool would leave every tool unguarded.
            reader.add_error(
                f"{quote_text(one)} is not the name of a tool; use names such as Bash, or patterns such as mcp__*"
            )
    return tools


_NAMES = re.compile(r"[\w\s*-]*")


HOOK_KEYS: Keys = {
    "command": Key(read_command, "a shell command, or `[program, argument, …]`"),
    "plugin": Key(
        FieldReader.read_single_line,
        "the name of a [plug-in](plugins.md) whose function is called instead of a command",
    ),
    "tools": Key(
        _read_tools,
        ("the tools for which the hook runs: names such as `Bash` or `write_file`, or patterns such as `mcp__*`"),
        default="all tools",
    ),
    "timeout": Key(FieldReader.read_positive_number, "seconds after which the hook is terminated", default="30"),
    "sandbox": Key(
        FieldReader.read_bool,
        (
            "`false`: the command runs without the [sandbox](sandbox.md). Only your own settings can turn the"
            " sandbox off"
        ),
        default="`true`",
    ),
    "cwd": Key(
        FieldReader.read_single_line,
        ("the folder that the command starts in, relative to the repository; see [Where hooks run](#where-hooks-run)"),
    ),
}
FOREIGN_HOOK_KEYS: Keys = {
    "type": Key(FieldReader.read_single_line),
    "command": Key(read_command),
    "timeout": Key(FieldReader.read_positive_number),
}
