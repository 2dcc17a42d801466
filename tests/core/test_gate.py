"""The gate: every action needs a rule or a person's approval, and exactly the approved action is performed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import structs

from podium import App, Result, Run
from podium.policy import Mode
from podium.store.fault_injection import refuse_after
from podium.store.mailbox import post_to_mailbox
from podium.testing import make_repository
from podium.values.agent import Budget, Permissions
from podium.values.errors import Mistake
from podium.values.event import (
    ActionBegan,
    ActionRefused,
    Decision,
    Noticed,
    PauseAsked,
    PermissionAnswered,
    PermissionAsked,
    QuestionAsked,
    ToolAnswered,
)

from ..studio import Studio

WRITE = {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "new\n"}}]}
COUNT = {"calls": [{"name": "bash", "arguments": {"command": "echo x >> count.txt"}}]}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo")


def set_rules(studio: Studio, *, mode: Mode = "default", **rules: Sequence[str]) -> None:
    """Set these rules for the studio."""
    permissions = Permissions(**{kind: tuple(texts) for kind, texts in rules.items()})
    studio.settings = structs.replace(studio.settings, permissions=permissions, permission_mode=mode)


def add_writer(studio: Studio, *moves: Any, **keys: Any) -> None:
    studio.agent("writer", says=[*(moves or (WRITE,)), "done"], **({"tools": ("Write", "Bash", "Read")} | keys))


async def run_writer(studio: Studio, repo: Path, **options: Any) -> Result:
    async with studio.app() as app:
        return await app.run(studio.agents["writer"], "go", repo=repo, agents=studio.agents.values(), **options)


Answering = Callable[[Run, PermissionAsked], Any]


@asynccontextmanager
async def open_attended_run(app: App, opening: Any, answering: Answering) -> AsyncIterator[Run]:
    """Open a run with somebody who answers every request."""
    async with opening as started:
        async with anyio.create_task_group() as group:

            async def attend() -> None:
                with started.entries() as entries:
                    async for entry in entries:
                        if isinstance(entry.event, PermissionAsked):
                            await answering(started, entry.event)

            group.start_soon(attend)
            yield started


async def run_attended(studio: Studio, repo: Path, answering: Answering) -> Result:
    async with studio.app() as app:
        opening = app.start(studio.agents["writer"], "go", repo=repo, agents=studio.agents.values(), is_attended=True)
        async with open_attended_run(app, opening, answering) as started:
            return await started.result()


def answer_with(decision: Decision, comment: str = "") -> Answering:
    async def send_answer(run: Run, asked: PermissionAsked) -> None:
        await run.answer(asked.id, decision, by="me", comment=comment)

    return send_answer


# Rules


async def test_what_a_rule_allows_is_done_and_the_rule_is_recorded(studio: Studio, repo: Path) -> None:
    set_rules(studio, allow=["Write(/a.txt)"])
    add_writer(studio)

    result = await run_writer(studio, repo)

    assert (repo / "a.txt").read_text() == "new\n"
    [began] = studio.events(result, ActionBegan)
    assert began.allowed_by == "Write(/a.txt)"
    assert not studio.events(result, PermissionAsked)


async def test_what_a_rule_denies_is_not_done_and_the_agent_is_told(studio: Studio, repo: Path) -> None:
    set_rules(studio, allow=["Write"], deny=["Write(/a.txt)"])
    add_writer(studio)

    result = await run_writer(studio, repo)

    assert not (repo / "a.txt").exists()
    [refused] = studio.events(result, ActionRefused)
    assert "Write(/a.txt)" in refused.reason
    assert "Not done" in studio.heard("writer")[1]


async def test_an_agent_in_plan_mode_changes_nothing_and_nor_do_those_that_work_for_it(
    studio: Studio, repo: Path
) -> None:
    set_rules(studio, mode="accept-edits")
    add_writer(studio)
    ask = {"calls": [{"name": "writer", "arguments": {"request": "go"}}]}
    studio.agent("planner", says=[ask, "done"], agents=["writer"], permission_mode="plan")

    async with studio.app() as app:
        result = await app.run(studio.agents["planner"], "go", repo=repo, agents=studio.agents.values())

    assert not (repo / "a.txt").exists()
    [refused] = studio.events(result, ActionRefused)
    assert "plan" in refused.reason


async def test_an_agent_may_be_stricter_than_the_run_but_not_more_permissive(studio: Studio, repo: Path) -> None:
    set_rules(studio, mode="plan")
    add_writer(studio, permission_mode="dont-ask")

    result = await run_writer(studio, repo)

    assert "plan" in studio.events(result, ActionRefused)[0].reason


async def test_reading_needs_no_permission(studio: Studio, repo: Path) -> None:
    (repo / "b.txt").write_text("hello")
    add_writer(studio, {"calls": [{"name": "read_file", "arguments": {"path": "b.txt"}}]})

    result = await run_writer(studio, repo)

    assert "hello" in studio.heard("writer")[1]
    assert not studio.events(result, ActionBegan, PermissionAsked)


async def test_an_agents_own_rules_only_tighten(studio: Studio, repo: Path) -> None:
    add_writer(studio, permissions=Permissions(allow=("Write",)))

    await run_writer(studio, repo)

    assert not (repo / "a.txt").exists()


async def test_an_agent_that_works_for_another_may_do_no_more_than_it(studio: Studio, repo: Path) -> None:
    set_rules(studio, allow=["Write"])
    studio.agent("helper", says=[WRITE, "helped"], tools=("Write",))
    ask = {"calls": [{"name": "helper", "arguments": {"request": "write it"}}]}
    add_writer(studio, ask, agents=["helper"], permissions=Permissions(deny=("Write",)))

    await run_writer(studio, repo)

    assert not (repo / "a.txt").exists()


async def test_in_mode_accept_edits_files_are_changed_and_commands_ask(studio: Studio, repo: Path) -> None:
    set_rules(studio, mode="accept-edits")
    add_writer(studio, WRITE, COUNT)

    await run_writer(studio, repo)

    assert (repo / "a.txt").exists()
    assert not (repo / "count.txt").exists()


# A person


async def test_an_action_that_needs_permission_is_refused_in_an_unattended_run(studio: Studio, repo: Path) -> None:
    add_writer(studio)

    result = await run_writer(studio, repo)

    assert result.text == "done"
    assert not (repo / "a.txt").exists()
    [answered] = studio.events(result, PermissionAnswered)
    assert answered.comment == "nobody is available to answer"
    assert (answered.by, answered.channel) == ("podium", "unattended")


async def test_a_person_is_shown_the_whole_action_and_may_allow_it(studio: Studio, repo: Path) -> None:
    add_writer(studio)

    result = await run_attended(studio, repo, answer_with("once"))

    assert (repo / "a.txt").read_text() == "new\n"
    [asked] = studio.events(result, PermissionAsked)
    assert asked.action.arguments["path"] == "a.txt"
    assert "+new" in asked.shown
    [began] = studio.events(result, ActionBegan)
    assert (began.allowed_by, began.action) == ("me", asked.action)
    [answered] = studio.events(result, PermissionAnswered)
    assert (answered.by, answered.channel) == ("me", "api")


async def test_a_request_carries_the_risk_facts_of_its_action(studio: Studio, repo: Path) -> None:
    add_writer(studio, {"calls": [{"name": "bash", "arguments": {"command": "rm -rf ../build"}}]}, WRITE)

    result = await run_attended(studio, repo, answer_with("deny"))

    removing, writing = studio.events(result, PermissionAsked)
    assert [(fact.kind, fact.examples) for fact in removing.risks] == [
        ("deletes", ("../build",)),
        ("outside", ("../build",)),
    ]
    assert writing.risks == ()


@pytest.mark.parametrize(
    ("move", "said"),
    [
        ({"says": "I will\n\n write the file. "}, "I will write the file."),
        ({"says": " ", "reasoning": "The file is missing, so I write it."}, "The file is missing, so I write it."),
        ({"says": "Text counts.", "reasoning": "Not this."}, "Text counts."),
        ({"says": "long " * 400 + "end"}, "…" + ("long " * 400 + "end")[-499:]),
        ({}, ""),
    ],
)
async def test_a_request_carries_what_the_agent_said_with_the_call(
    studio: Studio, repo: Path, move: dict[str, str], said: str
) -> None:
    add_writer(studio, COUNT | {"says": "Another call."}, WRITE | move)

    result = await run_attended(studio, repo, answer_with("deny"))

    counting, writing = studio.events(result, PermissionAsked)
    assert (counting.agent_reason, writing.agent_reason) == ("Another call.", said)


@pytest.mark.parametrize("number", [3, 4, 5])
async def test_the_agents_reason_is_the_same_when_the_process_dies_before_it_asks(
    studio: Studio, repo: Path, number: int
) -> None:
    add_writer(studio, WRITE | {"says": "I write it."})
    async with studio.app(fault=refuse_after(number)) as app:
        first = await app.run(studio.agents["writer"], "go", repo=repo)
    assert not studio.events(first, PermissionAsked)
    studio.expire_leases()

    result = await studio.resume(first.run_id)

    assert [asked.agent_reason for asked in studio.events(result, PermissionAsked)] == ["I write it."]


async def test_a_refusal_comes_with_its_reason(studio: Studio, repo: Path) -> None:
    add_writer(studio)

    await run_attended(studio, repo, answer_with("deny", "use b.txt"))

    assert not (repo / "a.txt").exists()
    assert "me refused it: use b.txt" in studio.heard("writer")[1]


async def test_once_is_once_and_for_the_run_is_for_the_very_same_action(studio: Studio, repo: Path) -> None:
    add_writer(studio, COUNT, {"calls": [{"name": "read_file", "arguments": {"path": "count.txt"}}]}, COUNT)
    once = await run_attended(studio, repo, answer_with("once"))
    again = await run_attended(studio, repo, answer_with("run"))

    assert len(studio.events(once, PermissionAsked)) == 2
    assert len(studio.events(again, PermissionAsked)) == 1
    assert (repo / "count.txt").read_text() == "x\n" * 4


async def test_a_refusal_may_stop_the_run(studio: Studio, repo: Path) -> None:
    add_writer(studio)

    result = await run_attended(studio, repo, answer_with("abort"))

    assert result.outcome == "cancelled"
    assert not (repo / "a.txt").exists()


async def test_a_refusal_may_pause_the_run(studio: Studio, repo: Path) -> None:
    add_writer(studio)

    result = await run_attended(studio, repo, answer_with("deny_and_pause", "wait"))

    assert result.outcome == "paused"
    assert studio.events(result, PauseAsked)
    assert (await studio.resume(result.run_id)).text == "done"
    assert not (repo / "a.txt").exists()


async def test_of_two_answers_the_first_counts_and_the_second_returns_false(studio: Studio, repo: Path) -> None:
    add_writer(studio)
    accepted = []

    async def twice(run: Run, asked: PermissionAsked) -> None:
        accepted.append(await run.answer(asked.id, "deny", by="one"))
        accepted.append(await run.answer(asked.id, "once", by="two"))

    await run_attended(studio, repo, twice)

    assert accepted == [True, False]
    assert not (repo / "a.txt").exists()


async def test_what_changed_after_it_was_approved_is_asked_about_anew(studio: Studio, repo: Path) -> None:
    (repo / "a.txt").write_text("old\n")
    add_writer(studio)
    asked_for = []

    async def answering(run: Run, asked: PermissionAsked) -> None:
        asked_for.append(asked)
        if len(asked_for) == 1:
            (repo / "a.txt").write_text("somebody else's\n")
        await run.answer(asked.id, "once" if len(asked_for) == 1 else "deny", by="me")

    await run_attended(studio, repo, answering)

    assert ["-old" in asked.shown for asked in asked_for] == [True, False]
    assert (repo / "a.txt").read_text() == "somebody else's\n"


async def test_a_script_that_changed_after_it_was_approved_is_asked_about_anew(studio: Studio, repo: Path) -> None:
    (repo / "deploy.sh").write_text("echo harmless > out.txt\n")
    add_writer(studio, {"calls": [{"name": "bash", "arguments": {"command": "sh deploy.sh"}}]})
    asked_for: list[PermissionAsked] = []

    async def answering(run: Run, asked: PermissionAsked) -> None:
        asked_for.append(asked)
        (repo / "deploy.sh").write_text("echo evil > out.txt\n")
        await run.answer(asked.id, "once" if len(asked_for) == 1 else "deny", by="me")

    await run_attended(studio, repo, answering)

    assert len(asked_for) == 2
    assert asked_for[0].action.inputs != asked_for[1].action.inputs
    assert not (repo / "out.txt").exists()


async def test_a_refusal_is_remembered_when_another_wants_the_same(studio: Studio, repo: Path) -> None:
    studio.agent("helper", says=[COUNT, "helped"], tools=("Bash",))
    add_writer(studio, COUNT, {"calls": [{"name": "helper", "arguments": {"request": "do it"}}]}, agents=["helper"])

    result = await run_attended(studio, repo, answer_with("deny", "no"))

    first, second = studio.events(result, PermissionAsked)
    assert first.denied == ()
    assert second.denied == ("me denied this action for writer 0 s ago: no",)


async def test_an_always_answer_covers_similar_actions_in_the_same_run(studio: Studio, repo: Path) -> None:
    checking = [{"calls": [{"name": "bash", "arguments": {"command": f"cargo check {flag}"}}]} for flag in ("-q", "-v")]
    add_writer(studio, *checking)

    async def answer_always(run: Run, asked: PermissionAsked) -> None:
        await run.answer(asked.id, "always", by="me", rule=asked.always)

    result = await run_attended(studio, repo, answer_always)

    [asked] = studio.events(result, PermissionAsked)
    assert asked.always == "Bash(cargo check *)"


async def test_a_rule_that_was_not_shown_is_not_allowed_with_an_answer(studio: Studio, repo: Path) -> None:
    add_writer(studio, {"calls": [{"name": "bash", "arguments": {"command": "cargo check"}}]}, COUNT)
    asked_for: list[str] = []

    async def sly(run: Run, asked: PermissionAsked) -> None:
        asked_for.append(asked.id)
        await run.answer(asked.id, "always" if len(asked_for) == 1 else "deny", by="me", rule="Bash")

    await run_attended(studio, repo, sly)

    assert len(asked_for) == 2
    assert not (repo / "count.txt").exists()


async def test_silence_is_a_refusal(studio: Studio, repo: Path) -> None:
    studio.settings = structs.replace(studio.settings, approval_seconds=0.05)
    add_writer(studio)

    async def silent(run: Run, asked: PermissionAsked) -> None:
        pass

    result = await run_attended(studio, repo, silent)

    assert not (repo / "a.txt").exists()
    [answered] = studio.events(result, PermissionAnswered)
    assert (answered.comment, answered.by, answered.channel) == ("nobody answered within 0.05 s", "podium", "timeout")


async def test_an_agent_is_not_late_while_a_person_thinks(studio: Studio, repo: Path) -> None:
    turn_limits = structs.replace(studio.settings.patience, running_tool=0.8, used_tools=5.0)
    studio.settings = structs.replace(studio.settings, patience=turn_limits)
    add_writer(studio, timeout=0.8)

    async def slowly(run: Run, asked: PermissionAsked) -> None:
        await anyio.sleep(1.0)
        await run.answer(asked.id, "once", by="me")

    result = await run_attended(studio, repo, slowly)

    assert result.succeeded, result.error
    assert (repo / "a.txt").exists()


async def test_an_agent_may_ask_the_person_something(studio: Studio, repo: Path) -> None:
    add_writer(studio, {"calls": [{"name": "ask_person", "arguments": {"question": "Which?"}}]}, tools=("ask_person",))
    async with studio.app() as app:
        async with app.start(studio.agents["writer"], "go", repo=repo, is_attended=True) as started:
            with started.entries() as entries:
                async for entry in entries:
                    if isinstance(entry.event, QuestionAsked):
                        await started.reply(entry.event.id, "the red one", by="me")

    assert "the red one" in studio.heard("writer")[1]


# Crashes


@pytest.mark.parametrize("decision", ["once", "deny"])
async def test_death_at_any_entry_runs_nothing_without_approval_and_nothing_twice(
    studio: Studio, repo: Path, decision: Decision
) -> None:
    add_writer(studio, COUNT)
    counter, number, ends = repo / "count.txt", 1, False
    while not ends:
        number += 1
        counter.unlink(missing_ok=True)
        async with studio.app(fault=refuse_after(number)) as app:
            opening = app.start(studio.agents["writer"], "go", repo=repo, is_attended=True)
            async with open_attended_run(app, opening, answer_with(decision)) as started:
                result = await started.result()
        ends = result.succeeded
        if not ends:
            studio.expire_leases()
            async with studio.app() as app:
                opening = app.resume(result.run_id, is_attended=True)
                async with open_attended_run(
                    app, opening, answer_unless_answered(studio, result.run_id, answer_with(decision))
                ) as resumed:
                    result = await resumed.result()

        assert result.text == "done", number
        done = counter.read_text() if counter.exists() else ""
        answered = studio.events(result, ToolAnswered)
        assert len(answered) == 1
        if decision == "deny":
            assert done == "", number
        else:
            # An agent that dies between the start and the outcome of a command is informed, and it is not run again.
            assert done == "x\n" or ("was interrupted" in answered[0].text and done == ""), number
    assert number > 8


def answer_unless_answered(studio: Studio, run: str, answering: Answering) -> Answering:
    """Return a responder that skips requests that were answered before."""

    async def answer_open_request(started: Run, asked: PermissionAsked) -> None:
        if asked.id not in {event.id for event in studio.events(run, PermissionAnswered)}:
            await answering(started, asked)

    return answer_open_request


# Functions


def shout(text: str) -> str:
    """Says it loudly."""
    return text.upper()


async def test_a_function_given_in_code_may_be_called(studio: Studio, repo: Path) -> None:
    add_writer(studio, {"calls": [{"name": "shout", "arguments": {"text": "hi"}}]}, tools=None)

    await run_writer(studio, repo, tools=[shout])

    assert studio.heard("writer")[1] == "HI"


async def test_a_rule_holds_for_functions_too(studio: Studio, repo: Path) -> None:
    set_rules(studio, deny=["shout"])
    add_writer(studio, {"calls": [{"name": "shout", "arguments": {"text": "hi"}}]}, tools=None)

    await run_writer(studio, repo, tools=[shout])

    assert "Not done" in studio.heard("writer")[1]


async def test_changed_files_can_be_limited(studio: Studio, repo: Path) -> None:
    set_rules(studio, allow=["Write"])
    other = {"calls": [{"name": "write_file", "arguments": {"path": "b.txt", "content": "x"}}]}
    add_writer(studio, WRITE, other)

    result = await run_writer(studio, repo, budget=Budget(files_changed=1))

    assert (repo / "a.txt").exists()
    assert not (repo / "b.txt").exists()
    assert "budget of 1 changed files" in (result.error or "")


# Later


async def test_an_answer_that_comes_after_its_time_does_not_count(studio: Studio, repo: Path) -> None:
    studio.settings = structs.replace(studio.settings, approval_seconds=0.1)
    add_writer(studio)
    async with studio.app(fault=refuse_after(6)) as app:
        first = await app.run(studio.agents["writer"], "go", repo=repo, is_attended=True)
    [asked] = studio.events(first, PermissionAsked)
    studio.expire_leases()
    late = PermissionAnswered(id=asked.id, decision="once", by="me", at=asked.action.expires_at + 1)
    post_to_mailbox(studio.settings.store, first.run_id, late, ref=asked.id)

    result = await studio.resume(first.run_id)

    assert result.text == "done"
    assert not (repo / "a.txt").exists()


async def test_what_had_begun_before_a_crash_is_not_done_when_it_is_denied_by_now(studio: Studio, repo: Path) -> None:
    checks = {"count": ("sh", "-c", "echo x >> count.txt")}
    studio.settings = structs.replace(studio.settings, checks=checks)
    set_rules(studio, allow=["run_checks"])
    add_writer(studio, {"calls": [{"name": "run_checks"}]}, tools=("run_checks",))
    async with studio.app(fault=refuse_after(6)) as app:
        first = await app.run(studio.agents["writer"], "go", repo=repo)
    assert studio.events(first, ActionBegan)
    studio.expire_leases()
    set_rules(studio, deny=["run_checks"])

    result = await studio.resume(first.run_id)

    assert result.text == "done"
    assert "Not done" in studio.heard("writer")[-1]
    assert (repo / "count.txt").read_text() == "x\n"


async def test_what_had_begun_before_a_crash_is_asked_about_when_it_needs_permission_by_now(
    studio: Studio, repo: Path
) -> None:
    studio.settings = structs.replace(studio.settings, checks={"count": ("sh", "-c", "echo x >> count.txt")})
    set_rules(studio, allow=["run_checks"])
    add_writer(studio, {"calls": [{"name": "run_checks"}]}, tools=("run_checks",))
    async with studio.app(fault=refuse_after(6)) as app:
        first = await app.run(studio.agents["writer"], "go", repo=repo)
    assert studio.events(first, ActionBegan)
    studio.expire_leases()
    set_rules(studio, ask=["run_checks"])

    result = await studio.resume(first.run_id)

    assert "Not done" in studio.heard("writer")[-1]
    assert studio.events(result, PermissionAsked)[0].action.tool == "run_checks"
    assert (repo / "count.txt").read_text() == "x\n"


async def test_only_what_was_asked_can_be_answered(studio: Studio, repo: Path) -> None:
    add_writer(studio)

    async def confused(run: Run, asked: PermissionAsked) -> None:
        with pytest.raises(Mistake, match="has no permission request with the id 'nonsense'"):
            await run.answer("nonsense", "once")
        with pytest.raises(Mistake, match="has no question"):
            await run.reply(asked.id, "yes")
        await run.answer(asked.id, "deny", by="me")

    result = await run_attended(studio, repo, confused)

    assert result.text == "done"


async def test_bypassing_has_to_be_typed_again_and_is_shown(studio: Studio, repo: Path) -> None:
    set_rules(studio, mode="bypass")
    add_writer(studio, WRITE, COUNT)
    async with studio.app(fault=refuse_after(7)) as app:
        first = await app.run(studio.agents["writer"], "go", repo=repo)
    assert "bypassed" in studio.events(first, Noticed)[0].text
    studio.expire_leases()
    set_rules(studio)

    await studio.resume(first.run_id)

    assert not (repo / "count.txt").exists()
