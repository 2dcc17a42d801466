"""What a commander answers by the rules, and what it leaves to a person."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from podium import Agent, Settings
from podium.policy import Rules
from podium.values.action import Action
from podium.values.agent import Permissions
from podium.values.event import PermissionAnswered, RunStarted
from podium.values.request import Request
from podium.workers.current_rules import collect_restrictions, decide_by_rules
from podium.workers.wire.wire_message import Approve, Deny, PermissionRequest

from .worker_lab import SILENT, Yard, bash


def request(command: str, shown: str = "") -> PermissionRequest:
    action = Action(run="r", agent="hand", tool="bash", arguments={"command": command})
    return PermissionRequest(id="q", action=action, shown=shown)


def settings(home: Path, **rules: Sequence[str]) -> Settings:
    return Settings.load({}, home=home, permissions=Permissions(**{key: tuple(one) for key, one in rules.items()}))


def test_what_is_allowed_by_now_is_approved_and_what_is_forbidden_denied(tmp_path: Path) -> None:
    mine = settings(tmp_path, allow=["Bash(ls)"], deny=["Bash(rm *)"])

    allowed, denied, open = (decide_by_rules(request(one), mine, Rules(), run="r") for one in ("ls", "rm -r x", "make"))

    assert allowed is not None
    assert denied is not None
    assert isinstance(allowed.result, Approve)
    assert isinstance(denied.result, Deny)
    assert open is None


@pytest.mark.parametrize("who", ["the agent", "the run", "the repository"])
def test_a_later_rule_allows_nothing_that_was_to_be_asked(tmp_path: Path, who: str) -> None:
    careful = Permissions(ask=("Bash(ls)",))
    started = RunStarted(
        agent="hand",
        request=Request(text="go"),
        agents=(Agent(name="hand", permissions=careful if who == "the agent" else None),),
        settings={"permissions": {"ask": careful.ask if who == "the run" else ()}}
        | {"narrowing": {"ask": careful.ask if who == "the repository" else ()}},
    )

    answer = decide_by_rules(
        request("ls"), settings(tmp_path, allow=["Bash(ls)"]), collect_restrictions(started), run="r"
    )

    assert answer is None


def test_nobody_asks_in_the_name_of_another_run(tmp_path: Path) -> None:
    mine = settings(tmp_path, allow=["Bash(ls)"], deny=["Bash(rm *)"])

    answers = [decide_by_rules(request(one), mine, Rules(), run="other") for one in ("ls", "rm -r x")]

    assert answers == [None, None]


def test_a_large_change_is_left_to_a_person_whatever_is_allowed(tmp_path: Path) -> None:
    action = Action(run="r", agent="hand", tool="edit_file", arguments={"path": "a.txt"})
    mine = settings(tmp_path, allow=["Edit"])

    small, large = (
        decide_by_rules(PermissionRequest(id="q", action=action, shown="+x\n" * lines), mine, Rules(), run="r")
        for lines in (3, 500)
    )

    assert small is not None
    assert large is None


async def test_a_rule_that_is_kept_for_good_answers_a_worker_that_is_at_work_already(yard: Yard) -> None:
    first = await yard.hire("feat/one", bash("ls"), SILENT, allow=())
    second = await yard.hire("feat/two", bash("make two"), bash("ls -a"), SILENT, allow=())
    yard.command()
    other = await yard.asked(second)
    told = await yard.podium("approve", "--always", (await yard.asked(first)).id)
    assert told.returncode == 0, told.stderr

    yard.answer(second, other, "deny")
    answered = await yard.wait_for(second, PermissionAnswered, count=2)

    assert (answered.decision, answered.by) == ("once", "commander")
    for run in (first, second):
        yard.stop(run)
    await yard.over()
    yard.check(first, second)


async def test_settings_that_cannot_be_read_leave_it_to_a_person(yard: Yard) -> None:
    run = await yard.hire("feat/one", bash("make one"), bash("make two"), "done", allow=())
    yard.command()
    asked = await yard.asked(run)
    yard.set("workers: [no number]\n")

    yard.answer(run, asked, "once")
    yard.answer(run, await yard.asked(run, 2), "once")

    assert (await yard.ended(run)).outcome == "succeeded"
    yard.set("")
    await yard.over()
    yard.check(run)
