"""Format a permission request so that text from an agent or a tool cannot be mistaken for Podium's own.

The terminal, the list of open requests and its JSON output show the same lines.
"""

from __future__ import annotations

import json
import re
from textwrap import wrap
from unicodedata import east_asian_width

import msgspec

from ..values.action import RiskFact, RiskKind
from ..values.event import PermissionAsked
from ..values.hidden_characters import escape_hidden

AT_A_GLANCE = 72
"""The number of characters above which an argument's length is shown next to its name."""
LONGEST_NAME = 60

SANDBOXES = {
    "": "not used for this tool",
    "none": "none: the command has all your permissions and network access",
    "missing": "not available on this machine; the command is refused even if you allow it",
    "workspace": "workspace: can write only in the checkout; no network access",
    "read-only": "read-only: cannot write anything; no network access",
}
"""The description of each sandbox that an action can run in."""

RISKS: dict[RiskKind, str] = {
    "deletes": "deletes or discards",
    "outside": "reaches outside the checkout",
    "network": "uses the network",
    "protected_path": "touches a protected path or a likely secret",
    "control_characters": "contains control or invisible characters",
    "unknown_program": "runs a program that Podium does not know",
}
"""The description of each kind of risk that a permission request can show."""

LABELS = frozenset(("risk", "sandbox"))
"""The labels of lines that Podium writes itself. An argument with one of these names is shown in quotes."""
QUOTE_COLUMNS = 70

_PLAIN_NAME = re.compile(r"[\w.-]+")
_PLAIN_EXAMPLE = re.compile(r"[\w./:@~+*={}$\\-]+")
_SPACES = re.compile(r"(?<=\S) {20,}(?=\S)")
"""A sequence of spaces that is long enough to move the text after it out of sight."""


def format_request_lines(asked: PermissionAsked) -> list[str]:
    """Return the lines that describe a request: the full arguments, the reason, the directory, the risks and so on."""
    action = asked.action
    lines = [
        *(
            f"  {_quote_name(name)}{_format_length(value)}: {_format_argument(value)}"
            for name, value in action.arguments.items()
        ),
        *_format_agent_reason(asked.agent_reason),
        f"  in {action.directory or 'no directory'}, because {asked.reason}",
        f"  sandbox: {SANDBOXES.get(action.sandbox, action.sandbox)}",
        *(f"  risk: {format_risk(fact)}" for fact in asked.risks),
    ]
    if asked.shown:
        lines += ["", *(f"  {line}" for line in asked.shown.split("\n")), ""]
    if action.outputs and action.outputs == {path: action.inputs.get(path) for path in action.outputs}:
        lines.append(f"  no changes: {', '.join(action.outputs)} would stay the same")
    lines += [f"  {denial}" for denial in asked.denied]
    if asked.always:
        lines.append(f'  "always" adds the rule {asked.always} for this repository')
    return lines


def format_risk(fact: RiskFact) -> str:
    """Format a risk as one line. Its examples are quoted, so that they cannot be mistaken for Podium's text."""
    more = f" and {fact.more} more" if fact.more else ""
    return f"{RISKS[fact.kind]}: {', '.join(map(_quote_example, fact.examples))}{more}"


def _format_agent_reason(text: str) -> list[str]:
    """Format an agent's reason as quoted lines, short enough that a terminal does not wrap them."""
    shown = " ".join(escape_hidden(text).split())
    # A wide character takes two columns, so a filler character follows it while the lines are wrapped.
    padded = "".join(f"{one}\0" if east_asian_width(one) in "WF" else one for one in shown)
    lines = wrap(padded, QUOTE_COLUMNS, break_on_hyphens=False)
    return ["  Why (agent's words):", *(f"  | {line.replace(chr(0), '')}" for line in lines)] if lines else []


def _quote_name(name: str) -> str:
    """Return the name of an argument, in quotes if it could be mistaken for the start of one of Podium's lines."""
    shown = escape_in_line(name)
    is_plain = _PLAIN_NAME.fullmatch(name) and name.casefold() not in LABELS
    return shown if is_plain else '"' + shown.replace('"', '\\"') + '"'


def _quote_example(text: str) -> str:
    shown = escape_in_line(text)
    return shown if _PLAIN_EXAMPLE.fullmatch(shown) else '"' + shown.replace('"', '\\"') + '"'


def escape_hidden_text(text: str) -> str:
    """Escape invisible characters except line breaks, and replace each long sequence of spaces with its length."""
    return _SPACES.sub(lambda run: f" [{len(run[0])} spaces] ", escape_hidden(text))


def escape_in_line(name: str) -> str:
    """Escape line breaks and invisible characters in text from an agent or a tool, and truncate long text."""
    shown = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"
    return escape_hidden("".join(json.dumps(one)[1:-1] if one in "\n\t\r" else one for one in shown))


def _format_length(value: object) -> str:
    """Return the length of an argument that is too long to judge at a glance; otherwise an empty string."""
    return f" ({len(value)} characters)" if isinstance(value, str) and len(value) > AT_A_GLANCE else ""


def _format_argument(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(msgspec.to_builtins(value), indent=2)
    return text if "\n" not in text else "".join(f"\n    {line}" for line in text.split("\n"))
