"""The table in docs/security.md is correct: every row is present, and every test that it lists exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "security.md"

ROWS = {
    **{f"S{n}": 1 if n in (8, 11, 13, 15, 16) else 0 for n in range(1, 21)},
    **{f"F{n}": 1 if n in (7, 8, 9) else 0 for n in range(1, 11)},
    **{f"P{n}": 1 if 7 <= n <= 10 else 0 for n in range(1, 12)},
    **{f"A{n}": 1 if n in (10, 11, 13, 14) else 0 for n in range(1, 15)},
    **{f"G{n}": 1 if n in (6, 8, 9, 10, 12) else 0 for n in range(1, 13)},
    **{f"X{n}": 1 if n >= 4 and n != 8 else 0 for n in range(1, 10)},
    **{f"L{n}": 1 if n >= 3 else 0 for n in range(1, 7)},
    "D10": 0,
    **{f"T{n}": 0 for n in range(1, 13)},
    "D11": 1,
}
"""Every attack and its priority."""

ROW = re.compile(r"^\| (?P<id>[A-Z]\d+) \| (?P<priority>[01]) \| (?P<tried>.+?) \| (?P<answer>.+) \|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


class Answer(NamedTuple):
    priority: int
    tests: list[tuple[str, str]]
    text: str


def read_table() -> dict[str, Answer]:
    text = PAGE.read_text(encoding="utf-8")
    return {
        row["id"]: Answer(int(row["priority"]), TEST.findall(row["answer"]), row["answer"])
        for row in ROW.finditer(text)
    }


def is_expected_to_fail(path: str, name: str) -> bool:
    """Return whether a whole test is marked as a known failure."""
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return any(ast.unparse(mark).startswith("pytest.mark.xfail") for mark in node.decorator_list)
    return False


def test_every_attack_is_in_the_table_with_its_priority() -> None:
    assert {id: answer.priority for id, answer in read_table().items()} == ROWS


@pytest.mark.parametrize("id", ROWS)
def test_every_attack_has_a_test_or_a_reason(id: str) -> None:
    answer = read_table()[id]

    assert answer.tests or "open: " in answer.text
    if ROWS[id] == 0:
        assert [test for test in answer.tests if not is_expected_to_fail(*test)] != []


def test_every_test_that_is_named_exists() -> None:
    for path, name in {test for answer in read_table().values() for test in answer.tests}:
        defined = {
            node.name
            for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert name in defined, f"{path} has no {name}"


def test_a_known_failure_is_listed_as_open() -> None:
    for id, answer in read_table().items():
        if any(is_expected_to_fail(*test) for test in answer.tests):
            assert "open: " in answer.text, id
