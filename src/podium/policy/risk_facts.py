"""Find the risk facts of an action, which a person should know before answering a permission request.

The facts depend only on the action itself. They only inform the person: rules decide whether Podium asks. An action
without risk facts is not necessarily harmless.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator

from ..values.action import RISK_KINDS, Action, RiskFact, RiskKind
from ..values.hidden_characters import find_hidden
from ..values.tool_table import ACTING_RULES, COORDINATION_RULES, PATH_ARGUMENTS
from .command_words import Words
from .deleting_commands import DELETING_WORDS, find_deletions
from .inner_commands import (
    STRING_RUNNERS,
    SYSTEM_PROGRAM,
    find_run_commands,
    find_unknown_program,
    select_likely_commands,
)
from .network_commands import find_hosts, find_network_uses
from .path_rules import is_protected, is_sensitive, locate_path
from .rule import normalise_tool_name
from .shell_command import ShellCommand, parse_command
from .shell_program import PATHLESS, find_risks, get_program_name

MOST_EXAMPLES = 5
LONGEST_EXAMPLE = 100
MOST_TEXTS = 1_000
"""Maximum number of strings in an unknown tool's arguments that are searched for paths and hosts."""

_DEVICE = re.compile(r"/dev/(?:null|zero|u?random|tty|std(?:in|out|err)|fd/\d+)")
_SOCKET = re.compile(r"/dev/(?:tcp|udp)/(?P<host>[^/]+)/(?P<port>\w+)")
_VARIABLE = re.compile(r"\$\{?(?:HOME|OLDPWD|TMPDIR|XDG_\w+)\b|(?:\$(?!\{?PWD\b)|`)[^/]*/")
"""Matches a path that begins with a folder variable, or with another value that only the shell can expand."""

Finding = tuple[RiskKind, str]


def find_risk_facts(what: str | Action) -> tuple[RiskFact, ...]:
    """Return the risk facts of an action, or of a shell command in the checkout, in the order of `RISK_KINDS`."""
    action = what if isinstance(what, Action) else Action(run="", agent="", tool="Bash", arguments={"command": what})
    found: dict[RiskKind, dict[str, None]] = {}
    for kind, example in _find_all(action):
        found.setdefault(kind, {})[example] = None
    return tuple(_make_fact(kind, found[kind]) for kind in RISK_KINDS if kind in found)


def _make_fact(kind: RiskKind, examples: Iterable[str]) -> RiskFact:
    cut = [text if len(text) <= LONGEST_EXAMPLE else f"{text[: LONGEST_EXAMPLE - 1]}…" for text in examples]
    return RiskFact(kind=kind, examples=tuple(cut[:MOST_EXAMPLES]), more=max(0, len(cut) - MOST_EXAMPLES))


def _find_all(action: Action) -> Iterator[Finding]:
    texts = [action.tool, *_walk_texts(action.arguments)]
    hidden = dict.fromkeys(code for text in texts for code in find_hidden(text))
    yield from (("control_characters", code) for code in hidden)
    tool, directory = normalise_tool_name(action.tool), action.directory
    if tool == "Bash":
        command = action.arguments.get("command")
        yield from _find_in_command(parse_command(command if isinstance(command, str) else ""), directory)
    elif tool == "WebFetch":
        yield from (("network", host) for host in find_hosts(str(action.arguments.get("url", ""))))
    elif tool in PATH_ARGUMENTS:
        named = (action.arguments.get(key) for key in PATH_ARGUMENTS[tool])
        yield from _find_in_paths((path for path in named if isinstance(path, str) and path), directory)
    elif tool not in COORDINATION_RULES | ACTING_RULES:
        yield "unknown_program", action.tool
        yield from _find_in_unknown_call(action, texts[1:])


def _walk_texts(value: object) -> Iterator[str]:
    """Yield every string in a value, including the keys of mappings."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting.extend(reversed([text for pair in one.items() for text in pair]))
        elif isinstance(one, list | tuple):
            waiting.extend(reversed(one))


# Commands --------------------------------------------------------------------------------------------


def _find_in_command(command: ShellCommand, directory: str) -> Iterator[Finding]:
    for words in (*command.simple, *command.nested):
        yield from _find_in_words(words, directory)
    yield from _find_in_paths((*command.sources, *command.writes), directory)
    if command.unread:
        return
    runs_strings = any(get_program_name(words) in STRING_RUNNERS for words in command.simple)
    for words in (*command.simple, *(command.nested if runs_strings else ())):
        if name := find_unknown_program(words):
            yield "unknown_program", name


def _find_in_words(words: Words, directory: str) -> Iterator[Finding]:
    possible = [words, *(one for one in find_run_commands(words) if one != words)]
    for one in select_likely_commands(possible):
        yield from (("deletes", example) for example in find_deletions(one, run_by=words))
        yield from (("network", example) for example in find_network_uses(one))
    programs = {one[0] for one in possible if SYSTEM_PROGRAM.fullmatch(one[0])}
    named = [path for one in possible for path in _list_risky_paths(one) if path not in programs]
    if get_program_name(words) not in PATHLESS:
        named += [word for word in words[1:] if _VARIABLE.match(word)]
    yield from _find_in_paths(named, directory)


def _list_risky_paths(words: Words) -> list[str]:
    """Return the paths that are guarded or outside the checkout.

    If a word contains several such paths, only the shortest is returned. For the word `x:/a`, this is `/a`.
    """
    by_place: dict[int, str] = {}
    for risk in find_risks(words):
        if risk.path and len(risk.path) <= len(by_place.get(risk.place, risk.path)):
            by_place[risk.place] = risk.path
    return list(by_place.values())


# Paths and other tools -------------------------------------------------------------------------------


def _find_in_paths(paths: Iterable[str], directory: str) -> Iterator[Finding]:
    for path in paths:
        if socket := _SOCKET.fullmatch(path):
            yield "network", f"{socket['host']}:{socket['port']}"
            continue
        if _is_outside(path, directory):
            yield "outside", path
        if is_protected(path) or is_sensitive(path):
            yield "protected_path", path


def _is_outside(path: str, directory: str) -> bool:
    """Return whether a path is outside the checkout. A path that matches `_VARIABLE` counts as outside."""
    if _DEVICE.fullmatch(path) or path.startswith("//"):
        return False
    if _VARIABLE.match(path):
        return True
    whole = posixpath.normpath(path)
    if directory and (whole == directory or whole.startswith(f"{directory.rstrip('/')}/")):
        return False
    return not locate_path(whole).is_inside


def _find_in_unknown_call(action: Action, texts: list[str]) -> Iterator[Finding]:
    if DELETING_WORDS & set(re.split(r"[^a-z]+", action.tool.lower())):
        yield "deletes", action.tool
    for text in texts[:MOST_TEXTS]:
        yield from (("network", host) for host in find_hosts(text))
        if "/" in text and "://" not in text and not re.search(r"\s", text):
            yield from _find_in_paths((text,), action.directory)
