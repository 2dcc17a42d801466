"""Parse rules such as `Tool` or `Tool(specifier)`, and match them against actions.

A rule matches in two ways. A deny or ask rule *catches* every action that it may match, including other spellings and
commands run by other programs. An allow rule *permits* only actions that it definitely matches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from ..values.errors import Mistake
from ..values.tool_table import CHANGING_RULES, READING_RULES, RULE_NAMES
from .command_words import Words
from .path_rules import PathLocation, PathPattern, compile_path_pattern, locate_path
from .possible_commands import find_possible_commands
from .shell_command import ShellCommand, join_words, place_in_folders
from .shell_program import find_risks

COVERED = {
    "Read": READING_RULES,
    "Edit": CHANGING_RULES,
    "Write": frozenset(("Write",)),
    "Glob": frozenset(("Glob",)),
    "Grep": frozenset(("Grep",)),
}
"""The tools that each kind of path rule covers. A rule for reading also covers searching."""


def normalise_tool_name(name: str) -> str:
    """Return the canonical name of a tool. Unknown names are returned unchanged."""
    return RULE_NAMES.get(name.lower(), name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An action, parsed for matching against rules. If rules cannot fully check the action, `unclear` says why."""

    tool: str
    locations: tuple[PathLocation, ...] = ()
    command: ShellCommand | None = None
    url: str = ""
    agent: str = ""
    unclear: str = ""


class Rule(Protocol):
    """A compiled rule."""

    @property
    def text(self) -> str:
        """The original text of the rule."""
        ...

    def catches(self, subject: Subject) -> bool:
        """Return whether the rule may match this action. Used for deny and ask rules."""
        ...

    def permits(self, subject: Subject) -> bool:
        """Return whether the rule definitely matches this action. Used for allow rules."""
        ...


def parse_rule(text: str) -> Rule:
    """Parse a rule. If it is invalid, raise a Mistake that quotes the rule and says how to correct it."""
    try:
        return _parse_rule(text)
    except Mistake as mistake:
        raise Mistake(f'the rule "{text}" cannot be used: {mistake}') from mistake


def _parse_rule(text: str) -> Rule:
    form = _FORM.fullmatch(text)
    if form is None or not text.isprintable():
        raise Mistake("expected Tool or Tool(specifier) on one line, such as Read or Bash(npm run test *)")
    tool, specifier = normalise_tool_name(form["tool"]), form["specifier"]
    if specifier is not None and not specifier.strip():
        raise Mistake(f"its parentheses are empty; write {form['tool']} alone to cover every use of the tool")
    if tool == "Bash":
        return CommandRule(text=text, pattern=compile_words_pattern(specifier or "*"))
    if tool in COVERED:
        return PathRule(text=text, tool=tool, pattern=None if specifier is None else compile_path_pattern(specifier))
    if tool == "WebFetch":
        return DomainRule(text=text, domain="" if specifier is None else _parse_domain(specifier))
    if tool == "Agent":
        return AgentRule(text=text, name=specifier or "*")
    if specifier is not None:
        raise Mistake(f"{tool} does not accept a specifier in parentheses; write only {tool}")
    if "*" in tool and not tool.startswith("mcp__"):
        raise Mistake("only MCP tool names can end with *; write a separate rule for each tool")
    return ToolRule(text=text, tool=tool)


