"""Read the key `hooks` in settings files and agent files."""

import re
from collections.abc import Collection, Iterator
from typing import Annotated

from msgspec import Struct

from .field_reader import FieldReader
from .hook import DEFAULT_HOOK_TIMEOUT, HOOK_EVENTS, Hook, HookTable
from .key import Key
from .key_schema import BOOLEAN, STRINGS, accepts
from .located_yaml import MappingNode, quote_text
from .plain_text import join_words
from .struct_reader import list_keys, read_values

FOREIGN_EVENTS = {"PreToolUse": "before_tool", "PostToolUse": "after_tool"}
"""Another program's names for events, and Podium's name for each."""

EXAMPLE = "a command, or entries such as {command: ./guard.sh, tools: Bash}"


@accepts({"type": ["string", "array"]})
def read_hooks(reader: FieldReader, *, events: Collection[str] = HOOK_EVENTS) -> HookTable:
    """Read the hooks for each event. Only the user's own hooks can run outside the sandbox."""
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
            for hook in (_iter_foreign_hooks(item) if name in FOREIGN_EVENTS else _iter_hooks(item))
        )
        found[event] = found.get(event, ()) + hooks
    return {event: hooks for event, hooks in found.items() if hooks}


def _iter_hooks(reader: FieldReader) -> Iterator[Hook]:
    if not isinstance(reader.node, MappingNode):
        yield Hook(command=("sh", "-c", reader.read_text(EXAMPLE)))
        return
    values = read_values(reader, HOOK_KEYS)
    if ("command" in values) == ("plugin" in values):
        reader.add_error("this hook needs either a command or a plugin; set one of them")
    else:
        yield Hook(**values)


def _iter_foreign_hooks(reader: FieldReader) -> Iterator[Hook]:
    """Yield the hooks of an entry in another program's format, which has a tool pattern and a list of hooks."""
    fields = reader.read_fields(("matcher", "hooks"))
    tools = _read_matcher(fields["matcher"]) if "matcher" in fields else ()
    for item in fields["hooks"].iter_items() if "hooks" in fields else ():
        values = read_values(item, FOREIGN_HOOK_KEYS)
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
def read_tool_patterns(reader: FieldReader) -> tuple[str, ...]:
    """Read the names of tools, or patterns."""
    tools = reader.read_comma_list("a list of tools, such as Bash, Edit")
    for one in tools:
        if not _NAMES.fullmatch(one):
            # A name that matches no tool would leave every tool unguarded.
            reader.add_error(
                f"{quote_text(one)} is not the name of a tool; use names such as Bash, or patterns such as mcp__*"
            )
    return tools


_NAMES = re.compile(r"[\w\s*-]*")


@accepts(BOOLEAN)
def read_hook_sandbox(reader: FieldReader) -> bool:
    """Return whether a hook runs in the sandbox. Only the user can let one run outside."""
    is_sandboxed = reader.read_bool()
    if not is_sandboxed and not reader.context.is_yours:
        reader.add_warning("ignored: only your own settings can let a hook run outside the sandbox")
    return is_sandboxed or not reader.context.is_yours


HOOK_KEYS = list_keys(Hook, {"tool patterns": read_tool_patterns, "hook sandbox": read_hook_sandbox})


class _ForeignHook(Struct):
    """A hook in another program's format."""

    type: Annotated[str, Key(kind="line")] = "command"
    command: Annotated[tuple[str, ...], Key(kind="command")] = ()
    timeout: Annotated[float, Key()] = DEFAULT_HOOK_TIMEOUT


FOREIGN_HOOK_KEYS = list_keys(_ForeignHook)
