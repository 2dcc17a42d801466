"""Check the words of a command against the tables of safe options.

If the table of a known program does not list a word, the word is a *risk*: a rule covers it only if the rule contains
the word itself, and not if a wildcard matches it. For programs without a table, `shell_program` checks only the paths
among their words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Literal, NamedTuple

from .operand_kinds import PATH_KINDS, is_harmless_word
from .safe_options import ALIASES, SAFE

Words = tuple[str, ...]


def split_names(text: str) -> frozenset[str]:
    """Return the names in a space-separated list."""
    return frozenset(text.split())


class Risk(NamedTuple):
    """A risky word in a command, which a wildcard in a rule never allows, with its position and the reason.

    There are three kinds. A `deed` word can make the command do something that is not known to be harmless. An
    `outside` word can be a path outside the checkout. A `guarded` word can be a path that is protected or may contain
    secrets. A rule that contains the word itself can allow a word of the first two kinds. No rule can allow a `guarded`
    word. `path` is the path in an `outside` or `guarded` word.
    """

    place: int
    why: str
    kind: Literal["deed", "outside", "guarded"] = "deed"
    path: str = ""


class JudgedWords:
    """A command's risks, its possible paths with their positions, and whether the command is known to be read-only."""

    __slots__ = ("is_reading", "paths", "risks")

    def __init__(self) -> None:
        self.risks: list[Risk] = []
        self.paths: list[tuple[int, str]] = []
        self.is_reading = False


def is_known_program(name: str) -> bool:
    """Return whether there is a table of safe options for this program."""
    return ALIASES.get(name, name) in SAFE


@lru_cache(maxsize=1024)
def judge_words(words: Words, name: str) -> JudgedWords:
    """Check the words of a command against the table of safe options of its program, `name`."""
    key = ALIASES.get(name, name)
    if key == "sqlite3" and ("-safe" in words or "--safe" in words):
        key = "sqlite3-safe"
    judged = JudgedWords()
    if key == "tar" and len(words) > 1 and not words[1].startswith("-"):
        _judge_bundled_letters(words, judged)
    else:
        _judge_by_table(words, 1, key, judged)
    return judged


# Tables ----------------------------------------------------------------------------------------------


class SafeUse(NamedTuple):
    """A compiled entry of the table `SAFE`: the harmless options and operands of one program or subcommand."""

    flags: frozenset[str]
    prefixes: tuple[str, ...]
    values: dict[str, str]
    optional: dict[str, str]
    operands: tuple[str, ...]
    is_repeated: bool
    takes_command: bool
    is_reading: bool
    is_spelled: bool
    is_single_dash: bool
    is_options_first: bool
    is_options_before: bool
    has_values_apart: bool
    needs: frozenset[str]
    needed_operands: int
    operands_with: frozenset[str]

    def get_operand_kind(self, number: int) -> str | None:
        """Return the kind of operand `number`, counted from 0, or None if the entry allows fewer operands."""
        if number < len(self.operands):
            return self.operands[number]
        return self.operands[-1] if self.is_repeated and self.operands else None


@cache
def compile_use(key: str) -> SafeUse:
    """Compile the table entry with this key."""
    text = SAFE[key]
    if text.startswith("@"):
        return compile_use(text[1:])
    tokens = text.split()
    is_single_dash = "single-dash" in tokens
    flags: set[str] = set()
    values: dict[str, str] = {}
    optional: dict[str, str] = {}
    for token in tokens:
        if not token.startswith("-"):
            continue
        name, sign, kind = token.rstrip("]").partition("=")
        if sign and name.endswith("["):
            optional[name[:-1]] = kind
        elif sign:
            values[name] = kind
        elif token.startswith("--") or is_single_dash or token == "-NUM":
            flags.add(token)
        else:
            flags.update(f"-{letter}" for letter in token[1:])
    operands = [token for token in tokens if token.startswith("<") and token != "<command>"]
    return SafeUse(
        flags=frozenset(flag for flag in flags if not flag.endswith("*")),
        prefixes=tuple(flag[:-1] for flag in flags if flag.endswith("*")),
        values=values,
        optional=optional,
        operands=tuple(token.strip("<>.") for token in operands),
        is_repeated=bool(operands) and operands[-1].endswith("..."),
        takes_command="<command>" in tokens,
        is_reading="reads" in tokens,
        is_spelled="spelled" in tokens,
        is_single_dash=is_single_dash,
        is_options_first="options-first" in tokens,
        is_options_before="options-before" in tokens,
        has_values_apart="values-apart" in tokens,
        needs=_list_after(tokens, "needs:"),
        needed_operands=int(next(iter(_list_after(tokens, "operands-required:")), "0")),
        operands_with=_list_after(tokens, "operands-with:"),
    )


