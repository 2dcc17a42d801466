"""The quality benchmark tells successes, reported failures and false successes apart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from anyio import run_process
from benchmarks.quality.attempt import Attempt, Outcome, count_attempts, find_answer_problem
from benchmarks.quality.command import format_scores
from benchmarks.quality.lab import Lab
from benchmarks.quality.tasks import TASKS
from benchmarks.quality_scenario import EDITS, ROUTES

from podium.testing import ModelServer

ROOT = Path(__file__).parent.parent
MODEL = "openai:small"


def make_environ(url: str) -> dict[str, str]:
    return {**os.environ, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"}


async def attempt(task: str, folder: Path, *replies: Any) -> Outcome:
    """Make one attempt at a task with a model that replies this."""
    async with ModelServer(replies) as server:
        return await TASKS[task].attempt(Lab(folder=folder, model=MODEL, environ=make_environ(server.url)), 0)


@pytest.mark.parametrize(
    ("chosen", "verdict"),
    [(ROUTES[0][1], "success"), ("travel", "false success"), ("nobody at all", "honest failure")],
)
async def test_a_route_is_judged_by_where_the_request_went(chosen: str, verdict: str, tmp_path: Path) -> None:
    reply = json.dumps({"agent": chosen, "reason": "because"})

    assert (await attempt("route", tmp_path, *[reply] * 4)).verdict == verdict


async def test_an_edit_is_judged_by_the_file_and_not_by_the_report(tmp_path: Path) -> None:
    one = EDITS[0]
    edit = {"path": one.file, "old_text": one.old, "new_text": one.new}

    right = await attempt("edit", tmp_path / "a", {"calls": [{"name": "edit_file", "arguments": edit}]}, "I edited it.")
    wrong = await attempt("edit", tmp_path / "b", "I edited it.")

    assert (right.verdict, right.detail) == ("success", "")
    assert wrong.verdict == "false success"
    assert "price.py is" in wrong.detail


@pytest.mark.parametrize(
    ("text", "is_answer"),
    [
        ("It is Paris.", True),
        ("", False),
        ("Which city?", False),
        ("It is Rome.", False),
        ('{"name": "ask_person", "arguments": {"question": "Paris?"}}', False),
        ('```json\n{{"name": "x", "arguments": {"to": "Paris"}}}\n```', False),
        ("<tool_call>Paris</tool_call>", False),
        ("[context: routed by desk] Paris", False),
        ('{"assignments": [{"worker": "ada", "task": "Find out about Paris"}]}', False),
        ("I divide it.\n@worker:ada Find out about Paris\n@end", False),
        ('{"answer": "Paris"}', False),
        ('Paris. A call looks like {"name": "x", "arguments": {}}.', True),
    ],
)
def test_an_answer_is_a_text_for_people_that_answers_the_request(text: str, is_answer: bool) -> None:
    assert (find_answer_problem(text, request="Which city?", contains=("Paris",)) == "") == is_answer


def test_the_table_has_a_row_for_each_task_and_program() -> None:
    verdicts = ["success"] * 9 + ["false success"]
    attempts = [Attempt(task="route", program="podium", verdict=one, seconds=2.0) for one in verdicts]  # type: ignore[arg-type]
    peer = Attempt(task="route", program="smolagents", verdict="honest failure", seconds=1.0)

    lines = format_scores(count_attempts([*attempts, peer])).splitlines()

    assert lines[1].split() == ["route", "podium", "9", "of", "10", "0", "1", "2", "s", "met"]
    assert lines[2].split() == ["route", "smolagents", "0", "of", "1", "1", "0", "1", "s"]


async def test_the_command_writes_the_scores_and_fails_if_one_is_false(tmp_path: Path) -> None:
    result = tmp_path / "quality.json"
    command = [sys.executable, "-m", "benchmarks", "quality", "--model", MODEL, "--only", "route", "--tries", "1"]
    async with ModelServer([json.dumps({"agent": "travel", "reason": "?"})]) as server:
        done = await run_process(
            [*command, "--no-peers", "--json", str(result)], cwd=ROOT, env=make_environ(server.url), check=False
        )

    assert done.returncode == 1, done.stderr
    [score] = json.loads(result.read_text())["scores"]
    assert (score["task"], score["success"], score["false_success"]) == ("route", 0, 1)


def test_the_command_needs_no_database_driver() -> None:
    without = "import sys; sys.modules['psycopg'] = None; sys.argv = ['benchmarks', 'quality', '--help']"
    command = [sys.executable, "-c", f"{without}; import runpy; runpy.run_module('benchmarks', run_name='__main__')"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    assert "--only TASK" in done.stdout


async def test_a_lead_that_answers_with_its_plan_has_not_answered(tmp_path: Path) -> None:
    plan = json.dumps({"assignments": [{"worker": one, "task": "Do it."} for one in ("frontend", "database")]})

    outcome = await attempt("plan", tmp_path, plan, f"Here is the result.\n{plan}")

    assert "plan" in outcome.problem or not outcome.is_reported_success


def test_an_unknown_task_is_a_usage_error() -> None:
    command = [sys.executable, "-m", "benchmarks", "quality", "--only", "juggle"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert "route" in done.stderr
