"""The reflect loop: evidence, repetition, adjustments, pauses, a single agent, and what ends the loop."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from podium import Result
from podium.store.fault_injection import refuse_after
from podium.store.mailbox import post_to_mailbox
from podium.testing import make_repository
from podium.values.agent import Budget, Permissions
from podium.values.errors import Mistake
from podium.values.event import (
    AdjustmentProposed,
    Checked,
    Evaluated,
    MemberChanged,
    MessageReceived,
    MessagesDelivered,
    Noticed,
    OperationEnded,
    OperationStarted,
    PermissionAnswered,
    ReflectEnded,
    RunPaused,
    TeamPlanned,
)

from ..studio import Studio
from .test_teams import AGAIN, DONE, add_lead, plan

SOLO_DONE = "[[REFLECTION_COMPLETE]]"


def get_reflect_ended(studio: Studio, result: Result) -> ReflectEnded:
    [one] = studio.events(result, ReflectEnded)
    assert isinstance(one, ReflectEnded)
    return one


# Evidence


FILES = {"kept.txt": "kept", ".gitignore": "ignored.txt\n"}


async def run_with_checks(
    studio: Studio, repo: Path, *checks: str, says: list[str], allow: tuple[str, ...] = ()
) -> Result:
    add_lead(studio, "reflect", "a", says=says, checks=list(checks), max_iterations=2)
    studio.settings = structs.replace(studio.settings, permissions=Permissions(allow=allow))
    async with studio.app() as app:
        return await app.run(studio.agents["lead"], "go", repo=repo, agents=studio.agents.values())


async def test_a_claim_holds_only_where_the_checks_pass_on_a_clean_checkout(studio: Studio, tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "repo", FILES)
    (repo / "new.txt").write_text("part of the work")
    (repo / "ignored.txt").write_text("not part of it")

    result = await run_with_checks(
        studio,
        repo,
        "test -e kept.txt",
        "test -e new.txt",
        "ls",
        says=[plan(("a", "x")), f"done\n{DONE}"],
        allow=("Bash(test *)", "Bash(ls)"),
    )

    assert result.succeeded, studio.events(result, Evaluated)
    [evidence] = studio.events(result, Checked)
    assert evidence.passed
    assert "new.txt" in evidence.output
    assert "ignored.txt" not in evidence.output
    status = subprocess.run(["git", "-C", repo, "status", "--porcelain"], check=True, capture_output=True, text=True)
    assert status.stdout == "?? new.txt\n"
    listed = subprocess.run(["git", "-C", repo, "worktree", "list"], check=True, capture_output=True, text=True)
    assert len(listed.stdout.splitlines()) == 1


async def test_checks_that_fail_hold_the_claim_back_and_go_into_the_next_plan(studio: Studio, tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "repo", FILES)

    result = await run_with_checks(
        studio,
        repo,
        "cat kept.txt && test -e wanted.txt",
        says=[plan(("a", "x")), f"done\n{DONE}", plan(("a", "y")), f"really done\n{DONE}"],
        allow=("Bash(test *)", "Bash(cat *)"),
    )

    assert not result.succeeded
    assert get_reflect_ended(studio, result).end == "max_iterations"
    first, second = studio.events(result, Evaluated)
    assert (first.score, first.is_complete, second.score) == (0.3, False, 0.3)
    assert "the checks did not pass" in first.held_back
    assert any("FAIL" in heard and "kept" in heard for heard in studio.heard("lead"))
    assert result.parts[-1].text == "really done"


def write_move(path: str) -> list[Any]:
    return [{"calls": [{"name": "write_file", "arguments": {"path": path, "content": "x"}}]}, "written"]


async def test_checks_run_in_each_iteration_that_changed_files_and_their_outcome_is_the_evaluation(
    studio: Studio, tmp_path: Path
) -> None:
    repo = make_repository(tmp_path / "repo", FILES)
    studio.agent("a", says=[*write_move("one.txt"), "nothing to do", *write_move("wanted.txt")], tools=["Write"])
    add_lead(
        studio,
        "reflect",
        "a",
        says=[plan(("a", "x")), DONE, plan(("a", "y")), "half", plan(("a", "z")), "it is there"],
        checks=["test -e wanted.txt"],
        max_iterations=3,
    )
    allow = ("Bash(test *)", "Write")
    studio.settings = structs.replace(studio.settings, permissions=Permissions(allow=allow))

    async with studio.app() as app:
        result = await app.run(studio.agents["lead"], "go", repo=repo, agents=studio.agents.values())

    assert [one.passed for one in studio.events(result, Checked)] == [False, True]
    second, third = [call.messages[-1].text for call in studio.calls if call.agent == "lead"][2::2]
    assert "The last evaluation: the answer is empty; the checks did not pass:" in second
    assert DONE not in second.partition("Plan the work")[0]
    assert "The last evaluation: half" in third
    assert result.error is not None
    assert result.error.endswith(
        "the iteration limit is reached (the checks passed; lead did not call the work complete: it is there)"
    )


async def test_the_end_of_a_loop_says_that_the_checks_failed(studio: Studio, tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "repo", FILES)
    studio.agent("a", says=[*write_move("one.txt"), *write_move("two.txt")], tools=["Write"])
    says = [plan(("a", "x")), "half", plan(("a", "y")), "the rest"]

    result = await run_with_checks(studio, repo, "cat wanted.txt", says=says, allow=("Bash(cat *)", "Write"))

    assert [one.passed for one in studio.events(result, Checked)] == [False, False]
    assert "the iteration limit is reached (the checks did not pass: " in (result.error or "")
    assert "wanted.txt" in (result.error or "")
    assert all(one.score <= 0.3 for one in studio.events(result, Evaluated))


async def test_a_loop_with_checks_that_dies_at_any_entry_checks_the_same(studio: Studio, tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "repo", FILES)
    says = [plan(("a", "x")), "half", plan(("a", "y")), f"whole\n{DONE}"]
    studio.agent("a", says=[*write_move("one.txt"), *write_move("two.txt")], tools=["Write"])
    whole = await run_with_checks(studio, repo, "test -e two.txt", says=says, allow=("Bash(test *)", "Write"))
    evaluated = [number for number, kind in enumerate(studio.kinds(whole), 1) if kind == "evaluated"]

    for number in evaluated:
        (repo / "one.txt").unlink(missing_ok=True)
        (repo / "two.txt").unlink(missing_ok=True)
        async with studio.app(fault=refuse_after(number)) as app:
            died = await app.run(studio.agents["lead"], "go", repo=repo, agents=studio.agents.values())
        studio.expire_leases()
        result = await studio.resume(died.run_id)
        assert result.succeeded, result.error
        assert [one.passed for one in studio.events(result, Checked)] == [False, True]


async def test_checks_that_are_not_allowed_are_not_run(studio: Studio, tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "repo", FILES)

    result = await run_with_checks(studio, repo, "touch ran.txt", says=[plan(("a", "x")), f"done\n{DONE}"] * 2)

    assert not result.succeeded
    [answered] = studio.events(result, PermissionAnswered)
    why = f"the checks were not run: {answered.comment}"
    assert (answered.decision, answered.channel) == ("deny", "unattended")
    assert studio.events(result, Evaluated)[0].held_back == f"the checks did not pass:\n{why}"
    assert not (repo / "ran.txt").exists()
    assert result.error == f"lead: the goal was not met after 1 of 2 iterations: {why}"
    assert len(studio.heard("a")) == 1


async def test_checks_without_a_repository_are_refused_before_the_run_begins(studio: Studio, tmp_path: Path) -> None:
    with pytest.raises(Mistake, match=re.escape(str(tmp_path))):
        await run_with_checks(studio, tmp_path, "true", says=["x"])


# Repetition and adjustments


async def test_the_first_repetition_is_warned_of_and_the_second_in_a_row_ends_the_loop(studio: Studio) -> None:
    add_lead(studio, "reflect", "a", says=[plan(("a", "x")), f"the same\n{AGAIN}"] * 5)

    result = await studio.run("lead", "go")

    assert (get_reflect_ended(studio, result).end, get_reflect_ended(studio, result).iterations) == ("stalled", 3)
    warnings = [event for event in studio.events(result, Noticed) if "are repeating" in event.text]
    assert len(warnings) == 1
    assert [
        event.iteration for event in studio.events(result, AdjustmentProposed) if "are repeating" in event.text
    ] == [2, 3]


async def test_proposals_are_shown_and_not_applied(studio: Studio) -> None:
    studio.agent("a", says=[{"fails": {"status": 400, "message": "broken"}}], model="small")
    studio.agent("b", says=["b is done"] * 9, model="large")
    says = [plan(("a", "x"), ("b", "y")), f"one {AGAIN}\n{AGAIN}", plan(("b", "z")), f"two\n{DONE}"]
    add_lead(studio, "reflect", "a", "b", says=says)

    result = await studio.run("lead", "go")

    [proposed] = [event for event in studio.events(result, AdjustmentProposed) if event.member]
    assert (proposed.member, proposed.model, proposed.is_applied) == ("a", "large", False)
    assert not studio.events(result, MemberChanged)


async def test_with_adjust_auto_a_failed_worker_gets_another_model_for_its_next_task(studio: Studio) -> None:
    studio.agent("a", says=[{"says": "done at last", "fails": {"status": 400, "times": 1}}], model="small")
    studio.agent("b", says=["b is done"] * 9, model="large")
    says = [plan(("a", "x"), ("b", "y")), f"one\n{AGAIN}", plan(("a", "x again")), f"two\n{DONE}"]
    add_lead(studio, "reflect", "a", "b", says=says, adjust="auto")

    result = await studio.run("lead", "go")

    assert result.succeeded, result.error
    [change] = [
        entry
        for entry in studio.entries(result)
        if isinstance(entry.event, MemberChanged) and not entry.scope.endswith("/change")
    ]
    assert isinstance(change.event, MemberChanged)
    assert (change.event.member, change.event.model, change.event.by) == ("a", "large", "podium")
    assert any("Take into account: a failed" in heard for heard in studio.heard("lead"))


async def test_a_worse_evaluation_is_recorded_as_degrading_and_leads_to_proposals(studio: Studio) -> None:
    says = [plan(("a", "x")), "one thing", plan(("a", "y")), f"quite another thing\n{AGAIN}"]
    add_lead(studio, "reflect", "a", says=says, max_iterations=2)

    result = await studio.run("lead", "go")

    assert [event.trend for event in studio.events(result, Evaluated)] == ["stable", "degrading"]
    proposals = [event.text for event in studio.events(result, AdjustmentProposed)]
    assert any("fell by 0.30" in text for text in proposals)
    assert any("getting worse" in text for text in proposals)


async def test_the_same_task_for_two_workers_is_flagged_and_reported_to_the_lead(studio: Studio) -> None:
    says = [plan(("a", "do it"), ("b", "do it")), f"one\n{AGAIN}", DONE]
    add_lead(studio, "reflect", "a", "b", says=says)

    result = await studio.run("lead", "go")

    assert studio.events(result, TeamPlanned)[0].flagged == ("a, b were given the same task",)
    assert any("a, b were given the same task" in heard for heard in studio.heard("lead"))


# Ends


async def test_a_lead_that_never_assigns_anything_fails_at_once_and_says_so(studio: Studio) -> None:
    add_lead(studio, "reflect", "a", says=["I will think about it."] * 9)

    result = await studio.run("lead", "go")

    assert get_reflect_ended(studio, result).end == "error_budget"
    assert result.error is not None
    assert "assigned no task" in result.error
    assert len(studio.heard("lead")) == 4


async def test_a_later_plan_for_unknown_workers_only_is_no_claim_and_the_lead_is_asked_again(studio: Studio) -> None:
    says = [plan(("a", "x")), f"half of it\n{AGAIN}\ntests", plan(("tester", "tests")), plan(("a", "tests"))]
    add_lead(studio, "reflect", "a", says=[*says, f"all of it\n{DONE}"])

    result = await studio.run("lead", "go")

    assert (result.succeeded, result.text) == (True, "all of it")
    assert "tester: no worker has that name" in studio.heard("lead")[3]


async def test_a_lead_that_keeps_planning_for_unknown_workers_fails_with_partial_results(studio: Studio) -> None:
    says = [plan(("a", "x")), f"half of it\n{AGAIN}\ntests", *[plan(("tester", "tests"))] * 4]
    add_lead(studio, "reflect", "a", says=says)

    result = await studio.run("lead", "go")

    assert get_reflect_ended(studio, result).end == "error_budget"
    assert "half of it" in [part.text for part in result.parts]


async def test_an_exhausted_budget_ends_the_loop_with_partial_results(studio: Studio) -> None:
    add_lead(studio, "reflect", "a", says=[plan(("a", "x")), f"half an answer\n{AGAIN}"] * 9, max_iterations=9)

    async with studio.app() as app:
        result = await app.run(studio.agents["lead"], "go", agents=studio.agents.values(), budget=Budget(tokens=900))

    assert get_reflect_ended(studio, result).end == "budget_exhausted"
    assert any("half an answer" in part.text for part in result.parts)


async def test_a_worker_that_timed_out_in_one_iteration_does_not_appear_in_the_next(studio: Studio) -> None:
    studio.agent("slow", says=[{"says": "too late", "silent": True}])
    says = [plan(("slow", "x"), ("b", "y")), f"one\n{AGAIN}", plan(("b", "z")), f"two\n{DONE}"]
    add_lead(studio, "reflect", "slow", "b", says=says, worker_timeout=0.8)

    result = await studio.run("lead", "go")

    assert result.succeeded
    assert not any("too late" in heard for heard in studio.heard("lead"))
    outcomes = {
        entry.operation: entry.event.outcome
        for entry in studio.entries(result)
        if isinstance(entry.event, OperationEnded)
    }
    assert outcomes["lead/member:slow#1"] == "timed_out"
    assert "slow: timed out" not in studio.heard("lead")[-1]


async def test_a_message_to_the_lead_waits_for_its_next_turn_and_interrupts_no_worker(studio: Studio) -> None:
    studio.agent("a", says=[{"says": "a is done", "delay": 0.5}] * 3)
    says = [plan(("a", "x")), f"one\n{AGAIN}", plan(("a", "y")), f"two\n{DONE}"]
    add_lead(studio, "reflect", "a", says=says)

    async with studio.start("lead", "go") as run:
        async for entry in run.entries():
            if isinstance(entry.event, OperationStarted) and entry.event.agent == "a":
                await run.send("Mind the gap.")
                break
        result = await run.result()

    assert result.succeeded
    assert len(studio.events(result, MessagesDelivered)) == 1
    assert sum(heard.count("Mind the gap.") for heard in studio.heard("lead")) == 1
    assert all(event.outcome == "succeeded" for event in studio.events(result, OperationEnded))


async def test_resuming_after_a_pause_forgets_repetition_and_keeps_the_count(studio: Studio) -> None:
    studio.agent("a", says=[{"says": "a is done", "delay": 0.6}] * 9)
    add_lead(studio, "reflect", "a", says=[plan(("a", "x")), f"the same\n{AGAIN}"] * 9, max_iterations=4)
    async with studio.start("lead", "go") as run:
        async for entry in run.entries():
            if isinstance(entry.event, Evaluated) and entry.event.iteration == 2:
                await run.pause()
        paused = await run.result()
    assert paused.outcome == "paused"
    assert studio.events(paused, RunPaused)

    result = await studio.resume(paused.run_id)

    assert (get_reflect_ended(studio, result).end, get_reflect_ended(studio, result).iterations) == (
        "max_iterations",
        4,
    )


# A single agent


async def test_one_agent_alone_works_on_it_until_it_finds_nothing_missing(studio: Studio) -> None:
    studio.agent("writer", says=[f"a draft\n{AGAIN}\nthe ending", f"the whole thing\n{SOLO_DONE}"])

    async with studio.app() as app:
        result = await app.run(studio.agents["writer"], "Write.", mode="reflect", max_iterations=3)

    assert result.text == "the whole thing"
    assert (get_reflect_ended(studio, result).end, get_reflect_ended(studio, result).iterations) == ("goal_met", 2)
    assert "the ending" in studio.heard("writer")[1]


async def test_a_groups_sentinel_does_not_end_one_agents_own_loop(studio: Studio) -> None:
    studio.agent("writer", says=[f"a draft\n{DONE}", f"more\n{DONE}"])

    async with studio.app() as app:
        result = await app.run(studio.agents["writer"], "Write.", mode="reflect", max_iterations=2)

    assert not result.succeeded
    assert [event.score for event in studio.events(result, Evaluated)] == [0.7, 0.7]


@pytest.mark.parametrize(
    ("keys", "given", "message"),
    [
        ({}, {"mode": "broadcast"}, "has no team for broadcast mode"),
        (
            {},
            {"max_iterations": 3},
            "has no team; an agent without a team supports only reflect mode: use --reflect, or mode=",
        ),
        ({"handoff": "other"}, {"mode": "reflect"}, "another agent gives its final answer"),
        ({}, {"mode": "reflect", "max_iterations": 0}, "max_iterations must be at least 1, got 0"),
    ],
)
async def test_what_an_agent_cannot_do_is_refused_before_the_run_begins(
    studio: Studio, keys: dict[str, Any], given: Any, message: str
) -> None:
    studio.agent("other")
    studio.agent("one", **keys)

    async with studio.app() as app:
        with pytest.raises(Mistake, match=message):
            await app.run(studio.agents["one"], "go", agents=studio.agents.values(), **given)


async def test_a_team_may_work_in_another_mode_this_time(studio: Studio) -> None:
    add_lead(studio, "reflect", "a", "b")

    async with studio.app() as app:
        result = await app.run(studio.agents["lead"], "go", agents=studio.agents.values(), mode="broadcast")

    assert result.text.startswith("### From a")


# Changing a member while the team is running


async def test_a_change_of_a_member_applies_from_its_next_task_on(studio: Studio) -> None:
    studio.agent("a", says=[{"says": "a is done", "delay": 0.6}] * 3, prompt="You are slow.")
    says = [plan(("a", "x")), f"one\n{AGAIN}", plan(("a", "y")), f"two\n{DONE}"]
    add_lead(studio, "reflect", "a", says=says)

    async with studio.start("lead", "go") as run:
        async for entry in run.entries():
            if isinstance(entry.event, OperationStarted) and entry.event.agent == "a":
                await run.change_member("a", prompt="You are quick.", by="me")
                break
        result = await run.result()

    assert result.succeeded
    assert [call.system for call in studio.calls if call.agent == "a"] == ["You are slow.", "You are quick."]


async def test_a_task_that_started_before_a_change_is_resumed_as_it_started(studio: Studio) -> None:
    studio.agent("a", says=["a is done"] * 3, prompt="You are slow.")
    says = [plan(("a", "x")), f"one\n{AGAIN}", plan(("a", "y")), f"two\n{DONE}"]
    add_lead(studio, "reflect", "a", says=says)
    died = await studio.run("lead", "go", fault=refuse_after(8))
    assert died.outcome == "interrupted"
    assert studio.events(died, OperationStarted)[-1].agent == "a"
    studio.expire_leases()
    post_to_mailbox(studio.settings.store, died.run_id, MemberChanged(member="a", prompt="You are quick."))

    result = await studio.resume(died.run_id)

    assert result.succeeded
    assert [call.system for call in studio.calls if call.agent == "a"][-2:] == ["You are slow.", "You are quick."]


async def test_a_change_of_an_unknown_member_is_a_mistake(studio: Studio) -> None:
    studio.agent("a", says=[{"says": "a is done", "delay": 0.05}] * 3)
    add_lead(studio, "reflect", "a", says=[plan(("a", "x")), f"one\n{DONE}"])

    async with studio.start("lead", "go") as run:
        with pytest.raises(Mistake, match="no agent 'b'; available: lead, a"):
            await run.change_member("b", model="m")
        await run.result()


async def test_a_change_that_cannot_be_made_is_refused_by_the_owner_and_the_run_goes_on(studio: Studio) -> None:
    studio.agent("a", says=["a is done"] * 3)
    add_lead(studio, "reflect", "a", says=[plan(("a", "x")), f"one\n{AGAIN}", plan(("a", "y")), f"two\n{DONE}"])
    died = await studio.run("lead", "go", fault=refuse_after(4))
    studio.expire_leases()
    post_to_mailbox(studio.settings.store, died.run_id, MemberChanged(member="nobody", prompt="x"))

    result = await studio.resume(died.run_id)

    assert result.succeeded
    assert any("nobody was not changed" in event.text for event in studio.events(result, Noticed))


async def test_a_message_sent_while_a_run_is_stopped_is_delivered_wherever_the_run_had_stopped(studio: Studio) -> None:
    says = [plan(("a", "x")), f"one\n{AGAIN}", plan(("a", "y")), f"two\n{AGAIN}", plan(("a", "z")), f"three\n{DONE}"]
    add_lead(studio, "reflect", "a", says=says)
    whole = await studio.run("lead", "go")
    last_turn = max(entry.seq for entry in studio.entries(whole) if entry.scope == "lead/turn#6")

    for entries in range(2, last_turn - 4):
        studio.calls.clear()
        died = await studio.run("lead", "go", fault=refuse_after(entries))
        studio.expire_leases()
        message = MessageReceived(id=f"m{entries}", to="lead", text="MIND THE GAP")
        post_to_mailbox(studio.settings.store, died.run_id, message)

        result = await studio.resume(died.run_id)

        assert result.succeeded
        assert any("MIND THE GAP" in heard for heard in studio.heard("lead")), entries


async def test_a_lead_may_answer_directly_in_a_loop_too(studio: Studio) -> None:
    add_lead(studio, "reflect", "a", says=["The answer is 42."], answer_directly=True)

    result = await studio.run("lead", "What is it?")

    assert result.text == "The answer is 42."
    assert get_reflect_ended(studio, result).end == "goal_met"


async def test_the_answer_has_no_verdict_and_no_list_of_what_was_missing_in_it(studio: Studio) -> None:
    says = [plan(("a", "x")), f"the work\n{AGAIN}\nmissing: tests", DONE]
    add_lead(studio, "reflect", "a", says=says)

    result = await studio.run("lead", "go")

    assert result.text == "the work"


async def test_a_later_plan_that_only_says_that_more_is_needed_is_no_claim(studio: Studio) -> None:
    slip = f"not yet\n{AGAIN}"
    add_lead(
        studio, "reflect", "a", says=[plan(("a", "x")), f"half\n{AGAIN}", slip, plan(("a", "y")), f"whole\n{DONE}"]
    )

    result = await studio.run("lead", "go")

    assert (result.text, get_reflect_ended(studio, result).iterations) == ("whole", 2)
    assert "it says that more work is needed, but assigns no tasks" in studio.heard("lead")[3]
    assert [one.rationale for one in studio.events(result, Evaluated)] == ["half", "whole"]


async def test_a_later_plan_without_work_and_without_the_word_complete_is_no_claim(studio: Studio) -> None:
    says = [plan(("a", "x")), f"half\n{AGAIN}\ntests", "I will write the tests now.", plan(("a", "y"))]
    add_lead(studio, "reflect", "a", says=[*says, f"whole\n{DONE}"])

    result = await studio.run("lead", "go")

    assert (result.text, get_reflect_ended(studio, result).iterations) == ("whole", 2)
    assert f"reply with a line that contains only {DONE}" in studio.heard("lead")[3]


async def test_what_is_missing_may_stand_behind_the_sentinel_and_wins_over_a_completion(studio: Studio) -> None:
    says = [plan(("a", "x")), f"half\n{AGAIN} the tests\n{DONE}", plan(("a", "y")), f"whole\n{DONE}"]
    add_lead(studio, "reflect", "a", says=says)

    result = await studio.run("lead", "go")

    first = studio.events(result, Evaluated)[0]
    assert (first.is_complete, first.score) == (False, 0.4)
    assert "The last evaluation: the tests" in studio.heard("lead")[2]
    assert result.text == "whole"


async def test_a_synthesis_of_a_sentinel_alone_is_not_complete(studio: Studio) -> None:
    add_lead(studio, "reflect", "a", says=[plan(("a", "x")), DONE, plan(("a", "y")), f"whole\n{DONE}"])

    result = await studio.run("lead", "go")

    assert [one.is_complete for one in studio.events(result, Evaluated)] == [False, True]
    assert result.text == "whole"


async def test_no_judge_completes_an_empty_answer(studio: Studio) -> None:
    studio.agent("judge", says=["SCORE: 1.0\nRATIONALE: fine"])
    says = [plan(("a", "x")), f"{AGAIN} all of it", plan(("a", "y")), "whole"]
    add_lead(studio, "reflect", "a", says=says, evaluator="judge")

    result = await studio.run("lead", "go")

    assert [one.held_back for one in studio.events(result, Evaluated)] == ["the answer is empty", ""]
    assert result.text == "whole"


async def test_an_evaluator_whose_reply_has_no_score_is_asked_once_more_without_that_reply(studio: Studio) -> None:
    studio.agent("judge", says=["Looks good to me!", '{"score": 0.95, "rationale": "all there"}'])
    add_lead(studio, "reflect", "a", says=[plan(("a", "x")), "whole"], evaluator="judge")

    result = await studio.run("lead", "go")

    assert [one.score for one in studio.events(result, Evaluated)] == [0.95]
    [corrected] = [call.messages for call in studio.calls if call.agent == "judge"][1]
    assert "Looks good" not in corrected.text
    assert "had no score" in corrected.text


@pytest.mark.parametrize("said", ["SCORE: 8", "SCORE: 7.5", "Score: 100", '{"score": 85}', "SCORE: 12/10", "SCORE: -1"])
async def test_a_score_of_unknown_scale_is_asked_for_again_and_never_meets_the_goal(studio: Studio, said: str) -> None:
    studio.agent("judge", says=[said, said])
    add_lead(studio, "reflect", "a", says=[plan(("a", "x")), "whole"], evaluator="judge", max_iterations=1)

    result = await studio.run("lead", "go")

    assert [one.score for one in studio.events(result, Evaluated)] == [0.5]
    assert len(studio.heard("judge")) == 2
    assert not result.succeeded


@pytest.mark.parametrize(("said", "score"), [("SCORE: 8/10", 0.8), ("SCORE: 85 %", 0.85), ("SCORE: 1", 1.0)])
async def test_a_score_with_its_scale_is_a_score(studio: Studio, said: str, score: float) -> None:
    studio.agent("judge", says=[said])
    add_lead(studio, "reflect", "a", says=[plan(("a", "x")), "whole"], evaluator="judge", max_iterations=1)

    result = await studio.run("lead", "go")

    assert [one.score for one in studio.events(result, Evaluated)] == [score]


async def test_a_second_plan_with_the_sentinel_below_it_does_not_meet_the_goal(studio: Studio) -> None:
    second = f"@worker:a look again\n{DONE}"
    add_lead(studio, "reflect", "a", says=[plan(("a", "x")), second, f"whole\n{DONE}"])

    result = await studio.run("lead", "go")

    assert result.text == "whole"
    assert [one.is_complete for one in studio.events(result, Evaluated)] == [True]


async def test_an_evaluator_that_never_gives_a_score_leaves_it_at_half(studio: Studio) -> None:
    studio.agent("judge", says=["Looks good to me!", "Yes, really."])
    add_lead(studio, "reflect", "a", says=[plan(("a", "x")), "whole"], evaluator="judge", max_iterations=1)

    result = await studio.run("lead", "go")

    assert [(one.score, one.rationale) for one in studio.events(result, Evaluated)] == [(0.5, "Looks good to me!")]


async def test_a_structured_plan_may_claim_completion_in_a_later_iteration(studio: Studio) -> None:
    says = [plan(("a", "x")), f"half\n{AGAIN}", '{"assignments": [], "complete": true}']
    add_lead(studio, "reflect", "a", says=says)

    result = await studio.run("lead", "go")

    assert (result.outcome, result.text) == ("succeeded", "half")


async def test_parts_are_in_member_order_whatever_the_plan_says(studio: Studio) -> None:
    add_lead(studio, "orchestrate", "a", "b", "c", says=[plan(("c", "3"), ("a", "1"), ("b", "2")), "all"])

    result = await studio.run("lead", "go")

    assert [part.agent for part in result.parts] == ["a", "b", "c"]


async def test_how_long_a_worker_took_is_known_after_a_resume(studio: Studio) -> None:
    studio.agent("a", says=[{"says": "a is done", "delay": 0.6}])
    add_lead(studio, "orchestrate", "a", says=[plan(("a", "x")), "all"])
    whole = await studio.run("lead", "go")
    at = next(entry.seq for entry in studio.entries(whole) if entry.key == "lead/member:a#1")
    died = await studio.run("lead", "go", fault=refuse_after(at))
    studio.expire_leases()

    await studio.resume(died.run_id)

    assert "### a (succeeded, " in studio.heard("lead")[-1]
    assert "### a (succeeded, 0 s)" not in studio.heard("lead")[-1]


async def test_a_worker_without_a_prompt_gets_a_default_prompt(studio: Studio) -> None:
    add_lead(studio, "orchestrate", "a", says=[plan(("a", "x")), "all"])

    await studio.run("lead", "go")

    [system] = [call.system for call in studio.calls if call.agent == "a"]
    assert system.startswith("You are a worker agent.")


@pytest.mark.parametrize("template", ["{request.x} go", "{workers[x]}", "{request:>30000000}", "{", "{0}", "{unknown}"])
async def test_no_template_of_a_team_breaks_its_run(studio: Studio, template: str) -> None:
    add_lead(studio, "orchestrate", "a", says=[plan(("a", "x")), "all"], prompts={"plan": template})

    result = await studio.run("lead", "go")

    assert result.text == "all"
    assert studio.heard("lead")[0] == template