_FORM = re.compile(r"(?P<tool>[A-Za-z_][\w.-]*\*?)(?:\((?P<specifier>.*)\))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRule:
    """A rule for one tool, for all tools of an MCP server, or for tools whose names start with a prefix."""

    text: str
    tool: str

    def catches(self, subject: Subject) -> bool:
        return self._matches_name(self.tool.casefold(), subject.tool.casefold())

    def permits(self, subject: Subject) -> bool:
        return self._matches_name(self.tool, subject.tool)

    def _matches_name(self, own: str, tool: str) -> bool:
        if own.endswith("*"):
            return tool.startswith(own[:-1])
        is_server = own.startswith("mcp__") and own.count("__") == 1
        return tool == own or (is_server and tool.startswith(f"{own}__"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRule:
    """A rule for reading or changing files: all files, or those that match a gitignore pattern."""

    text: str
    tool: str
    pattern: PathPattern | None

    def catches(self, subject: Subject) -> bool:
        if subject.command is not None:
            return self._catches_command(subject.command)
        if subject.tool not in COVERED[self.tool]:
            return False
        return self.pattern is None or any(self.pattern.touches(where) for where in subject.locations)

    def _catches_command(self, command: ShellCommand) -> bool:
        """Return whether the rule may match a command, given the paths that it mentions or is known to write."""
        if self.tool in ("Glob", "Grep"):
            return False
        if self.pattern is None:
            return self.tool != "Read" and bool(command.writes)
        found = _locate_paths(command, self.tool == "Read")
        if self.tool != "Read" and any(where.is_inside and where.path == "." for where in found):
            return True
        globs = [glob for glob in command.globs if self.tool == "Read" or glob in command.writes]
        return any(map(self.pattern.touches, found)) or any(map(self.pattern.is_named_by, globs))

    def permits(self, subject: Subject) -> bool:
        if subject.tool not in COVERED[self.tool]:
            return False
        if self.pattern is None:
            return all(where.is_inside for where in subject.locations)
        return bool(subject.locations) and all(self.pattern.covers(where) for where in subject.locations)


@lru_cache(maxsize=64)
def _locate_paths(command: ShellCommand, is_reading: bool) -> list[PathLocation]:
    """Return the locations that a command may read, or those that it may change, in each folder that it enters."""
    possible = find_possible_commands(command)
    known, others = (command.mentions, possible.mentions) if is_reading else (command.writes, possible.writes)
    return [*map(locate_path, dict.fromkeys(known + place_in_folders(others, command.folders)))]


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainRule:
    """A rule for fetching from one host, from its subdomains (`*.example.com`), or from any host."""

    text: str
    domain: str

    def catches(self, subject: Subject) -> bool:
        if subject.tool != "WebFetch":
            return False
        named = self.domain.removeprefix("*.").partition(":")[0]
        return not named or any(
            host == named or host.endswith(f".{named}") for host in _find_possible_hosts(subject.url)
        )

    def permits(self, subject: Subject) -> bool:
        if subject.tool != "WebFetch" or (host := parse_host(subject.url)) is None:
            return False
        if self.domain.startswith("*."):
            return host.endswith(self.domain[1:])
        return host == self.domain or not self.domain


def _parse_domain(specifier: str) -> str:
    domain = specifier.strip().removeprefix("domain:").lower().rstrip(".")
    if not specifier.strip().startswith("domain:") or not re.fullmatch(r"(?:\*\.)?[a-z0-9.-]+(?::\d+)?", domain):
        raise Mistake("expected a host, as in WebFetch(domain:example.com)")
    return domain


def parse_host(url: str) -> str | None:
    """Return a URL's host, with the port if it is not the default, or None if the host is ambiguous."""
    found = _CLEAR_URL.fullmatch(url)
    if found is None:
        return None
    usual = {"http": "80", "https": "443"}[found["scheme"].lower()]
    port = found["port"]
    return found["host"].lower() + (f":{port}" if port and port != usual else "")


_CLEAR_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9.-]*[a-z0-9])(?::(?P<port>\d+))?(?:[/?#][!-\[\]-~]*)?", re.I
)


def _find_possible_hosts(url: str) -> list[str]:
    """Return every host that any URL parser could find in a URL."""
    return [piece.rstrip(".").lower() for piece in re.split(r"[/\\?#@:\s\x00]", url)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRule:
    """A rule for calling agents by name. A `*` in the name matches any characters."""

    text: str
    name: str

    def catches(self, subject: Subject) -> bool:
        pattern = WordsPattern(tuple(self.name.casefold().split("*")))
        return subject.tool == "Agent" and pattern.matches(subject.agent.casefold())

    def permits(self, subject: Subject) -> bool:
        return self.catches(subject)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRule:
    """A rule for shell commands that match a word pattern."""

    text: str
    pattern: WordsPattern

    def catches(self, subject: Subject) -> bool:
        command = subject.command
        return command is not None and (
            self.pattern.is_everything
            or any(map(self.pattern.matches, command.match_texts))
            or any(map(self.pattern.matches, find_possible_commands(command).match_texts))
        )

    def permits(self, subject: Subject) -> bool:
        parts = subject.command.parts if subject.command is not None else ()
        return bool(parts) and all(
            self.pattern.matches(join_words(words)) and not self.find_objection(words) for words in parts
        )

    def find_objection(self, words: Words) -> str:
        """Return why the rule does not permit a command that its pattern matches, or "" if it permits the command."""
        for risk in find_risks(words):
            spelled_out = self.pattern.is_exact or risk.place < self.pattern.literal_word_count
            if risk.kind == "guarded" or not spelled_out:
                return risk.why
        return ""


@dataclass(frozen=True, slots=True)
class WordsPattern:
    """A word pattern with `*` wildcards. `pieces` is the text between the wildcards, with a NUL after each word."""

    pieces: tuple[str, ...]

    @property
    def is_everything(self) -> bool:
        """Whether the pattern matches every command."""
        return self.pieces == ("", "")

    @property
    def is_exact(self) -> bool:
        """Whether the pattern has no wildcard."""
        return len(self.pieces) == 1

    @property
    def literal_word_count(self) -> int:
        """The number of whole words before the first wildcard."""
        return self.pieces[0].count("\0")

    def matches(self, said: str) -> bool:
        """Return whether the pattern matches a command, given as a string from `join_words`."""
        first = self.pieces[0]
        if not said.startswith(first):
            return False
        others = self.pieces[1:]
        if not others:
            return said == first
        if not said.endswith(others[-1]):
            return False
        at, end = len(first), len(said) - len(others[-1])
        for piece in others[:-1]:
            at = said.find(piece, at, end)
            if at < 0:
                return False
            at += len(piece)
        return at <= end


def compile_words_pattern(specifier: str) -> WordsPattern:
    """Compile a specifier. Quotes and backslashes work as in a shell; a final ` *` matches any number of words.

    Raise Mistake if a quote is not closed.
    """
    text = specifier.strip()
    if text.endswith(":*"):
        text = f"{text[:-2]} *"
    pieces = [""]
    at = 0
    while at < len(text):
        token = _PATTERN_TOKEN.match(text, at)
        if token is None:
            raise Mistake("a quote is not closed; write \\ before a literal quote")
        at = token.end()
        if token["gap"]:
            pieces[-1] += "\0"
        elif token["star"]:
            pieces.append("")
        else:
            quoted = token["single"] or re.sub(r"\\(.)", r"\1", token["double"] or "") or token["escaped"]
            pieces[-1] += quoted or token["plain"] or ""
    if len(pieces) == 1 or pieces[-1]:
        pieces[-1] += "\0"
    return WordsPattern(tuple(pieces))


_PATTERN_TOKEN = re.compile(
    r"""(?P<gap>\s+)|(?P<star>\*+)|'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|\\(?P<escaped>.)|(?P<plain>[^\s*'"\\]+)"""
)
