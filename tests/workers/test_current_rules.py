"""Which requests a commander answers by the rules, and which it leaves to a person."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from podium import Agent, Settings
from podium.policy import Rules
from podium.values.action import Action
from podium.values.agent import Permissions
from podium.values.event import PermissionAnswered, PermissionAsked, RunStarted
from podium.values.request import Request
from podium.workers.current_rules import collect_restrictions, decide_by_rules

from .worker_lab import SILENT, WorkerLab, bash


def make_request(command: str) -> PermissionAsked:
    action = Action(run="r", agent="hand", tool="bash", arguments={"command": command})
    return PermissionAsked(id="q", action=action, reason="no rule allows it")


def make_settings(home: Path, **rules: Sequence[str]) -> Settings:
    return Settings.load({}, home=home, permissions=Permissions(**{key: tuple(one) for key, one in rules.items()}))


def test_a_request_is_approved_or_denied_as_the_current_rules_say(tmp_path: Path) -> None:
    mine = make_settings(tmp_path, allow=["Bash(ls)"], deny=["Bash(rm *)"])

    allowed, denied, open = (
        decide_by_rules(make_request(one), mine, Rules(), run="r") for one in ("ls", "rm -r x", "make")
    )

    assert allowed is not None
    assert denied is not None
    assert (allowed.decision, denied.decision) == ("once", "deny")
    assert "Bash(rm *)" in denied.comment
    assert open is None


@pytest.mark.parametrize("who", ["the agent", "the run", "the repository"])
def test_a_later_rule_allows_nothing_that_needed_permission_before(tmp_path: Path, who: str) -> None:
    careful = Permissions(ask=("Bash(ls)",))
    started = RunStarted(
        agent="hand",
        request=Request(text="go"),
        agents=(Agent(name="hand", permissions=careful if who == "the agent" else None),),
        settings={"permissions": {"ask": careful.ask if who == "the run" else ()}}
        | {"narrowing": {"ask": careful.ask if who == "the repository" else ()}},
    )

    answer = decide_by_rules(
        make_request("ls"), make_settings(tmp_path, allow=["Bash(ls)"]), collect_restrictions(started), run="r"
    )

    assert answer is None


def test_a_request_in_the_name_of_another_run_is_not_answered(tmp_path: Path) -> None:
    mine = make_settings(tmp_path, allow=["Bash(ls)"], deny=["Bash(rm *)"])

    answers = [decide_by_rules(make_request(one), mine, Rules(), run="other") for one in ("ls", "rm -r x")]

    assert answers == [None, None]


def test_a_large_change_is_left_to_a_person_whatever_is_allowed(tmp_path: Path) -> None:
    action = Action(run="r", agent="hand", tool="edit_file", arguments={"path": "a.txt"})
    mine = make_settings(tmp_path, allow=["Edit"])

    small, large = (
        decide_by_rules(PermissionAsked(id="q", action=action, reason="", shown="+x\n" * lines), mine, Rules(), run="r")
        for lines in (3, 500)
    )

    assert small is not None
    assert large is None


async def test_a_rule_that_is_saved_for_good_answers_a_worker_that_is_already_running(lab: WorkerLab) -> None:
    first = await lab.delegate("feat/one", bash("cargo check"), SILENT, allow=())
    second = await lab.delegate("feat/two", bash("make two"), bash("cargo check -q"), SILENT, allow=())
    lab.start_commander()
    other = await lab.wait_asked(second)
    told = await lab.run_podium("approve", "--always", (await lab.wait_asked(first)).id)
    assert told.returncode == 0, told.stderr

    lab.answer(second, other, "deny")
    answered = await lab.wait_for_event(second, PermissionAnswered, count=2)

    assert (answered.decision, answered.by) == ("once", "commander")
    for run in (first, second):
        lab.stop(run)
    await lab.wait_finished()
    lab.assert_clean_end(first, second)


async def test_with_unreadable_settings_requests_are_left_to_a_person(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", bash("make one"), bash("make two"), "done", allow=())
    lab.start_commander()
    asked = await lab.wait_asked(run)
    lab.write_settings("workers: [no number]\n")

    lab.answer(run, asked, "once")
    lab.answer(run, await lab.wait_asked(run, 2), "once")

    assert (await lab.wait_ended(run)).outcome == "succeeded"
    lab.write_settings("")
    await lab.wait_finished()
    lab.assert_clean_end(run)
