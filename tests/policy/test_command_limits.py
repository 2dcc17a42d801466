"""Commands that are too long, too wide or too deep: the person is asked at once, and checking them never hangs."""

from __future__ import annotations

import random
import time

import pytest

from podium.policy import Rules, check
from podium.policy.command_limits import READABLE, find_parse_objection

RULES = Rules(allow=("Bash(ls *)", "Bash"), deny=("Bash(rm *)", "Read(/secret/**)"), ask=("Bash(git push *)",))

LONGEST_CHECK = 0.05
"""Seconds of processor time that any accepted or refused command may take."""


def measure(command: str) -> float:
    """Return the least processor time of three checks, each as if the command were new."""
    times = []
    for number in range(3):
        began = time.process_time()
        check(f"{command}{' ' * number}", RULES)
        times.append(time.process_time() - began)
    return min(times)


@pytest.mark.parametrize(
    "command",
    [
        "$(" * 33_000,
        "$(" * 33_000 + ")" * 33_000,
        "echo " + "$(" * 51 + "id" + ")" * 51,
        "(" * 60 + "ls" + ")" * 60,
        "{ " * 60 + "ls" + "; }" * 60,
        "`" * 5_000,
        "a|" * 5_000,
        "$[" * 5_000,
        "<<a " * 5_000,
        "env ../ )" * 4_000,
        "case a in a) " * 2_000,
        "ls " + "x " * 40_000,
        "x" * 5_000_000,
        "# <<'A'\n" + ")" * 50_000 + "\nA\n",
        "bash -c '" + "$(" * 5_000 + "'",
        "cd " + " ".join(f"a{number}" for number in range(18)),
        "a@" * 5_000,
        "zzz " + "ab@" * 3_000,
        "zzz '" + "\0" * 9_000 + "'",
    ],
    ids=lambda command: f"{command[:12]!r} {len(command)}",
)
@pytest.mark.parametrize("mode", ["default", "bypass"])
def test_a_command_that_is_too_large_for_the_parser_is_asked_about_at_once(command: str, mode: str) -> None:
    assert measure(command) < LONGEST_CHECK
    assert check(command, RULES, mode).decision != "allow"  # type: ignore[arg-type]  # a mode by name


def test_the_reason_says_what_is_too_large() -> None:
    assert "nested more than 50 levels deep" in check("(" * 60 + "ls" + ")" * 60, {}).reason
    assert "too many operators" in check("a|" * 500, {}).reason
    assert "100000 can be checked" in check("x" * 100_001, {}).reason
    assert "more than 2000 words" in check("ls" + " x" * 3_000, {}).reason


FRAGMENTS = [
    "$(",
    ")",
    "( ",
    "`",
    "{ ",
    "; }",
    '"$(',
    ')"',
    "${a:-",
    "}",
    "$((",
    "))",
    "if a; then ",
    "; fi",
    "<(",
    "[[ ",
    " ]]",
    "case a in a) ",
    ";; esac",
    "<<a ",
    ";",
    "a;",
    "x",
    "a ",
    "'",
    '"',
    "\\",
    "for a in b; do ",
    "; done",
    "f() { ",
    "a=( ",
    "a&&",
    "! ",
    "{a,",
    "$",
    "<a ",
    ">a ",
    "[",
    "*",
    "a=1 ",
    "~",
    "a\n",
    "((",
    "$[",
    "]",
    "#\n",
    "=~",
    "${",
    "env ",
    "sudo ",
    "bash -c ",
    "find . ",
    "xargs ",
    "cd a; ",
    "a=b:c@d ",
    "-x ",
    "../ ",
    "eval 'a b' ",
    "git -c x=!a ",
    "a|",
]


def repeat_until_refused(unit: str) -> str:
    """Return the longest repetition of a text that still reaches the parser."""
    low, high = 1, READABLE // len(unit)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (low, middle - 1) if find_parse_objection(unit * middle) else (middle, high)
    return unit * low


def test_the_slowest_accepted_commands_are_checked_in_a_fraction_of_a_second() -> None:
    chance = random.Random(3)
    units = [*FRAGMENTS, *("".join(chance.choices(FRAGMENTS, k=chance.randint(2, 6))) for _ in range(60))]

    times = {unit: measure(repeat_until_refused(unit)) for unit in units}

    slow = {unit: seconds for unit, seconds in times.items() if seconds >= LONGEST_CHECK}
    assert slow == {}


def test_many_words_in_many_folders_are_checked_in_a_fraction_of_a_second() -> None:
    words = " ".join(f"-{'n' * 30}{number}:a{number},b{number}" for number in range(190))

    assert measure(f"cd a; cd b; cd c; cd d; zzz {words}") < 4 * LONGEST_CHECK
    assert measure(f"cd a b c d; cat {words}") < 4 * LONGEST_CHECK
    assert measure(f"cd a b c d; cat {' '.join(f'{number}:x{number}:' for number in range(900))}") < 4 * LONGEST_CHECK
    assert measure("zzz " + "{a,b}" * 1_500) < LONGEST_CHECK
    assert measure("zzz " + "{a..z}{a..z} " * 500) < LONGEST_CHECK
    assert measure("zzz '" + "{a..z}" * 400) < LONGEST_CHECK
    assert measure("zzz '" + "{a..z}" * 1_500 + "'") < LONGEST_CHECK
    assert measure("zzz '" + "-{a,b} " * 1_400 + "'") < LONGEST_CHECK
    assert measure("zzz '" + "{a,b}" * 500 + "'") < LONGEST_CHECK


def test_long_quoted_text_does_not_count_as_operators() -> None:
    code = "def f(x): return {'a': [x | 1]}  # $(no)\n" * 400

    assert check(f"cat > a.py <<'EOF'\n{code}EOF\n", {}, "bypass").decision == "allow"
    assert check('python3 -c "' + "print(1); " * 400 + '"', {}, "bypass").decision == "allow"
    assert check(f"cat > a.py <<'EOF'\n{code}EOF\nrm -rf x", RULES, "bypass").decision == "deny"


def test_a_denied_command_is_seen_in_a_text_that_is_too_large_for_the_parser() -> None:
    assert check("ls; " * 400 + "rm x", RULES, "bypass").decision == "deny"
    assert check("$(" * 200 + "rm x", RULES, "bypass").decision == "deny"
