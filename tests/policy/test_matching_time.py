"""No text makes a pattern, a parser or a check of the policy slow: time grows with the length, not its square."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import podium.policy
from podium import Mistake
from podium.policy import Rules, check, find_risk_facts, generalised, path_rules
from podium.policy import operand_kinds as word_kinds
from podium.policy.inner_commands import find_run_commands
from podium.policy.operand_kinds import FREE_TEXT, is_harmless_word
from podium.policy.path_rules import compile_path_pattern, is_protected, is_sensitive, locate_path
from podium.policy.rule import compile_words_pattern, parse_rule
from podium.values import hidden_characters
from podium.values.action import Action
from podium.views import request_text

SLOW = 0.1
"""Seconds of processor time. A search that takes quadratic time needs many times as much for 10,000 characters."""
SIZES = (1_000, 10_000)
"""The smaller sizes come first, so that a failing test ends soon."""

UNITS = ["a", "A", "1", "é", " ", "\t", "\n", *"%./-_=@:\\'\"()[]{}$`*?!~,;+#^|&<>", "a/", "a.", "a=", "a:", "..", "*a"]
FORMS = ["{}", "{}%", "a{}\0", "/{}\0", '"{}\0', "x{}@"]


FEW_UNITS = ["a", *"%./-=*[", "a/", "a="]


def find_slow_text(use: Callable[[str], object], forms: Sequence[str] = FORMS, units: Sequence[str] = UNITS) -> str:
    """Return a text that takes `use` too long, or an empty string if there is none."""
    for size in SIZES:
        for unit in units:
            for form in forms:
                text = form.replace("{}", unit * (size // len(unit)))
                if measure(use, text) > SLOW and measure(use, f"{text} ") > SLOW:
                    return f"{form} with {size} {unit!r}"
    return ""


def measure(use: Callable[[str], object], text: str) -> float:
    began = time.process_time()
    use(text)
    return time.process_time() - began


def find_uses() -> Iterator[tuple[str, Callable[[str], object]]]:
    """Yield each use of a regular expression in the policy: of a variable, or in a call such as `re.split(…)`."""
    names = [f"podium.policy.{found.name}" for found in pkgutil.iter_modules(podium.policy.__path__)]
    modules = [hidden_characters, request_text, *map(importlib.import_module, names)]
    trees = {module: ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")) for module in modules}
    nodes = [(module, node) for module, tree in trees.items() for node in ast.walk(tree)]
    methods = {
        (node.value.id, node.attr)
        for _, node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    for module in modules:
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                used = [method for method in METHODS if (name, method) in methods]
                assert used, f"add the method that uses {name}"
                yield from ((f"{module.__name__}.{name}.{method}", bind(value, method)) for method in used)
    for module, node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_direct = ast.unparse(node.func.value) == "re" and node.func.attr in METHODS
            if is_direct and isinstance(node.args[0], ast.Constant):
                yield (
                    f"{module.__name__}:{node.lineno}",
                    bind(re.compile(str(node.args[0].value), re.DOTALL), node.func.attr),
                )
    for pattern in path_rules._compile_guards():
        yield pattern.pattern[:40], pattern.search


METHODS = ("match", "fullmatch", "search", "finditer", "findall", "sub", "split")


def bind(pattern: re.Pattern[str], method: str) -> Callable[[str], object]:
    if method in ("finditer", "split", "sub"):
        return pattern.findall
    return getattr(pattern, method)  # type: ignore[no-any-return]  # a method by name


def test_no_text_makes_a_regular_expression_slow() -> None:
    uses = dict(find_uses())

    slow = {name: text for name, use in uses.items() if (text := find_slow_text(use))}

    assert len(uses) > 40
    assert slow == {}


@pytest.mark.slow
def test_the_search_for_slow_texts_finds_quadratic_and_cubic_patterns() -> None:
    for pattern in (r"\s*!?\s*", r"[\w./-]*[\w./-]*\*?[\w-]*\.[a-z]+"):
        assert find_slow_text(re.compile(pattern).fullmatch, ["{}%"], ["a", " "]), pattern


def test_no_word_makes_the_check_of_a_kind_of_word_slow() -> None:
    forms = [*FORMS, "select {}%", "pragma {}", "s/{}", "/{}/!{}p", "{print {}", ".{}%"]

    slow = {
        kind: text
        for kind in word_kinds._CHECKS
        if (text := find_slow_text(lambda word, kind=kind: is_harmless_word(kind, word), forms))  # type: ignore[misc]  # the kind is bound now
    }

    assert slow == {}


def test_a_word_that_is_too_long_for_its_pattern_is_not_harmless() -> None:
    for kind in word_kinds._CHECKS.keys() - FREE_TEXT:
        assert not is_harmless_word(kind, "1" * 10_000), kind
    assert check(f"rg -g {'a' * 3_200}% x", {"allow": ["Bash(rg *)"]}).decision == "ask"
    assert check(f"git commit -m '{'a' * 3_200}'", {"allow": ["Bash(git commit *)"]}).decision == "allow"


RULES = Rules(
    allow=("Bash", "Bash(l*l*l*l*x)"),
    ask=("Bash(git push *)", "Bash(*a*a*a*a*a%)"),
    deny=(
        "Bash(rm *)",
        "Read(*a*a*a*a*a*b)",
        "Read(/a/**/a/**/a/**/a/**/b)",
        "Edit(//**/a*/a*/*a*a*b)",
        "Agent(a*a*a*b)",
    ),
)
POSITIONS = [
    *(
        "{} x",
        "ls {}",
        "ls '{}'",
        "ls -x {}",
        "foo -c {}",
        "foo --{}",
        "foo -{}",
        "foo --x={}",
        "rg -g {} x",
        "rg -g {}% x",
    ),
    *("git log {}", "git branch -l --sort={}", "find . -name {}", "sed -n '{}' a", "sed -n '1{}%' a", "awk '{}' a"),
    *(
        "jq '{}' a",
        "sqlite3 a.db 'select {}%'",
        "sqlite3 a.db 'pragma {}%'",
        "pip install {}",
        "curl {}",
        "curl -H 'a{}' x",
    ),
    *(
        "curl https://{}",
        "{}://x",
        "scp {}@",
        "rsync {} x:",
        "npm run {}",
        "make {}",
        "python {}",
        "ls > {}",
        "cat < {}",
    ),
    *(
        "bash -c '{}'",
        "env A={} ls",
        "cd {}; cat b",
        "nice {}",
        "pytest -W {}",
        "mksh -c '{}'",
        "x {}b",
        "cat <<'E'\n{}\nE\n",
    ),
]


@pytest.mark.parametrize("position", POSITIONS)
def test_ten_thousand_equal_characters_are_checked_in_a_fraction_of_a_second(position: str) -> None:
    def use(text: str) -> None:
        command = position.replace("{}", text)
        check(command, RULES)
        find_risk_facts(command)
        generalised(command)

    slow = [
        unit
        for unit in FEW_UNITS
        if all(measure(use, unit * (10_000 // len(unit)) + " " * more) > 5 * SLOW for more in (0, 1))
    ]

    assert slow == []


@pytest.mark.parametrize(
    "unit",
    [
        *(
            "sudo ",
            "env ",
            "find . -exec ",
            "find -exec ",
            "uv run ",
            "timeout 5 ",
            "python -m ",
            "command ",
            "a:b@c= ",
        ),
        *(
            "xargs -I ",
            "nice -n ",
            "git -c a=b ",
            "git -c a=!b ",
            "'a b' ",
            "mksh -c ",
            "foo 'a b' ",
            "fd -X ",
            "-nfa ",
        ),
    ],
)
def test_many_commands_that_run_each_other_are_checked_in_a_fraction_of_a_second(unit: str) -> None:
    for count in (40, 190, 1_000):
        command = f"{unit * count}ls"
        seconds = measure(
            lambda text: (check(text, RULES), check(text, RULES, "bypass"), find_risk_facts(text)), command
        )
        assert seconds < 5 * SLOW, count
        assert check(command, Rules(allow=("Bash(sudo *)",))).decision == "ask"


def test_every_inner_command_of_a_chain_is_still_found() -> None:
    assert find_run_commands(tuple("sudo nice timeout 5 rm x".split())) == [("rm", "x")]
    assert find_run_commands(tuple("find . -exec rm a ; -exec cp b c ;".split())) == [
        ("rm", "a", ";", "-exec", "cp", "b", "c", ";"),
        ("cp", "b", "c", ";"),
    ]


def test_other_actions_with_ten_thousand_equal_characters_are_checked_in_a_fraction_of_a_second() -> None:
    places = [
        ("read_file", "path"),
        ("glob", "pattern"),
        ("web_fetch", "url"),
        ("Agent", "name"),
        ("mcp__x__y", "text"),
    ]

    def use(text: str, tool: str, key: str) -> None:
        action = Action(run="", agent="", tool=tool, arguments={key: text})
        check(action, RULES)
        find_risk_facts(action)

    slow = {
        tool: text
        for tool, key in places
        if (text := find_slow_text(lambda text, tool=tool, key=key: use(text, tool, key)))  # type: ignore[misc]  # bound now
    }

    assert slow == {}


# Rules with many wildcards


def find_slow_path(specifier: str) -> str:
    pattern = compile_path_pattern(specifier)

    def use(text: str) -> None:
        where = locate_path(text)
        pattern.touches(where), pattern.covers(where), is_protected(text), is_sensitive(text)

    return find_slow_text(use)


@pytest.mark.parametrize(
    "specifier",
    [
        "*a*a*a*a*a*b",
        "/*.*.*.*.*.x",
        "**/a/**/a/**/a/**/a/**/b",
        "a*/a*/a*/**/a*a*a*b/**/*a*a*a/",
        "*[a-z]*[a-z]*?*?*x",
        "**/*/*/*/*/x",
    ],
)
def test_a_rule_for_paths_with_many_wildcards_is_matched_in_linear_time(specifier: str) -> None:
    assert find_slow_path(specifier) == ""


def test_rules_for_words_and_agents_with_many_wildcards_are_matched_in_linear_time() -> None:
    words = compile_words_pattern("*a*a*a*a*a*a*b")

    assert find_slow_text(words.matches) == ""
    assert (
        check(Action(run="", agent="", tool="Agent", arguments={"name": "Axxb"}), {"deny": ["Agent(a*x*b)"]}).decision
        == "deny"
    )
    assert (
        check(Action(run="", agent="", tool="Agent", arguments={"name": "axx"}), {"deny": ["Agent(a*x*b)"]}).decision
        == "allow"
    )


def test_limiting_the_backtracking_changes_no_match(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(11)
    compared = 0
    for _ in range(1_500):
        parts = [
            chance.choice(["a", "b", "*", "a*", "*b", "a*b*", "*a*b*", "?*a*", "[ab]*a*b", "**"])
            for _ in range(chance.randint(1, 6))
        ]
        specifier = chance.choice(["", "/"]) + "/".join(parts) + chance.choice(["", "/"])
        try:
            limited = re.compile(path_rules._gitignore_to_regex(specifier))
            with monkeypatch.context() as patched:
                patched.setattr(path_rules, "_limit_backtracking", lambda regex: regex)
                plain = re.compile(path_rules._gitignore_to_regex(specifier))
        except Mistake:
            continue
        for _ in range(10):
            path = "/".join("".join(chance.choices("ab", k=chance.randint(1, 4))) for _ in range(chance.randint(1, 6)))
            compared += 1
            assert (limited.search(path) is None) is (plain.search(path) is None), (specifier, path)
    assert compared > 8_000


def test_a_rule_itself_is_parsed_in_linear_time() -> None:
    def use(text: str) -> None:
        for rule in (f"Bash({text})", f"Read({text})", f"WebFetch(domain:{text})", f"Agent({text})", text):
            try:
                parse_rule(rule)
            except Mistake:
                continue

    assert find_slow_text(use, ["a{}%"], FEW_UNITS) == ""
