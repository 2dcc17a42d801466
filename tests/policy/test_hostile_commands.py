"""Known programs: what a rule with a wildcard covers, and what it never covers."""

from __future__ import annotations

import random
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from podium.policy import Rules, check, generalised
from podium.policy.command_words import compile_use
from podium.policy.operand_kinds import is_harmless_word
from podium.policy.safe_options import ALIASES, SAFE

from .command_corpus import EVERYDAY, HOSTILE, RULES

COMMANDS = [command for commands in HOSTILE.values() for command in commands]
MORE = Path(__file__).with_name("hostile_commands.txt").read_text().splitlines()
"""One hostile command on each line, for the less obvious options."""
WIDE = Rules(allow=RULES)


@pytest.mark.parametrize("program", HOSTILE)
def test_no_hostile_use_of_a_program_is_allowed_by_the_rules_people_have(program: str) -> None:
    allowed = [command for command in HOSTILE[program] if check(command, WIDE).decision == "allow"]

    assert allowed == []


def test_no_less_obvious_hostile_command_is_allowed_by_the_rules_people_have() -> None:
    assert [command for command in MORE if check(command, WIDE).decision == "allow"] == []


def test_no_hostile_command_is_allowed_by_a_rule_for_every_command() -> None:
    assert [command for command in COMMANDS if check(command, {"allow": ["Bash"]}).decision == "allow"] == []


def test_no_hostile_command_is_allowed_without_a_rule() -> None:
    assert [command for command in COMMANDS if check(command, {}).decision == "allow"] == []


def test_no_hostile_command_is_offered_as_a_rule_with_a_wildcard() -> None:
    offered = [rule for command in COMMANDS if (rule := generalised(command)) is not None and rule.endswith("*)")]

    assert offered == []


def test_everyday_commands_do_not_ask_under_the_rules_people_have() -> None:
    asked = [command for command in EVERYDAY if check(command, WIDE).decision != "allow"]

    assert asked == []


def test_the_corpora_cover_many_programs() -> None:
    assert len(set(COMMANDS)) >= 200
    assert len(HOSTILE) >= 30
    assert len(set(MORE)) >= 500
    assert len(set(EVERYDAY)) >= 100


# Variants

Words = list[str]


def quote_some_words(words: Words, chance: random.Random) -> str:
    """Write some words in quotes that the shell removes."""
    return " ".join(
        f'"{word}"' if chance.random() < 0.5 and not re.search(r'["$`\\!]', word) else shlex.quote(word)
        for word in words
    )


def split_a_word_by_quotes(words: Words, chance: random.Random) -> str:
    """Write a word in two pieces, the second in quotes."""
    place = chance.randrange(len(words))
    word = words[place]
    cut = len(word) // 2
    pieces = [shlex.quote(one) for one in words]
    pieces[place] = f"{shlex.quote(word[:cut])}{shlex.quote(word[cut:])}" if cut else pieces[place]
    return " ".join(pieces)


def escape_a_letter(words: Words, chance: random.Random) -> str:
    place = chance.randrange(len(words))
    pieces = [shlex.quote(one) for one in words]
    if words[place].isalnum():
        pieces[place] = f"{words[place][0]}\\{words[place][1:]}" if len(words[place]) > 1 else f"\\{words[place]}"
    return " ".join(pieces)


def join_option_and_value(words: Words, chance: random.Random) -> str:
    """Write `--option value` as `--option=value`, and `-o value` as `-ovalue`."""
    pieces = list(words)
    for place in range(len(pieces) - 1):
        if pieces[place].startswith("-") and not pieces[place + 1].startswith("-") and "=" not in pieces[place]:
            joint = "=" if pieces[place].startswith("--") else ""
            pieces[place : place + 2] = [f"{pieces[place]}{joint}{pieces[place + 1]}"]
            break
    return shlex.join(pieces)


def split_option_and_value(words: Words, chance: random.Random) -> str:
    """Write `--option=value` as `--option value`."""
    pieces: Words = []
    for word in words:
        pieces += word.split("=", 1) if word.startswith("--") and "=" in word else [word]
    return shlex.join(pieces)


def double_the_dash(words: Words, chance: random.Random) -> str:
    return shlex.join([f"-{word}" if re.fullmatch(r"-\w{2,}.*", word) else word for word in words])


def plain(words: Words) -> str:
    return shlex.join(words)


VARIANTS: list[Callable[[Words, random.Random], str]] = [
    quote_some_words,
    split_a_word_by_quotes,
    escape_a_letter,
    join_option_and_value,
    split_option_and_value,
    double_the_dash,
    lambda words, chance: "  ".join(map(shlex.quote, words)) + " ",
    lambda words, chance: f"cd src && {plain(words)}",
    lambda words, chance: f"cd src; {plain(words)}",
    lambda words, chance: f"A=1 {plain(words)}",
    lambda words, chance: f"env A=1 {plain(words)}",
    lambda words, chance: f"ls && {plain(words)}",
    lambda words, chance: f"{plain(words)} | head",
    lambda words, chance: f"git status || {plain(words)}",
    lambda words, chance: f"{plain(words)} --",
    lambda words, chance: f"{plain(words)} -- x",
    lambda words, chance: f"timeout 60 {plain(words)}",
    lambda words, chance: f"command {plain(words)}",
    lambda words, chance: f"/usr/bin/{plain(words)}",
    lambda words, chance: plain([*words, words[-1]]),
]


def make_variants(seed: int) -> Iterator[str]:
    chance = random.Random(seed)
    for command in COMMANDS:
        for variant in VARIANTS:
            yield variant(shlex.split(command), chance)