def _list_after(tokens: Sequence[str], mark: str) -> frozenset[str]:
    found = next((token for token in tokens if token.startswith(mark)), mark)
    return frozenset(name for name in found.removeprefix(mark).split(",") if name)


# Words -----------------------------------------------------------------------------------------------


class _Reading:
    """State that is kept while a command is checked against a table entry."""

    __slots__ = ("given_at", "judged", "key", "operands", "seen", "use", "words")

    def __init__(self, words: Words, key: str, use: SafeUse, judged: JudgedWords) -> None:
        self.words = words
        self.key = key
        self.use = use
        self.judged = judged
        self.seen: set[str] = set()
        self.given_at: dict[str, int] = {}
        self.operands: list[int] = []

    def add_risk(self, place: int, why: str) -> None:
        """Record a word that the table does not list. The word is still checked as a path."""
        self.judged.risks.append(Risk(place, why))
        if place < len(self.words):
            self.judged.paths.append((place, self.words[place]))

    def take_value(self, place: int, option: str, kind: str, value: str) -> None:
        """Check the value of an option."""
        self.seen.add(option)
        self.given_at.setdefault(kind.removesuffix("-file"), place)
        if not is_harmless_word(kind, value):
            self.add_risk(place, f"{self.key} with {option} {value} may be harmful, so a rule must allow it explicitly")
        elif kind in PATH_KINDS:
            self.judged.paths.append((place, value))

    def take_next_value(self, at: int, option: str, kind: str) -> int:
        """Check the option's value, which follows position `at`. Return the position of the option's last word."""
        value = self.words[at + 1] if at + 1 < len(self.words) else ""
        if at + 1 >= len(self.words) or (value.startswith("-") and value != "-" and not _NEGATIVE.fullmatch(value)):
            self.add_risk(at, f"{option} needs a value")
            return at
        self.take_value(at + 1, option, kind, value)
        return at + 1


_NEGATIVE = re.compile(r"-\d+[A-Za-z]*")


def _judge_by_table(words: Words, start: int, key: str, judged: JudgedWords) -> None:
    """Check `words[start:]` against one entry of the table and the entries of its subcommands."""
    reading = _Reading(words, key, compile_use(key), judged)
    use, at = reading.use, start
    if use.operands[:1] == ("anything",):
        at = len(words)
    while at < len(words):
        word = words[at]
        if word == "--":
            at = _judge_after_dashes(reading, at)
            continue
        if word.startswith("-") and word != "-":
            if use.is_options_before and reading.operands:
                reading.add_risk(at, f"{key} may write to {word}")
            option_at, at = at, _judge_option(reading, at)
            if use.is_options_first and reading.operands and at > option_at:
                judged.paths.append((at, words[at]))
        elif use.takes_command:
            _judge_subcommand(reading, at)
            return
        else:
            reading.operands.append(at)
        at += 1
    _judge_operands(reading)
    if use.is_spelled:
        judged.risks.append(Risk(start - 1, f"{key} is not read-only, so a rule must name it explicitly"))
    if use.needs and not use.needs & reading.seen:
        judged.risks.append(Risk(len(words), f"{key} is harmless only with {' or '.join(sorted(use.needs))}"))
    if len(reading.operands) < use.needed_operands and "-version" not in reading.seen:
        missing = (
            "without an argument" if use.needed_operands == 1 else f"with fewer than {use.needed_operands} arguments"
        )
        judged.risks.append(Risk(len(words), f"{key} {missing} is not known to be harmless"))
    judged.is_reading = use.is_reading


