"""The text of a permission request, in which text from an agent or a tool cannot be mistaken for Podium's own.

The terminal, the inbox and its JSON show the same lines.
"""

from __future__ import annotations

import json
import re
from unicodedata import category

import msgspec

from ..values.event import PermissionAsked

HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
BLANKS = frozenset("\u034f\u115f\u1160\u2800\u3164\uffa0")
"""Characters outside the hidden categories that are invisible or look like a space."""
AT_A_GLANCE = 72
"""Longer texts are shown with their length."""
LONGEST_NAME = 60

SANDBOXES = {
    "": "not used for this tool",
    "none": "none: the command can do anything that you can; network on",
    "missing": "not available here; the command is refused even if you allow it",
    "workspace": "workspace: can write only in the checkout; network off",
    "read-only": "read-only: cannot write anything; network off",
}
"""The description of each sandbox in which an action can run."""

_SPACES = re.compile(r"(?<=\S) {20,}(?=\S)")
"""A run of spaces long enough to move the text after it out of sight."""


def format_request_lines(asked: PermissionAsked) -> list[str]:
    """Return the lines of a request: the full arguments, the directory, the reason and the changes."""
    action = asked.action
    lines = [
        *(
            f"  {escape_in_line(name)}{_format_length(value)}: {_format_argument(value)}"
            for name, value in action.arguments.items()
        ),
        f"  in {action.directory or 'no directory'}, because {asked.reason}",
        f"  sandbox: {SANDBOXES.get(action.sandbox, action.sandbox)}",
    ]
    if asked.shown:
        lines += ["", *(f"  {line}" for line in asked.shown.split("\n")), ""]
    if action.outputs and action.outputs == {path: action.inputs.get(path) for path in action.outputs}:
        lines.append(f"  no changes: {', '.join(action.outputs)} already has this content")
    lines += [f"  {denial}" for denial in asked.denied]
    if asked.always:
        lines.append(f"  always adds the rule {asked.always} for this repository")
    return lines


def escape_hidden_text(text: str) -> str:
    """Escape invisible characters, and replace long runs of spaces with their length. Line breaks stay."""
    return _SPACES.sub(lambda run: f" [{len(run[0])} spaces] ", "".join(map(_escape_character, text)))


def escape_in_line(name: str) -> str:
    """Return a name from an agent or a tool on one line, with invisible characters escaped."""
    shown = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"
    return "".join(json.dumps(one)[1:-1] if one in "\n\t\r" else _escape_character(one) for one in shown)


def _escape_character(character: str) -> str:
    if character in " \n\t" or not _is_hidden(character):
        return character
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _is_hidden(character: str) -> bool:
    if character.isascii():
        return not character.isprintable()
    is_selector = "\u180b" <= character <= "\u180f" or "\ufe00" <= character <= "\ufe0f"
    return is_selector or character in BLANKS or category(character) in HIDDEN_CATEGORIES or character >= "\U000e0000"


def _format_length(value: object) -> str:
    """Return the length of a text that is too long to judge at a glance."""
    return f" ({len(value)} characters)" if isinstance(value, str) and len(value) > AT_A_GLANCE else ""


def _format_argument(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(msgspec.to_builtins(value), indent=2)
    return text if "\n" not in text else "".join(f"\n    {line}" for line in text.split("\n"))
