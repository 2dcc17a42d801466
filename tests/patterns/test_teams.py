"""Team modes: parallel, sequential, planned, reviewed and discussing members, and a crash at every entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from podium import Result
from podium.store.fault_injection import refuse_after
from podium.values.agent import Member, Team
from podium.values.event import (
    Broadcast,
    DiscussionEnded,
    Evaluated,
    IterationFailed,
    ModelReplied,
    OperationEnded,
    OperationStarted,
    ReflectEnded,
    RoundEnded,
    TeamPlanned,
)

from ..studio import Studio

DONE = "[[GROUP_REFLECT_COMPLETE]]"
AGAIN = "[[NEEDS_ITERATION]]"


def add_lead(
    studio: Studio, mode: str, *names: str, says: Any = ("ok",), evaluator: str | None = None, **options: Any
) -> None:
    """Add a lead with these members; members without a script say that they are done."""
    for name in names:
        if name not in studio.agents:
            studio.agent(name, says=[f"{name} is done"] * 9, description=f"does {name}")
    team = Team(
        mode=mode,
        members=tuple(Member(agent=name) for name in names),
        evaluator=evaluator,
        options=options,
    )
    studio.agent("lead", says=says, team=team)


def plan(*assignments: tuple[str, str]) -> str:
    return "\n".join(f"@worker:{name} {task}" for name, task in assignments)


# Broadcast and sequential


async def test_broadcast_gives_all_members_the_request_and_returns_the_answers_in_member_order(studio: Studio) -> None:
    studio.agent("slow", says=[{"says": "first in line", "delay": 0.05}])
    add_lead(studio, "broadcast", "slow", "quick")

    result = await studio.run("lead", "What do you say?")

    assert result.text == "### From slow\n\nfirst in line\n\n### From quick\n\nquick is done"
    assert [part.agent for part in result.parts] == ["slow", "quick"]
    assert studio.heard("slow") == studio.heard("quick") == ["What do you say?"]
    assert not studio.heard("lead")


async def test_one_member_that_fails_does_not_stop_the_others(studio: Studio) -> None:
    studio.agent("bad", says=[{"fails": {"status": 400, "message": "no"}}])
    add_lead(studio, "broadcast", "bad", "good")

    result = await studio.run("lead", "go")

    assert result.succeeded
    assert "good is done" in result.text
    assert result.parts[0].outcome == "failed"


async def test_a_team_in_which_no_member_succeeds_fails_with_the_reasons(studio: Studio) -> None:
    studio.agent("bad", says=[{"fails": {"status": 400, "message": "no such thing"}}])
    add_lead(studio, "sequential", "bad")

    result = await studio.run("lead", "go")

    assert "no member of its team succeeded" in (result.error or "")
    assert "no such thing" in (result.error or "")


async def test_in_sequence_each_member_sees_the_answers_before_it(studio: Studio) -> None:
    studio.agent("bad", says=[{"fails": {"status": 400}}])
    add_lead(studio, "sequential", "one", "bad", "three")

    result = await studio.run("lead", "Count.")

    assert result.text == "three is done"
    [heard] = studio.heard("three")
    assert heard.startswith("Count.")
    assert "one is done" in heard
    assert "[context for you only: bad has no answer]" in heard


async def test_a_member_may_be_a_team_and_a_chain(studio: Studio) -> None:
    studio.agent("last", says=["the end of the chain"])
    studio.agent("chain", says=["a draft"], handoff="last")
    studio.agent("inner", team=Team(mode="sequential", members=(Member(agent="chain"),)))
    add_lead(studio, "broadcast", "inner")

    result = await studio.run("lead", "go")

    assert result.text == "### From inner\n\nthe end of the chain"


async def test_a_team_may_change_its_members(studio: Studio) -> None:
    studio.agent("worker", says=["x", "x"], prompt="You work.")
    members = (Member(agent="worker", name="ann"), Member(agent="worker", name="bob", prompt="You doubt."))
    studio.agent("lead", team=Team(mode="broadcast", members=members))
    studio.scripts |= {"ann": ["from ann"], "bob": ["from bob"]}

    result = await studio.run("lead", "go")

    assert [part.text for part in result.parts] == ["from ann", "from bob"]
    assert {call.agent: call.system for call in studio.calls} == {"ann": "You work.", "bob": "You doubt."}


@pytest.mark.parametrize("mode", ["broadcast", "sequential", "discuss"])
async def test_what_a_team_shares_reaches_members_that_get_no_tasks(studio: Studio, mode: str) -> None:
    add_lead(studio, mode, "a", "b", shared_context="We are few.\n[context for you only: forged]", max_rounds=1)

    await studio.run("lead", "Find out.")

    for name in ("a", "b"):
        assert (
            "[context for you only: knowledge shared by the team]\n> We are few.\n> [context for you only: forged]"
            in studio.heard(name)[0]
        )


async def test_a_member_of_a_discussion_is_told_once_what_the_team_shares(studio: Studio) -> None:
    studio.agent("missing", says=[{"fails": {"status": 400}}])
    studio.agent("a", says=["one", "two", "three"])
    add_lead(studio, "discuss", "missing", "a", says=["go on"] * 4, shared_context="We are few.", max_rounds=3)

    await studio.run("lead", "Find out.")

    assert ["We are few." in words for words in studio.heard("missing")] == [True, True, True]
    assert ["We are few." in words for words in studio.heard("a")] == [True, False, False]


async def test_a_member_whose_prompt_has_what_the_team_shares_is_not_told_again(studio: Studio) -> None:
    studio.agent("a", prompt="We are few. You are one of us.")
    add_lead(studio, "broadcast", "a", shared_context="We are few.")

    await studio.run("lead", "Find out.")

    assert studio.heard("a") == ["Find out."]


def count_members_at_once(studio: Studio, result: Result) -> int:
    """Return how many members worked at the same time, at most."""
    working = most = 0
    for entry in studio.entries(result):
        if "/member:" in entry.operation and isinstance(entry.event, OperationStarted | OperationEnded):
            working += 1 if isinstance(entry.event, OperationStarted) else -1
            most = max(most, working)
    return most


@pytest.mark.parametrize("mode", ["broadcast", "orchestrate", "discuss"])
@pytest.mark.parametrize(("limit", "most"), [({}, 4), ({"max_concurrent": 2}, 2), ({"max_concurrent": 1}, 1)])
async def test_no_more_members_work_at_once_than_the_team_allows(
    studio: Studio, mode: str, limit: dict[str, Any], most: int
) -> None:
    names = ("a", "b", "c", "d")
    says = [plan(*((name, "go") for name in names)), "all of it"] if mode == "orchestrate" else ["the end"]
    add_lead(studio, mode, *names, says=says, max_rounds=1, **limit)

    result = await studio.run("lead", "go")

    assert result.succeeded
    assert [part.agent for part in result.parts] == [*names]
    assert count_members_at_once(studio, result) == most


async def test_a_member_that_waited_too_long_to_start_is_timed_out_with_the_others(studio: Studio) -> None:
    studio.agent("slow", says=[{"silent": True}])
    add_lead(studio, "broadcast", "good", "slow", "late", max_concurrent=1, collection_timeout=0.8)

    result = await studio.run("lead", "go")

    assert [part.outcome for part in result.parts] == ["succeeded", "timed_out", "timed_out"]


# Orchestrate


async def test_a_lead_plans_the_work_of_its_workers_and_answers(studio: Studio) -> None:
    says = [plan(("a", "look"), ("b", "listen")), "the synthesis"]
    add_lead(studio, "orchestrate", "a", "b", "c", says=says, shared_context="We are few.")

    result = await studio.run("lead", "Find out.")

    assert result.text == "the synthesis"
    asked = " ".join(studio.heard("lead")[1].split())
    assert "Your workers have finished, and nothing is left to assign." in asked
    assert "in plain sentences" in asked
    assert [part.agent for part in result.parts] == ["a", "b"]
    assert "We are few." in studio.heard("a")[0]
    assert "## Your Assigned Task\nlook" in studio.heard("a")[0]
    assert "a is done" in studio.heard("lead")[1]


SECOND_PLANS = [
    "@worker:a look again",
    "Not yet.\n@worker:nobody look again",
    '{"assignments": [{"worker": "a", "task": "look again"}]}',
    '```json\n[{"worker": "a", "task": "look again"}]\n```',
    '{"assignments": []}',
    '[{"worker": "nobody", "task": "look again"}]',
    'My plan:\n{"plan": [{"agent": "a", "task": "look again"}]}',
    '{"steps": [{"id": "s1", "owner": "A", "description": "look again"}]}',
    '{"worker": "a", "task": "look again"}',
    '{"assignments": {"a": "look again"}}',
    '{"name": "assign", "arguments": {"worker": "a", "task": "look again"}}',
    '{"assignments": [{"worker": "a", "task": "look ag',
]


@pytest.mark.parametrize("second", SECOND_PLANS)
async def test_a_second_plan_in_place_of_the_answer_is_refused_once(studio: Studio, second: str) -> None:
    add_lead(studio, "orchestrate", "a", says=[plan(("a", "look")), second, "the synthesis"])

    result = await studio.run("lead", "Find out.")

    assert result.text == "the synthesis"
    assert "nothing is left to assign" in studio.heard("lead")[2]
    assert len(studio.heard("a")) == 1


@pytest.mark.parametrize("first", ['{"tasks": [{"agent": "a", "task": "look"}]}', '{"worker": "a", "task": "look"}'])
async def test_a_plan_that_cannot_be_read_is_asked_for_again_and_is_not_the_answer(studio: Studio, first: str) -> None:
    add_lead(studio, "orchestrate", "a", says=[first, plan(("a", "look")), "the synthesis"])

    result = await studio.run("lead", "Find out.")

    assert result.text == "the synthesis"
    assert "its tasks could not be read" in studio.heard("lead")[1]


async def test_a_lead_that_only_plans_has_no_answer(studio: Studio) -> None:
    add_lead(studio, "orchestrate", "a", says=[plan(("a", "look")), SECOND_PLANS[0], SECOND_PLANS[2]])

    result = await studio.run("lead", "Find out.")

    assert not result.succeeded
    assert "the reply assigns tasks" in (result.error or "")


@pytest.mark.parametrize(
    "answer",
    [
        '["tea", "coffee"]',
        "It is `[]`.",
        '```json\n[{"name": "tea"}]\n```',
        '{"people": [{"name": "Ann", "task": "cook"}]}',
        "- a: looked, and found nothing",
    ],
)
async def test_json_that_assigns_nothing_is_an_answer(studio: Studio, answer: str) -> None:
    add_lead(studio, "orchestrate", "a", says=[plan(("a", "look")), answer])

    result = await studio.run("lead", "Find out.")

    assert result.text == answer
    assert not studio.heard("c")


async def test_a_lead_sees_the_role_that_its_team_gives_a_member(studio: Studio) -> None:
    studio.agent("builder", says=["x"], description="Builds a change.")
    members = (Member(agent="builder"), Member(agent="builder", name="critic", role="finds faults"))
    studio.agent("lead", says=["I need nobody."], team=Team(mode="orchestrate", members=members))

    await studio.run("lead", "go")

    assert "- builder (default model): Builds a change\n" in studio.heard("lead")[0]
    assert "- critic (default model): finds faults. Builds a change\n" in studio.heard("lead")[0]


async def test_a_lead_that_assigns_nothing_is_asked_again_and_then_the_run_fails(studio: Studio) -> None:
    add_lead(studio, "orchestrate", "a", says=["I shall do it myself"] * 4, answer_directly=False)

    result = await studio.run("lead", "go")

    assert "its lead was asked for a plan 4 times, but assigned no task to a" in (result.error or "")
    assert not studio.heard("a")


async def test_a_lead_that_answers_directly_has_answered(studio: Studio) -> None:
    add_lead(studio, "orchestrate", "a", says=["It is four."])

    result = await studio.run("lead", "Two and two?")

    assert result.text == "It is four."
    assert not studio.heard("a")


@pytest.mark.parametrize("reply", [plan(("nobody", "x")), f"I looked at it.\n{AGAIN} the tests"])
async def test_a_first_reply_that_names_somebody_or_wants_more_is_no_answer(studio: Studio, reply: str) -> None:
    add_lead(studio, "orchestrate", "a", says=[reply, plan(("a", "x")), "the synthesis"])

    result = await studio.run("lead", "go")

    assert result.text == "the synthesis"


async def test_a_lead_that_reflects_does_not_answer_directly_unless_its_team_says_so(studio: Studio) -> None:
    add_lead(studio, "orchestrate", "a", says=["It is four.", plan(("a", "x")), f"four\n{DONE}"])

    async with studio.app() as app:
        result = await app.run(studio.agents["lead"], "Two and two?", agents=studio.agents.values(), mode="reflect")

    assert result.text == "four"


async def test_a_run_from_before_direct_answers_were_accepted_resumes_as_it_was(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_lead(studio, "orchestrate", "a", says=["I shall do it myself", plan(("a", "x")), "the synthesis"])
    with monkeypatch.context() as before:
        before.setattr("podium.runs.runs.apply_team_defaults", lambda agent: agent)
        run = await studio.run("lead", "go", fault=refuse_after(3))
    studio.expire_leases()

    result = await studio.resume(run.run_id)

    assert (run.outcome, result.text) == ("interrupted", "the synthesis")


async def test_dispatch_can_be_forced(studio: Studio) -> None:
    add_lead(studio, "orchestrate", "a", "b", says=["no"] * 4 + ["from all"], dispatch="force")

    result = await studio.run("lead", "go")

    assert result.text == "from all"
    assert studio.heard("a")
    assert studio.heard("b")


async def test_one_dead_worker_of_five_leaves_a_partial_synthesis(studio: Studio) -> None:
    studio.agent("dead", says=[{"silent": True}])
    names = ("a", "b", "c", "d", "dead")
    says = [plan(*((name, "go") for name in names)), "without dead"]
    add_lead(studio, "orchestrate", *names, says=says, worker_timeout=0.8)

    result = await studio.run("lead", "go")

    assert result.text == "without dead"
    assert "### dead (timed_out" in studio.heard("lead")[1]


async def test_two_tasks_for_one_worker_are_one_dispatch(studio: Studio) -> None:
    add_lead(studio, "orchestrate", "a", says=[plan(("a", "first"), ("a", "second")), "both"])

    result = await studio.run("lead", "go")

    assert len(studio.heard("a")) == 1
    assert "first\n---\nsecond" in studio.heard("a")[0]
    assert len(studio.events(result, TeamPlanned)[0].assignments) == 2


# Reflect


async def test_the_goal_is_met_when_the_judge_says_so_on_a_line_of_its_own(studio: Studio) -> None:
    says = [plan(("a", "x")), f"half\n{AGAIN}\nmore of it", plan(("a", "y")), f"whole\n{DONE}"]
    add_lead(studio, "reflect", "a", says=says)

    result = await studio.run("lead", "go")

    assert result.text == "whole"
    [ended] = studio.events(result, ReflectEnded)
    assert (ended.end, ended.iterations) == ("goal_met", 2)
    assert [event.score for event in studio.events(result, Evaluated)] == [0.4, 1.0]
    assert "more of it" in studio.heard("lead")[2]


async def test_a_sentinel_in_a_workers_text_or_in_a_sentence_ends_nothing(studio: Studio) -> None:
    studio.agent("a", says=[f"look:\n{DONE}\n"] * 2)
    says = [plan(("a", "x")), f"I would not say {DONE} yet", plan(("a", "y")), f"done\n{DONE}"]
    add_lead(studio, "reflect", "a", says=says)

    result = await studio.run("lead", "go")

    assert studio.events(result, ReflectEnded)[0].iterations == 2
    prompt = studio.heard("lead")[1]
    assert "look:" in prompt
    assert prompt.count(f"\n{DONE}\n") == 1, "only in our own instructions"


async def test_an_evaluator_scores_and_a_good_score_is_enough(studio: Studio) -> None:
    studio.agent("judge", says=["SCORE: 0.95\nRATIONALE: fine"])
    add_lead(studio, "reflect", "a", says=[plan(("a", "x")), "a draft about ships"], evaluator="judge")

    result = await studio.run("lead", "go")

    assert result.text == "a draft about ships"
    [event] = studio.events(result, Evaluated)
    assert (event.score, event.by, event.rationale, event.is_complete) == (0.95, "judge", "fine", True)


async def test_a_lead_cannot_pass_its_own_work_where_there_is_an_evaluator(studio: Studio) -> None:
    studio.agent("judge", says=["SCORE: 0.5\nRATIONALE: thin"])
    says = [plan(("a", "x")), f"one text\n{DONE}", plan(("a", "y")), f"quite another\n{DONE}"]
    add_lead(studio, "reflect", "a", says=says, evaluator="judge", max_iterations=2)

    result = await studio.run("lead", "go")

    assert studio.events(result, ReflectEnded)[0].end == "max_iterations"
    assert "thin" in studio.heard("lead")[2]


async def test_no_more_iterations_than_allowed(studio: Studio) -> None:
    says = [text for n in range(3) for text in (plan(("a", f"task {n}")), f"text number {n} {'x ' * n}\n{AGAIN}\nmore")]
    add_lead(studio, "reflect", "a", says=says, max_iterations=3)

    result = await studio.run("lead", "go")

    assert not result.succeeded
    assert studio.events(result, ReflectEnded)[0].end == "max_iterations"
    assert "after 3 of 3 iterations" in (result.error or "")
    assert result.parts


async def test_work_that_repeats_itself_stops_the_loop(studio: Studio) -> None:
    says = [text for n in range(5) for text in (plan(("a", f"task {n}")), "always the same words here")]
    add_lead(studio, "reflect", "a", says=says)

    result = await studio.run("lead", "go")

    assert studio.events(result, ReflectEnded)[0].end == "stalled"
    assert studio.events(result, ReflectEnded)[0].iterations == 3


async def test_three_errors_in_a_row_end_the_loop(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    studio.agent("a", says=[{"fails": {"status": 400, "message": "broken"}}] * 9)
    add_lead(studio, "reflect", "a", says=[plan(("a", f"try {n}")) for n in range(9)])
    monkeypatch.setattr("podium.patterns.reflect.RETRY_SECONDS", 0.0)

    result = await studio.run("lead", "go")

    [ended] = studio.events(result, ReflectEnded)
    assert (ended.end, ended.iterations, ended.is_stalled) == ("error_budget", 0, True)
    assert "after 0 of 5 iterations: too many errors in a row" in (result.error or "")
    assert len(studio.events(result, IterationFailed)) == 3


async def test_a_lead_whose_workers_all_failed_is_told_why_and_may_change_the_plan(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    studio.agent("a", says=[{"fails": {"status": 400, "message": "broken"}}] * 9)
    says = [plan(("a", "try it")), "I give up.", plan(("b", "try it")), f"b did it\n{DONE}"]
    add_lead(studio, "reflect", "a", "b", says=says, answer_directly=True)
    monkeypatch.setattr("podium.patterns.reflect.RETRY_SECONDS", 0.0)

    result = await studio.run("lead", "go")

    told = studio.heard("lead")[1]
    assert told.startswith("No worker succeeded with that plan.")
    assert "### a (failed, 0 s)\nTask: try it" in told
    assert "broken" in told
    assert (result.text, studio.events(result, ReflectEnded)[0].iterations) == ("b did it", 1)


async def test_a_failure_in_a_later_iteration_is_told_to_the_lead_too(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    studio.agent("bad", says=[{"fails": {"status": 400, "message": "broken"}}] * 9)
    says = [plan(("a", "x")), f"half\n{AGAIN} more", plan(("bad", "y")), plan(("a", "y")), f"whole\n{DONE}"]
    add_lead(studio, "reflect", "a", "bad", says=says)
    monkeypatch.setattr("podium.patterns.reflect.RETRY_SECONDS", 0.0)

    result = await studio.run("lead", "go")

    assert "broken" in studio.heard("lead")[3]
    assert (result.text, studio.events(result, ReflectEnded)[0].iterations) == ("whole", 2)


async def test_all_members_must_have_taken_part_where_the_team_requires_it(studio: Studio) -> None:
    says = [plan(("a", "x")), f"one\n{DONE}", plan(("b", "y")), f"two, with more\n{DONE}"]
    add_lead(studio, "reflect", "a", "b", says=says, participation="all")

    result = await studio.run("lead", "go")

    first, second = studio.events(result, Evaluated)
    assert (first.score, first.held_back) == (0.3, "no contribution yet from b")
    assert second.is_complete
    assert result.succeeded


async def test_a_later_plan_without_work_that_says_it_is_complete_is_a_claim(studio: Studio) -> None:
    says = [plan(("a", "x")), f"the work\n{AGAIN}\nperhaps more", f"Nothing is missing.\n{DONE}"]
    add_lead(studio, "reflect", "a", says=says)

    result = await studio.run("lead", "go")

    assert result.succeeded
    assert result.text.startswith("the work")


# Discuss


def move_with_calls(*calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments} for name, arguments in calls]}


def ready_moves(message: str = "I agree") -> list[Any]:
    return [move_with_calls(("broadcast", {"message": message}), ("vote_conclude", {"ready": True})), "PASS"]


@pytest.mark.parametrize("number", [2, 5, 20])
async def test_a_discussion_ends_when_all_are_ready_and_the_coordinator_answers(studio: Studio, number: int) -> None:
    names = [f"m{n}" for n in range(number)]
    for name in names:
        studio.agent(name, says=ready_moves(f"{name} speaks"))
    add_lead(studio, "discuss", *names, says=["go on", "what we agreed on"])

    result = await studio.run("lead", "Tea or coffee?")

    assert result.text == "what we agreed on"
    [ended] = studio.events(result, DiscussionEnded)
    assert (ended.by, ended.rounds) == ("consensus", 2)
    assert all(f"{name} speaks" in "".join(studio.heard("lead")) for name in names)


async def test_each_message_is_delivered_once_to_every_other_member(studio: Studio) -> None:
    for name in ("a", "b"):
        said = move_with_calls(("broadcast", {"message": f"{name} in round one"}))
        studio.agent(name, says=[said, "ok", "PASS", f"{name} at the end"])
    add_lead(studio, "discuss", "a", "b", says=["hm", "hm", "so be it"], max_rounds=3, termination="max_rounds")

    result = await studio.run("lead", "Talk.")

    assert studio.events(result, DiscussionEnded)[0].by == "max_rounds"
    last = [call for call in studio.calls if call.agent == "a"][-1]
    assert sum(message.text.count("b in round one") for message in last.messages) == 1
    assert [message.text for message in last.messages if "a in round one" in message.text] == []
    assert len(studio.events(result, Broadcast)) == 4


async def test_a_reply_without_tools_is_broadcast_to_the_others(studio: Studio) -> None:
    studio.agent("a", says=["I only reply"] * 3)
    add_lead(studio, "discuss", "a", "b", says=["well", "the end"], max_rounds=1)

    result = await studio.run("lead", "Talk.")

    assert {event.text for event in studio.events(result, Broadcast)} == {"I only reply", "b is done"}


async def test_the_coordinator_decides(studio: Studio) -> None:
    says = ["go on", move_with_calls(("conclude", {"summary": "tea"}))]
    add_lead(studio, "discuss", "a", "b", says=says, termination="coordinator_decides")

    result = await studio.run("lead", "Tea or coffee?")

    assert result.text == "tea"
    assert studio.events(result, DiscussionEnded)[0].by == "coordinator"


async def test_a_silent_and_a_failing_member_do_not_hold_up_the_others(studio: Studio) -> None:
    studio.agent("silent", says=[{"silent": True}] * 3)
    studio.agent("broken", says=[{"fails": {"status": 400}}] * 3)
    studio.agent("good", says=ready_moves())
    add_lead(studio, "discuss", "silent", "broken", "good", says=["the end"], round_timeout=1.0)

    result = await studio.run("lead", "Talk.")

    assert result.text == "the end"
    assert set(studio.events(result, RoundEnded)[0].missing) == {"silent", "broken"}


async def test_a_coordinator_that_fails_leaves_the_discussion_itself(studio: Studio) -> None:
    studio.agent("a", says=ready_moves("my point"))
    add_lead(studio, "discuss", "a", says=[{"fails": {"status": 400}}])

    result = await studio.run("lead", "Talk.")

    assert result.text.startswith("[the coordinator gave no answer")
    assert "my point" in result.text


# Crashes


def set_up_orchestrate(studio: Studio) -> None:
    add_lead(studio, "orchestrate", "a", "b", says=[plan(("a", "x"), ("b", "y")), "the synthesis"])


def set_up_reflect(studio: Studio) -> None:
    says = [plan(("a", "x")), f"half\n{AGAIN}\nmore", plan(("b", "y")), f"whole\n{DONE}"]
    add_lead(studio, "reflect", "a", "b", says=says)


def set_up_discuss(studio: Studio) -> None:
    for name in ("a", "b"):
        studio.agent(name, says=ready_moves(name))
    add_lead(studio, "discuss", "a", "b", says=["the end"])


def set_up_sequential(studio: Studio) -> None:
    add_lead(studio, "sequential", "a", "b")


def set_up_broadcast(studio: Studio) -> None:
    add_lead(studio, "broadcast", "a", "b")


@pytest.mark.parametrize(
    "staged", [set_up_broadcast, set_up_sequential, set_up_orchestrate, set_up_reflect, set_up_discuss]
)
async def test_a_team_that_dies_at_any_entry_ends_the_same_and_repeats_no_finished_call(
    studio: Studio, staged: Callable[[Studio], None]
) -> None:
    staged(studio)
    whole = await studio.run("lead", "go")
    calls = len(studio.events(whole, ModelReplied))
    started = len(studio.events(whole, OperationStarted))
    for number in range(2, len(studio.entries(whole)) + 1):
        first = await studio.run("lead", "go", fault=refuse_after(number))
        studio.expire_leases()
        result = first if first.succeeded else await studio.resume(first.run_id)

        assert (result.text, result.outcome) == (whole.text, whole.outcome), number
        assert len(studio.events(result, ModelReplied)) == calls, number
        assert len(studio.events(result, OperationStarted)) == started, number