def _judge_after_dashes(reading: _Reading, at: int) -> int:
    """Check `--` and the words after it, and return the end position.

    If the words after `--` have an entry in the table, such as `cargo test --`, they are checked against that entry.
    Otherwise, they count as operands if the command's own entry allows `--`, and as risks if it does not.
    """
    words, passed_on = reading.words, f"{reading.key} --"
    if passed_on in SAFE:
        _judge_by_table(words, at + 1, passed_on, reading.judged)
    elif "--" in reading.use.flags:
        reading.operands.extend(range(at + 1, len(words)))
    else:
        for place in range(at, len(words)):
            reading.add_risk(place, f"{reading.key} passes on the arguments after --")
    return len(words)


def _judge_subcommand(reading: _Reading, at: int) -> None:
    words, key = reading.words, f"{reading.key} {reading.words[at]}"
    key = ALIASES.get(key, key)
    if key in SAFE:
        _judge_by_table(words, at + 1, key, reading.judged)
        return
    reading.add_risk(at, f"{key} needs a rule of its own")
    for place in range(at + 1, len(words)):
        reading.add_risk(place, f"{key} with {words[place]} is not known to be harmless")


def _judge_option(reading: _Reading, at: int) -> int:
    """Check the option at this position. Return the position of the last word that belongs to it."""
    word, use = reading.words[at], reading.use
    if word.startswith("--") or use.is_single_dash:
        return _judge_long_option(reading, at, re.sub(r"^--(?=.)", "-", word) if use.is_single_dash else word)
    if "-NUM" in use.flags and word[1:].isdigit():
        return at
    for place, letter in enumerate(word[1:], 2):
        option, rest = f"-{letter}", word[place:]
        if option in use.flags:
            reading.seen.add(option)
        elif option in use.optional:
            if rest:
                reading.take_value(at, option, use.optional[option], rest)
            return at
        elif option in use.values:
            if not rest:
                return reading.take_next_value(at, option, use.values[option])
            if use.has_values_apart and not rest.isdigit():
                reading.add_risk(at, f"{rest} in {word} may be more options of {reading.key}")
            reading.take_value(at, option, use.values[option], rest)
            return at
        else:
            reading.add_risk(at, f"{reading.key} with {option} is not known to be harmless")
            return at
    return at


def _judge_long_option(reading: _Reading, at: int, word: str) -> int:
    use = reading.use
    option, sign, value = word.partition("=")
    kind = use.values.get(option) or use.optional.get(option)
    if sign and kind is not None:
        reading.take_value(at, option, kind, value)
    elif not sign and (option in use.flags or option in use.optional or option.startswith(use.prefixes or ("\0",))):
        reading.seen.add(option)
    elif not sign and kind is not None:
        return reading.take_next_value(at, option, kind)
    else:
        reading.add_risk(at, f"{reading.key} with {option} is not known to be harmless")
    return at


def _judge_operands(reading: _Reading) -> None:
    """Check the operands. The options must be checked first, because an option can contain the pattern or script."""
    use, words, judged = reading.use, reading.words, reading.judged
    given_at = reading.given_at.get(use.operands[0], 0) if use.operands[:1] in (("pattern",), ("sed",)) else 0
    first = 1 if given_at or "--files" in reading.seen else 0
    for number, at in enumerate(reading.operands, first):
        kind = use.get_operand_kind(number)
        if at < given_at and not is_harmless_word(use.operands[0], words[at]):
            # Some versions stop reading options at the first operand, which is then the script.
            reading.add_risk(at, f"{reading.key} with {words[at]} before the script is not known to be harmless")
        if kind is None or (use.operands_with and not use.operands_with & reading.seen):
            reading.add_risk(at, f"{reading.key} with {words[at]} is not known to be harmless")
        elif not is_harmless_word(kind, words[at]):
            reading.add_risk(at, f"{reading.key} with {words[at]} may be harmful, so a rule must allow it explicitly")
        elif kind in PATH_KINDS:
            judged.paths.append((at, words[at]))


def _judge_bundled_letters(words: Words, judged: JudgedWords) -> None:
    """Check a tar command in the old form, with its options as letters without a dash: `tar tzf FILE`."""
    reading = _Reading(words, "tar", compile_use("tar"), judged)
    if not re.fullmatch(r"[tvzjJa]*+f?[vzjJa]*", words[1]) or "t" not in words[1]:
        reading.add_risk(1, f"tar with {words[1]} does more than list an archive")
    _judge_by_table(words, 2, "tar", judged)