def test_no_variant_of_a_hostile_command_is_allowed() -> None:
    variants = set(make_variants(7))

    allowed = [command for command in variants if check(command, WIDE).decision == "allow"]

    assert len(variants) >= 2_000
    assert allowed == []


def test_a_variant_of_an_everyday_command_with_other_quotes_and_spaces_does_not_ask() -> None:
    chance = random.Random(7)
    plain_ones = [command for command in EVERYDAY if not re.search(r"[|&;]", command)]
    variants = [quote_some_words(shlex.split(command), chance) for command in plain_ones]

    assert [command for command in variants if check(command, WIDE).decision != "allow"] == []


# Without a rule

READING = """
git status|git diff|git diff --stat|git log --oneline -5|git show HEAD|git branch -a|git blame a.py|ls|ls -la src|
cat README.md|head -5 a.py|tail -n 3 a.py|wc -l a.py|grep -rn x src|rg x|rg -n --type py x|find . -name '*.py'|
sed -n 1,9p a.py|sort a.txt|cut -f1 a.txt|stat a.py|tree -L 2|echo done|pwd|date +%F|jq .a a.json|diff a b|
git log | head|ls && git status|cd src && cat a.py|cat a.txt | sort | uniq -c
"""


@pytest.mark.parametrize("command", READING.replace(" | ", " \0 ").replace("\n", "").split("|"))
def test_a_command_that_only_reads_the_checkout_needs_no_rule(command: str) -> None:
    command = command.replace("\0", "|")

    assert check(command, {}).decision == "allow"
    assert check(command, {}, "plan").decision == "allow"
    assert check(command, {"ask": ["Bash"]}).decision == "ask"
    assert check(command, {"deny": ["Bash"]}).decision == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "cat .env",
        "cat /etc/passwd",
        "cat ~/x",
        "cat ../x",
        "git add a",
        "git commit -m x",
        "ls; make",
        "cat a > b",
        "find . -delete",
        "sed -i p a",
        "git show :.env",
        "ls *",
        "./ls",
        "cd .. && ls",
        "cd && ls",
        "cd - && ls",
        "cd '' && ls",
        "cd .aws && cat config",
        "cd .docker && cat config.json",
        "tee a",
        "sleep 5",
        "pytest",
        "env",
        "printenv",
        "ps aux",
    ],
)
def test_a_command_that_does_more_than_read_the_checkout_asks_without_a_rule(command: str) -> None:
    assert check(command, {}).decision == "ask"


# Folders


@pytest.mark.parametrize(
    "command",
    [
        "cd secret && cat a.txt",
        "cd secret; cat a.txt",
        "cd ./secret && cat ./a.txt",
        "cd src && cd ../secret && cat a.txt",
        "cd src && cat ../secret/a.txt",
        "cat src/../secret/a.txt",
        "pushd secret && cat a.txt",
        "(cd secret && cat a.txt)",
        "bash -c 'cd secret && cat a.txt'",
        "cd secret && cd deep && grep x a.txt",
    ],
)
def test_a_rule_about_a_path_holds_after_the_folder_was_changed(command: str) -> None:
    assert check(command, {"allow": ["Bash"], "deny": ["Read(/secret/**)"]}).decision == "deny"
    assert check(command, {"allow": ["Bash"], "ask": ["Read(/secret/**)"]}, "bypass").decision == "ask"


def test_a_rule_about_changes_holds_after_the_folder_was_changed() -> None:
    rules = {"allow": ["Bash"], "deny": ["Edit(/src/**)"]}

    assert check("cd src && rm a.py", rules).decision == "deny"
    assert check("cd src && echo x > a.py", rules).decision == "deny"
    assert check("cd docs && rm a.md", rules).decision == "allow"


def test_a_command_that_enters_too_many_folders_is_asked_about() -> None:
    command = " && ".join(f"cd a{number}" for number in range(20)) + " && cat x"

    assert check(command, {"allow": ["Bash"]}, "bypass").decision == "ask"


# Programs without a table


def test_a_wildcard_for_an_unknown_program_is_the_persons_decision() -> None:
    assert check("mytool --any -x y", {"allow": ["Bash(mytool *)"]}).decision == "allow"
    assert check("mytool /etc/passwd", {"allow": ["Bash(mytool *)"]}).decision == "ask"
    assert check("mytool .env", {"allow": ["Bash(mytool *)"]}).decision == "ask"


def test_no_wildcard_is_offered_for_an_unknown_program() -> None:
    assert generalised("mytool --any x") == "Bash(mytool --any x)"


def test_a_rule_that_spells_out_an_unlisted_option_allows_it() -> None:
    assert check("ruff check --fix src", {"allow": ["Bash(ruff check --fix *)"]}).decision == "allow"
    assert check("tar xzf a.tgz", {"allow": ["Bash(tar xzf *)"]}).decision == "allow"
    assert check("tar xzf a.tgz --to-command=x", {"allow": ["Bash(tar xzf *)"]}).decision == "ask"
    assert check("make CC=gcc", {"allow": ["Bash(make CC=gcc)"]}).decision == "allow"
    assert check("git fetch --prune origin", {"allow": ["Bash(git fetch *)"]}).decision == "allow"
    assert check("git fetch origin", {"allow": ["Bash(git *)"]}).decision == "ask"


# The tables themselves


def test_every_entry_of_the_tables_names_known_kinds_and_parents() -> None:
    for key in SAFE:
        use = compile_use(key)
        for kind in (*use.values.values(), *use.optional.values(), *use.operands):
            is_harmless_word(kind, "x")
        parent = key.removesuffix(" --").rpartition(" ")[0]
        assert not parent or key.endswith(" --") or compile_use(parent).takes_command, key
    assert set(ALIASES.values()) <= SAFE.keys()
