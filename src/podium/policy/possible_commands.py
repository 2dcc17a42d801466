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

from .command_words import Words
from .inert_commands import find_plain_inner_start, runs_no_command
from .shell_command import LONGEST, MOST_WORDS, ShellCommand, list_match_texts, parse_command
from .shell_program import PATHLESS, find_changed_paths, find_mentioned_paths, get_program_name

MOST_COMMANDS = 1_500
MOST_WORDS_IN_ALL = 100_000
MOST_TEXTS = 60
DEEPEST = 4
LONGEST_OPTION = 200
MOST_LETTERS = 12
MOST_PIECES = 200
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
            words = words[start:]
        if self.is_too_much or runs_no_command(words):
            return
        self.is_too_much |= len(words) > MOST_WORDS
        for at in range(1, min(len(words), MOST_WORDS)):
            self.add(words[at:])
            if words[at].startswith("{"):
                self.add((*filter(None, re.split("[{},]", words[at])), *words[at + 1 :]))
            option, sign, value = words[at].partition("=")
            if sign and value:
                self.add((value, *words[at + 1 :]))
            if option[:2] in ("-c", "-x", "-X", "-e") and len(option) > 2:
                self.add((words[at][2:], *words[at + 1 :]))
            if SHELL_TEXT.search(words[at]):
                self.add_text(words[at], depth)
                if sign:
                    self.add_text(value, depth)

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


@lru_cache(maxsize=256)
def find_possible_commands(command: ShellCommand) -> PossibleCommands:
    """Return the commands that a command may run, and the paths that it may use, for deny and ask rules."""
    search = _Search()
    if not command.unread:
        for words in dict.fromkeys((*command.simple, *command.nested)):
            search.add_command(words, 0)
    commands = tuple(words for words in search.commands if words and words[0])
    names = list(map(get_program_name, commands))
    pairs = list(zip(commands, names, strict=True))
    mentioned = [path for words, name in pairs for path in find_mentioned_paths(words, name)]
    for words in (*command.candidates, *commands):
        if get_program_name(words) not in PATHLESS:
            mentioned += [path for word in words[1:] for path in _split_word(word)]
    return PossibleCommands(
        match_texts=tuple(dict.fromkeys(list_match_texts(commands, names))),
        mentions=tuple(dict.fromkeys(mentioned)),
        writes=tuple(path for words, name in pairs for path in find_changed_paths(words, name)),
        is_too_much=search.is_too_much,
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
    if len(word) <= LONGEST:
        yield from (piece for piece in re.split("[=:,@]", word, maxsplit=64)[1:] if piece)
