"""Find the commands that an unknown program may run, for deny and ask rules.

A program such as `mksh`, `faketime` or `op run` runs a command that its words contain, and there are more of them than
a table can list. Each later word may therefore start a command, and each word that looks like shell text may be one,
unless `inert_commands` knows better. The search is limited. If a command exceeds the limit, deny and ask rules cannot
rule it out, and it needs a person's approval.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice

from .command_words import Words
from .inert_commands import find_plain_inner_start, runs_no_command
from .shell_command import LONGEST, MOST_WORDS, ShellCommand, list_match_texts, parse_command
from .shell_program import PATHLESS, find_changed_paths, find_mentioned_paths, get_program_name

MOST_COMMANDS = 1_500
MOST_WORDS_IN_ALL = 100_000
MOST_TEXTS = 60
MOST_PATHS = 2_000
DEEPEST = 4
LONGEST_OPTION = 200
MOST_LETTERS = 12
MOST_PIECES = 200
MOST_MARKS = 4
_SEPARATOR = re.compile("[=:,#](?=[^=:,#])")
_JOINED = {"": ("-c", "-x", "-X", "-e"), "tar": ("-I", "-F"), "zip": ("-T",), "git": ("-c", "-x", "-O")}
"""For each program, options whose value, joined to them, can be a command: `-xrm`."""
_STRING_END = re.compile(r"[\"'`();|&!=\n{}\[\]<>$]+")
SHELL_TEXT = re.compile(r"[\s;|&$`(]")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PossibleCommands:
    """The commands that a command may run beyond those that the shell shows.

    `match_texts` contains them as strings for matching, `mentions` the paths that any command may read, and `writes`
    those that the possible commands change. `is_too_much` says that there may be more.
    """

    match_texts: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    is_too_much: bool = False


class _Search:
    """State that is kept during a search."""

    __slots__ = ("commands", "is_too_much", "room", "texts")

    def __init__(self) -> None:
        self.commands: dict[Words, None] = {}
        self.room = MOST_WORDS_IN_ALL
        self.texts = 0
        self.is_too_much = False

    def add(self, words: Words) -> None:
        self.room -= len(words)
        if len(self.commands) < MOST_COMMANDS and self.room >= 0:
            self.commands[words] = None
        else:
            self.is_too_much = True

    def add_command(self, words: Words, depth: int) -> None:
        """Add every command that a command may run."""
        while start := find_plain_inner_start(words):
            for word in words[1:start]:
                self.add_value(word.partition("=")[2])
            words = words[start:]
        if self.is_too_much or runs_no_command(words):
            return
        self.is_too_much |= len(words) > MOST_WORDS
        name = get_program_name(words)
        for at in range(1, min(len(words), MOST_WORDS)):
            self.add(words[at:])
            if words[at].startswith("{"):
                self.add((*filter(None, re.split("[{},]", words[at])), *words[at + 1 :]))
            option, sign, value = words[at].partition("=")
            self.add_pieces(words, at)
            if option[:2] in _JOINED.get(name, _JOINED[""]) and len(option) > 2:
                self.add((words[at].lstrip("-")[1:].lstrip("T"), *words[at + 1 :]))
            if name == "sed":
                self.add_sed_commands(words[at])
            if SHELL_TEXT.search(words[at]):
                self.add_text(words[at], depth)
                if sign:
                    self.add_text(value, depth)

    def add_pieces(self, words: Words, at: int) -> None:
        """Add the commands that start after a separator in a word: `a` in `EXEC:a`, `--action=exec=a` and `x,a`."""
        if "," in words[at]:
            self.add((words[at].partition(",")[0], *words[at + 1 :]))
        marks = [mark.end() for mark in _SEPARATOR.finditer(words[at])]
        for end in dict.fromkeys((*marks[:MOST_MARKS], *marks[-MOST_MARKS:])):
            self.add((*re.sub("[,\"']", " ", words[at][end:]).split(), *words[at + 1 :]))

    def add_sed_commands(self, script: str) -> None:
        """Add the commands that a sed script may run and the files that it may use. They follow a letter."""
        for found in islice(re.finditer("[erRwW] *(?=[^ ])", script[:LONGEST_OPTION]), MOST_LETTERS):
            self.add(tuple(script[found.end() :].split()))

    def add_value(self, value: str) -> None:
        """Add the commands in the value of a variable: `$x` or a program such as `GIT_PAGER` may run them."""
        if SHELL_TEXT.search(value):
            self.add_text(value, 0)
        elif value:
            self.add((value,))

    def add_printed(self, command: ShellCommand) -> None:
        """Add what `echo` and `printf` print as a command, if it goes to another program."""
        if _PIPE.search(command.text) and not all(map(runs_no_command, command.simple)):
            for words in command.simple:
                if get_program_name(words) in ("echo", "printf") and len(words) > 1:
                    self.add(words[1:])
                    self.add(words[2:])

    def add_computed_names(self, words: Words, text: str) -> None:
        """Add what a name that the shell computes may be: `r$@m` and `${x:-rm}` are `rm`, and `$x` is any word."""
        if _GLOB.search(words[0]):
            self.is_too_much = True
        if "$" not in words[0] and "`" not in words[0]:
            return
        filled = _EXPANSION.sub(lambda found: found["default"] or "", words[0])
        self.add((*filled.split(), *words[1:]))
        if not (name := _EXPANSION.sub("", words[0])):
            pieces = _WORD_END.split(text, maxsplit=MOST_PIECES)
            self.is_too_much |= len(pieces) > MOST_PIECES
            for at in range(len(pieces)):
                self.add(tuple(pieces[at : at + MOST_LETTERS]))
        self.add((name, *words[1:]))

    def add_text(self, text: str, depth: int) -> None:
        """Add every command that a string would run in a shell."""
        self.texts += 1
        if depth >= DEEPEST or self.texts > MOST_TEXTS or len(text) > LONGEST:
            self.is_too_much = True
            return
        parsed = parse_command(text)
        for words in parsed.candidates:
            self.add(words)
        # In code of another language, a command is a string: `os.system("rm x")`.
        for piece in _STRING_END.split(text, maxsplit=MOST_PIECES):
            if words := tuple(piece.split()):
                self.add(words[:MOST_WORDS])
        for words in (*parsed.simple, *parsed.nested):
            # In an option such as `-crm x`, the command begins after some letters.
            first = words[0] if words[0].startswith("-") else ""
            for letters in range(2, min(len(first), MOST_LETTERS)):
                self.add((first[letters:], *words[1:]))
            if not parsed.unread:
                self.add_command(words, depth + 1)


def _expand_braces(words: Words) -> Words | None:
    """Return the words after the shell's brace expansion: `r{m,} x` is `rm r x`. Quotes are not considered.

    Return None if there are too many. Data such as JSON is returned unchanged.
    """
    expanded: list[str] = []
    room = MOST_EXPANDED
    for word in words:
        is_data = word.count('"') > MOST_MARKS
        if "{" not in word or is_data or ("," not in word and ".." not in word):
            expanded.append(word)
            continue
        waiting = [word]
        while waiting:
            piece = waiting.pop()
            found = _BRACES.search(piece)
            if found is None:
                expanded += [piece] if piece else []
                continue
            choices = found["list"].split(",") if found["list"] is not None else _list_letters(found)
            room -= len(choices) * (len(piece) + 10)
            if room < 0:
                return None
            waiting += [piece[: found.start()] + choice + piece[found.end() :] for choice in reversed(choices)]
    return tuple(expanded)


def _list_letters(found: re.Match[str]) -> list[str]:
    first, last = ord(found["first"]), ord(found["last"])
    return [chr(code) for code in range(min(first, last), max(first, last) + 1)]


MOST_EXPANDED = 20_000
_BRACES = re.compile(r"\{(?:(?P<list>[^{},]*,[^{}]*)|(?P<first>\w)\.\.(?P<last>\w)(?:\.\.-?\d+)?)\}", re.ASCII)
_THIS_FOLDER = re.compile(r"(?:\$(?:OLD)?PWD|\$\{(?:OLD)?PWD\}|~[+-]|/proc/(?:self|\$\$|\d{1,9})/cwd)/+")
_EXPANSION = re.compile(
    r"\$\{[^}:=+-]*(?::?[-=+](?P<default>[^}]*))?[^}]*\}|\$\([^)]*\)|`[^`]*`|\$(?:[A-Za-z_]\w*|[0-9@*#?$!-])"
)
_GLOB = re.compile(r"[*?]|\[[^][]++\]")
_PASSING = re.compile(r"\$\(|`|\$\{?_\b|!\$")
"""Substitutions, and `$_`, pass words on to other commands: `cat $(echo FILE)`."""
_WORD_END = re.compile(r"[\s\"'`();|&!=\n{}\[\]<>$]+")
_PIPE = re.compile(r"(?<!\|)\|(?!\|)|<\(")


@lru_cache(maxsize=256)
def find_possible_commands(command: ShellCommand) -> PossibleCommands:
    """Return the commands that a command may run, and the paths that it may use, for deny and ask rules."""
    search = _Search()
    if not command.unread:
        for words in dict.fromkeys((*command.simple, *command.nested)):
            search.add_command(words, 0)
            search.add_computed_names(words, command.text)
            expanded = _expand_braces(words)
            if expanded is None:
                search.is_too_much = True
            elif expanded != words:
                search.add(expanded)
                search.add_command(expanded, 0)
        for value in command.values:
            search.add_value(value)
        search.add_printed(command)
    commands = tuple(words for words in search.commands if words and words[0])
    names = list(map(get_program_name, commands))
    pairs = list(zip(commands, names, strict=True))
    others = [(words, get_program_name(words)) for words in command.candidates]
    is_passed_on = _PASSING.search(command.text) is not None
    opening = (words for words, name in (*others, *pairs) if is_passed_on or name not in PATHLESS)
    used = tuple(dict.fromkeys(word for words in opening for word in words[1:]))
    mentioned = [*find_mentioned_paths(("", *used), ""), *chain.from_iterable(map(_split_word, used))]
    mentioned += [words[0] for words in commands]  # a string in code may be a path: `open("a.txt")`
    mentions = tuple(dict.fromkeys(mentioned))
    writes = tuple(dict.fromkeys(path for words, name in pairs for path in find_changed_paths(words, name)))
    room = MOST_PATHS // (1 + len(command.folders))
    return PossibleCommands(
        match_texts=tuple(dict.fromkeys(list_match_texts(commands, names))),
        mentions=mentions[:room],
        writes=writes[:room],
        is_too_much=search.is_too_much or max(len(mentions), len(writes)) > room,
    )


@lru_cache(maxsize=4096)
def _split_word(word: str) -> tuple[str, ...]:
    """Return the parts of a word that may be paths: after a separator, or after the letters of joined short options.

    `-nfsecret.txt` can be the options `-n` and `-f` with the value `secret.txt`.
    """
    return tuple(_iter_parts(word))


def _iter_parts(word: str) -> Iterator[str]:
    if word.startswith("-") and not word.startswith("--"):
        # Letters can be repeated any number of times, so a long option is cut at its end, too.
        starts = range(2, len(word)) if len(word) <= LONGEST_OPTION else range(len(word) - LONGEST_OPTION, len(word))
        yield from (word[at:] for at in starts)
    if word.startswith(("$", "~", "/proc/")) and (folder := _THIS_FOLDER.match(word)):
        word = word[folder.end() :]
        yield word
    if len(word) <= LONGEST:
        yield from (piece for piece in re.split("[=:,@]", word, maxsplit=64) if piece not in ("", word))
        if "://" in word:
            yield word.partition("://")[2]
