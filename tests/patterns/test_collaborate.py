"""Collaborate: a team plans, carries out, hands over, reviews and delivers a piece of work."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from podium.engines.script import Move
from podium.store.fault_injection import refuse_after
from podium.values.agent import Member, Team
from podium.values.errors import Mistake
from podium.values.event import (
    ModelReplied,
    PlanCommitted,
    PlanRefused,
    PlanReviewed,
    PlanStepBlocked,
    PlanStepCompleted,
    PlanStepFailed,
    PlanStepHandedOver,
    PlanStepReopened,
    PlanStepReviewed,
    PlanStepStarted,
    PlanStepUnblocked,
    TeamFormed,
    WorkEnded,
    WorkStateChanged,
)
from podium.values.usage import Usage

from ..collaboration import Play, add_team, make_plan, make_step, use_tool
from ..studio import Studio

STEP_EVENTS = (
    PlanStepStarted,
    PlanStepHandedOver,
    PlanStepBlocked,
    PlanStepUnblocked,
    PlanStepReviewed,
    PlanStepReopened,
    PlanStepCompleted,
    PlanStepFailed,
)
TWO_STEPS = make_plan(make_step("s1", "ada"), make_step("s2", "bob", "s1"))


async def test_a_team_plans_works_reviews_and_reports(studio: Studio) -> None:
    play = Play(plan=TWO_STEPS, report="all is done")
    add_team(studio, play, "ada", "bob")

    result = await studio.run("lead", "ship it")

    assert result.error is None
    assert result.text == "all is done"
    states = [event.state for event in studio.events(result, WorkStateChanged)]
    assert states == ["planning", "executing", "reviewing", "completed"]
    assert [(one.step, one.owner) for one in studio.events(result, PlanStepCompleted)] == [("s1", "ada"), ("s2", "bob")]
    assert [one.reviewer for one in studio.events(result, PlanStepReviewed)] == ["bob", "ada"]


async def test_what_the_goal_needs_and_nobody_offers_is_said_before_the_work_starts(studio: Studio) -> None:
    play = Play(plan=make_plan(make_step("s1", "ada")))
    add_team(studio, play, Member(agent="ada", role="coder", capabilities=("python",)), needs=("python", "design"))

    result = await studio.run("lead", "ship it")

    (formed,) = studio.events(result, TeamFormed)
    assert formed.missing == ("design",)
    kinds = studio.kinds(result)
    assert kinds.index("team_formed") < kinds.index("noticed") < kinds.index("plan_drafted")


async def test_a_member_with_the_role_planner_plans_and_the_others_review(studio: Studio) -> None:
    play = Play(plan=make_plan(make_step("s1", "ada")))
    add_team(studio, play, Member(agent="pia", role="planner"), "ada", "bob")

    result = await studio.run("lead", "ship it")

    assert play.kinds[0] == "pia plan"
    assert {one.reviewer for one in studio.events(result, PlanReviewed)} == {"ada", "bob"}


async def test_a_plan_is_revised_at_most_twice_and_committed_with_what_is_still_wanted(studio: Studio) -> None:
    play = Play(plan=TWO_STEPS, **{"bob/review_plan": "CHANGE: there are no tests"})
    add_team(studio, play, "ada", "bob")

    result = await studio.run("lead", "ship it")

    (committed,) = studio.events(result, PlanCommitted)
    assert committed.objections == ("bob: there are no tests",)
    assert play.kinds.count("lead plan") == 3
    assert result.succeeded


async def test_an_invalid_plan_is_refused_with_every_reason_and_asked_for_again(studio: Studio) -> None:
    bad = make_plan(make_step("s1", "zoe", "s9", acceptance=[]))
    play = Play(plan=[bad, TWO_STEPS])
    add_team(studio, play, "ada", "bob")

    result = await studio.run("lead", "ship it")

    (refused,) = studio.events(result, PlanRefused)
    assert refused.problems == (
        "step 's1' is owned by 'zoe', which is not a member; members: ada, bob",
        "step 's1' has no acceptance criteria",
        "step 's1' depends on 's9', which is not a step of the plan",
    )
    assert result.succeeded
    [corrected] = next(call.messages for call in studio.calls if "An earlier plan" in call.messages[-1].text)
    assert "'s1' has no acceptance criteria" in corrected.text
    assert "zoe" not in corrected.text.replace("'zoe', which is not a member", "")


async def test_a_planner_without_a_valid_plan_fails_the_run_with_the_reason(studio: Studio) -> None:
    add_team(studio, Play(plan="I would rather not"), "ada", "bob")

    result = await studio.run("lead", "ship it")

    assert "its planner did not write a valid plan: the reply contains no plan" in str(result.error)
    assert [event.state for event in studio.events(result, WorkStateChanged)] == ["planning", "error"]


async def test_a_step_is_handed_over_with_its_reason_and_context(studio: Studio) -> None:
    handover = use_tool("handoff_step", to="bob", reason="it needs SQL", context="the schema is done")
    play = Play(plan=make_plan(make_step("s1", "ada")), **{"ada/step:s1": handover, "bob/step:s1": "finished"})
    add_team(studio, play, "ada", "bob")

    result = await studio.run("lead", "ship it")

    (over,) = studio.events(result, PlanStepHandedOver)
    assert (over.sender, over.receiver, over.reason, over.refused) == ("ada", "bob", "it needs SQL", "")
    prompt = next(text for text in studio.heard("bob") if text.startswith("You own one step"))
    assert "> it needs SQL" in prompt
    assert "> the schema is done" in prompt
    assert studio.events(result, PlanStepCompleted)[0].owner == "bob"
    assert studio.events(result, PlanStepReviewed)[0].reviewer == "lead"  # both members worked on it


async def test_a_handover_to_a_stranger_or_to_oneself_is_refused_and_the_owner_goes_on(studio: Studio) -> None:
    play = Play(
        plan=make_plan(make_step("s1", "ada")),
        **{
            "ada/step:s1": [
                use_tool("handoff_step", to="zoe", reason="r"),
                use_tool("handoff_step", to="Ada", reason="r"),
                "finished",
            ]
        },
    )
    add_team(studio, play, "ada", "bob")

    result = await studio.run("lead", "ship it")

    assert [one.refused for one in studio.events(result, PlanStepHandedOver)] == [
        "'zoe' is not a member of the team; members: ada, bob",
        "ada already owns the step",
    ]
    assert result.succeeded


async def test_a_step_that_is_not_accepted_is_reopened_with_the_findings(studio: Studio) -> None:
    play = Play(plan=make_plan(make_step("s1", "ada")), review=["1: NOT MET: there is no test", "1: MET"])
    add_team(studio, play, "ada", "bob")

    result = await studio.run("lead", "ship it")

    (reopened,) = studio.events(result, PlanStepReopened)
    assert reopened.reason == "- it works: there is no test"
    assert [one.attempt for one in studio.events(result, PlanStepStarted)] == [1, 2]
    assert any("there is no test" in text for text in studio.heard("ada"))
    assert result.succeeded


async def test_a_locked_out_author_does_not_revise_its_own_work(studio: Studio) -> None:
    play = Play(plan=make_plan(make_step("s1", "ada")), review=["1: NOT MET: no", "1: MET"])
    add_team(studio, play, "ada", "bob", Member(agent="rex", role="reviewer"), lockout=True)

    result = await studio.run("lead", "ship it")

    (reopened,) = studio.events(result, PlanStepReopened)
    assert reopened.locked_out == "ada"
    assert [one.owner for one in studio.events(result, PlanStepStarted)] == ["ada", "bob"]


async def test_nobody_reviews_a_step_that_they_worked_on(studio: Studio) -> None:
    steps = [make_step("s1", "ada"), make_step("s2", "rex")]
    add_team(studio, Play(plan=make_plan(*steps)), "ada", Member(agent="rex", role="reviewer"))

    result = await studio.run("lead", "ship it")

    reviews = {one.step: one.reviewer for one in studio.events(result, PlanStepReviewed)}
    assert reviews == {"s1": "rex", "s2": "ada"}


async def test_the_lead_reviews_the_work_of_its_only_member(studio: Studio) -> None:
    add_team(studio, Play(plan=make_plan(make_step("s1", "ada"))), "ada")

    result = await studio.run("lead", "ship it")

    assert [one.reviewer for one in studio.events(result, PlanStepReviewed)] == ["lead"]


async def test_a_reviewer_who_forgets_criteria_is_asked_for_them_once(studio: Studio) -> None:
    step = make_step("s1", "ada", acceptance=["it works", "it is fast", "it is small"])
    play = Play(plan=make_plan(step), **{"review:s1": "1: MET", "review": "2: NOT MET: it is slow\n3: MET"})
    add_team(studio, play, "ada", "bob", max_attempts=1)

    result = await studio.run("lead", "ship it")

    reviewed = studio.events(result, PlanStepReviewed)[0]
    assert [(one.is_met, one.reason) for one in reviewed.findings] == [(True, ""), (False, "it is slow"), (True, "")]
    assert any("That reply gives no verdict on criteria 2, 3." in words for words in studio.heard("bob"))


async def test_when_a_step_fails_its_dependants_are_blocked_and_the_rest_is_planned_once_more(studio: Studio) -> None:
    second = make_plan(make_step("t1", "bob"), make_step("t2", "bob", "t1"))
    play = Play(plan=[TWO_STEPS, second], **{"review:s1": "1: NOT MET: it is wrong"})
    add_team(studio, play, "ada", "bob")

    result = await studio.run("lead", "ship it")

    assert [one.step for one in studio.events(result, PlanStepFailed)] == ["s1"]
    (blocked,) = studio.events(result, PlanStepBlocked)
    assert (blocked.step, blocked.reason) == ("s2", "it depends on s1, which failed")
    assert [one.version for one in studio.events(result, PlanCommitted)] == [1, 2]
    assert studio.events(result, WorkEnded)[0].done == ("t1", "t2")
    assert result.succeeded


async def test_what_could_not_be_done_is_listed_and_is_no_success(studio: Studio) -> None:
    play = Play(plan=TWO_STEPS, **{"review:s1": "1: NOT MET: it is wrong"})
    add_team(studio, play, "ada", "bob")

    result = await studio.run("lead", "ship it")

    assert not result.succeeded
    ended = studio.events(result, WorkEnded)[0]
    assert [one.step for one in ended.undone] == ["s1", "s2"]
    assert "part of the work was not done (s1: " in str(result.error)
    assert any("Not done: s2: it depends on s1, which failed" in part.text for part in result.parts)


async def test_steps_that_do_not_depend_on_each_other_run_at_once(studio: Studio) -> None:
    steps = [make_step(f"s{number}", "ada") for number in range(3)]
    add_team(studio, Play(plan=make_plan(*steps)), "ada", "bob", max_concurrent=2)

    result = await studio.run("lead", "ship it")

    order = [(type(one).__name__, one.step) for one in studio.events(result, PlanStepStarted, PlanStepCompleted)]
    assert [kind for kind, _ in order[:2]] == ["PlanStepStarted", "PlanStepStarted"]
    assert order[2][0] == "PlanStepCompleted"


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.slow)])
async def test_a_collaboration_that_dies_at_any_entry_ends_the_same_and_repeats_no_finished_call(
    studio: Studio, stride: int
) -> None:
    steps = [make_step("s1", "ada"), make_step("s2", "bob"), make_step("s3", "ada", "s1", "s2")]
    blocker = use_tool("raise_blocker", topic="tabs or spaces?", options=["tabs", "spaces"])
    handover = use_tool("handoff_step", to="bob", reason="r")

    def make_play() -> Play:
        return Play(
            plan=make_plan(*steps),
            vote=use_tool("cast_ballot", option="tabs", reason="wide"),
            **{
                "ada/step:s1": [handover],
                "bob/step:s2": [blocker, "done"],
                "review:s3": ["1: NOT MET: no", "1: MET"],
            },
        )

    add_team(studio, make_play(), "ada", "bob", "cid")
    whole = await studio.run("lead", "go")
    assert whole.succeeded, whole.error
    calls = len(studio.events(whole, ModelReplied))
    changes = sorted(map(repr, studio.events(whole, *STEP_EVENTS)))
    for number in range(2, len(studio.entries(whole)) + 1, stride):
        studio.respond = make_play()
        first = await studio.run("lead", "go", fault=refuse_after(number))
        studio.expire_leases()
        result = first if first.succeeded else await studio.resume(first.run_id)

        assert (result.text, result.outcome) == (whole.text, whole.outcome), (number, result.error)
        assert len(studio.events(result, ModelReplied)) == calls, number
        assert len(studio.events(result, *STEP_EVENTS)) == len(changes), number


async def test_a_member_that_is_locked_out_does_not_get_the_step_back_by_a_handover(studio: Studio) -> None:
    play = Play(
        plan=make_plan(make_step("s1", "ada")),
        review=["1: NOT MET: no", "1: MET"],
        **{"bob/step:s1": [use_tool("handoff_step", to="ada", reason="r"), "done"]},
    )
    add_team(studio, play, "ada", "bob", Member(agent="rex", role="reviewer"), lockout=True)

    result = await studio.run("lead", "ship it")

    (over,) = studio.events(result, PlanStepHandedOver)
    assert over.refused == "ada is locked out, because its work on this step was not accepted"
    assert result.succeeded


async def test_a_lead_with_the_name_of_the_author_does_not_review_the_step(studio: Studio) -> None:
    add_team(studio, Play(plan=make_plan(make_step("s1", "lead"))), Member(agent="ada", name="lead"))

    result = await studio.run("lead", "ship it")

    assert not result.succeeded
    assert "no member reviewed the step: every member has worked on this step" in str(result.error)
    assert studio.events(result, PlanStepReviewed) == []


async def test_other_steps_go_on_while_one_waits_for_a_decision(studio: Studio) -> None:
    blocker = use_tool("raise_blocker", topic="tabs or spaces?", options=["tabs", "spaces"])
    play = Play(
        plan=make_plan(make_step("s1", "ada"), make_step("s2", "bob")),
        vote=use_tool("cast_ballot", option="tabs", reason="wide"),
        **{"ada/step:s1": [blocker, "done"]},
    )
    add_team(studio, play, "ada", "bob", max_concurrent=1)

    result = await studio.run("lead", "ship it")

    order = [(type(one).__name__, one.step) for one in studio.events(result, *STEP_EVENTS)]
    assert order.index(("PlanStepStarted", "s2")) < order.index(("PlanStepUnblocked", "s1"))


async def test_a_team_inside_a_team_works_on_its_own_step_and_not_on_the_whole_request(studio: Studio) -> None:
    play = Play(plan=[make_plan(make_step("s1", "inner")), make_plan(make_step("t1", "ada"))])
    add_team(studio, play, "inner", "bob")
    studio.agent("ada")
    studio.agent("inner", team=Team(mode="collaborate", members=(Member(agent="ada"),)))
    studio.scripts.clear()

    result = await studio.run("lead", "ship it")

    inner = studio.events(result, TeamFormed)[1]
    assert "## Your step: s1" in inner.goal


async def test_what_a_second_plan_does_without_is_listed_in_the_report(studio: Studio) -> None:
    play = Play(plan=[TWO_STEPS, make_plan(make_step("t1", "bob"))], **{"review:s1": "1: NOT MET: it is wrong"})
    add_team(studio, play, "ada", "bob")

    result = await studio.run("lead", "ship it")

    assert [one.step for one in studio.events(result, WorkEnded)[0].replaced] == ["s1", "s2"]
    assert "Replaced by the second plan: s1:" in result.text


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"vote": "majorty"}, "'majorty' is not a vote rule"),
        ({"vote": "quorum:9"}, "leads a team of 1 member with vote: quorum:9; use a quorum that it can reach"),
        ({"worktrees": "lead"}, "the lead of such a team changes no files and needs no checkout of its own; use team"),
    ],
)
async def test_a_team_that_could_not_work_is_refused_before_the_run_starts(
    studio: Studio, options: dict[str, Any], sentence: str
) -> None:
    add_team(studio, Play(), "ada", **options)

    with pytest.raises(Mistake, match=sentence):
        await studio.run("lead", "ship it")


async def test_the_seconds_of_a_step_hold_for_all_turns_of_its_owners_and_the_run_goes_on(studio: Studio) -> None:
    handover = Move(delay=0.6, calls=use_tool("handoff_step", to="bob", reason="r").calls)
    play = Play(
        plan=[make_plan(make_step("s1", "ada", policy={"seconds": 1}), make_step("s2", "bob")), "no more"],
        **{"ada/step:s1": handover, "bob/step:s1": Move(says="done", delay=0.6)},
    )
    add_team(studio, play, "ada", "bob")

    result = await studio.run("lead", "ship it")

    (failed,) = studio.events(result, PlanStepFailed)
    assert (failed.step, failed.reason) == ("s1", "bob: step s1's budget of 1 s is used up")
    assert [one.step for one in studio.events(result, PlanStepCompleted)] == ["s2"]
    assert "part of the work was not done (s1: bob: step s1's budget" in str(result.error)


async def test_a_step_that_uses_up_its_tokens_fails_and_the_run_goes_on(studio: Studio) -> None:
    call = use_tool("raise_blocker", topic="tabs or spaces?", options=["tabs", "spaces"])
    blocker = structs.replace(call, usage=Usage(input_tokens=8000, output_tokens=900, calls=1))
    play = Play(
        plan=[make_plan(make_step("s1", "ada", policy={"tokens": 9000}), make_step("s2", "bob")), "no more"],
        vote=use_tool("cast_ballot", option="tabs", reason="wide"),
        **{"ada/step:s1": [blocker, "done"]},
    )
    add_team(studio, play, "ada", "bob")

    result = await studio.run("lead", "ship it")

    (failed,) = studio.events(result, PlanStepFailed)
    assert failed.step == "s1"
    assert "step s1's budget of 9,000 tokens is not enough for the next model call" in failed.reason
    assert len(studio.events(result, PlanStepUnblocked)) == 1
    assert [one.step for one in studio.events(result, PlanStepCompleted)] == ["s2"]
