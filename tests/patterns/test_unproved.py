"""Work that ended in words although its last check, edit or call had failed is marked as unproved."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import ValidationError, validate
from msgspec import structs

from podium import Agent, Result
from podium.engines.model.model_wire import Model, add_zero_cost
from podium.engines.model.retry_policy import RetryPolicy
from podium.engines.model.tool_loop import ModelEngine
from podium.engines.script import ScriptedWire
from podium.store.fault_injection import refuse_after
from podium.testing import calls as call
from podium.testing import make_repository
from podium.values.agent import Member, Permissions, Team
from podium.values.event import ModelAskedAgain, OperationEnded, PermissionAnswered

from ..studio import Studio, skip_sleep

MISSED = call("edit_file", path="a.txt", old="n", new="m")
EDITED = call("edit_file", path="a.txt", old="a", new="b")
SAME = call("write_file", path="a.txt", content="a\n")
BROKEN, FINE, LOOK = call("bash", command="false"), call("bash", command="true"), call("read_file", path="no.txt")
CHECK = call("run_checks", name="tests")
BREAK = call("write_file", path="state", content="broken")
MEND = call("write_file", path="state", content="fine")
NOT_FOUND = "lead: its last edit changed nothing: a.txt is unchanged: `old` was not found. Read the file again"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "r", {"a.txt": "a\n"}, message="x")


@pytest.fixture
def studio(studio: Studio) -> Studio:
    program = "import sys; sys.exit(open('state').read() != 'fine')"
    studio.settings = structs.replace(
        studio.settings, permission_mode="bypass", checks={"tests": (sys.executable, "-c", program)}
    )
    return studio


TOOLS = ("Read", "Edit", "Write", "Bash", "run_checks")


async def run_lead(studio: Studio, repo: Path, *moves: Any, **given: Any) -> Result:
    if moves:
        studio.agent("lead", says=[*moves, "It is done."], tools=TOOLS)
    async with studio.app(**given) as app:
        return await app.run(studio.agents["lead"], "fix it", repo=repo, agents=studio.agents.values())


@pytest.mark.parametrize(
    ("moves", "unproved"),
    [
        ([EDITED], None),
        ([MISSED], NOT_FOUND),
        ([EDITED, MISSED], NOT_FOUND),
        ([MISSED, EDITED], None),
        ([SAME], "lead: its last edit changed nothing: a.txt has the same content as before"),
        ([BREAK, CHECK], "lead: its last check failed: tests"),
        ([BREAK, CHECK, FINE], "lead: its last check failed: tests"),
        ([BREAK, CHECK, MEND], "lead: its last check failed: tests"),
        ([BREAK, CHECK, MEND, CHECK], None),
        ([EDITED, BROKEN], "lead: its last command failed: false"),
        ([EDITED, BROKEN, FINE], None),
        ([BROKEN], None),
        ([LOOK], None),
    ],
)
async def test_the_last_check_edit_or_call_must_have_worked(
    studio: Studio, repo: Path, moves: list[Any], unproved: str | None
) -> None:
    result = await run_lead(studio, repo, *moves)

    assert (result.outcome, result.text) == ("succeeded", "It is done.")
    assert (result.unproved or "").startswith(unproved or "")
    assert bool(result.unproved) == bool(unproved)


async def test_the_only_call_was_refused(studio: Studio, repo: Path) -> None:
    studio.settings = structs.replace(studio.settings, permission_mode="default")

    result = await run_lead(studio, repo, EDITED)

    assert result.succeeded
    [answered] = studio.events(result, PermissionAnswered)
    assert result.unproved == f"lead: its only call was refused: edit_file ({answered.comment})"


async def test_a_check_that_was_refused_proves_nothing(studio: Studio, repo: Path) -> None:
    studio.settings = structs.replace(
        studio.settings, permission_mode="default", permissions=Permissions(allow=("Edit",))
    )

    result = await run_lead(studio, repo, EDITED, CHECK)

    [answered] = studio.events(result, PermissionAnswered)
    assert result.unproved == f"lead: its last check was refused: {answered.comment}"


async def test_a_command_that_was_refused_after_an_edit_proves_nothing(studio: Studio, repo: Path) -> None:
    studio.settings = structs.replace(
        studio.settings, permission_mode="default", permissions=Permissions(allow=("Edit",))
    )

    result = await run_lead(studio, repo, EDITED, call("bash", command="make test"))

    assert result.unproved == "lead: its last command was refused: make test"


async def test_a_function_that_failed_leaves_the_answer_unproved(studio: Studio) -> None:
    def book(seat: str) -> str:
        """Book a seat."""
        raise RuntimeError("no seats left")

    agent = studio.agent("lead", says=[call("book", seat="1A"), "Your seat is booked."], tools=[book])
    async with studio.app() as app:
        result = await app.run(agent, "book it")

    assert result.unproved == "lead: its last call to book failed: book failed: RuntimeError: no seats left"


async def test_the_mark_of_a_member_is_the_mark_of_its_team(studio: Studio, repo: Path) -> None:
    plan = json.dumps({"assignments": [{"worker": "a", "task": "edit it"}]})
    studio.agent("a", says=[MISSED, "I edited it."], tools=("Edit",))
    studio.agent("lead", says=[plan, "All is done."], team=Team(mode="orchestrate", members=(Member(agent="a"),)))

    result = await run_lead(studio, repo)

    assert (result.text, (result.unproved or "").split(":")[0]) == ("All is done.", "a")


async def test_the_last_work_of_a_member_counts(studio: Studio, repo: Path) -> None:
    plan = json.dumps({"assignments": [{"worker": "a", "task": "edit it"}]})
    studio.agent("a", says=[MISSED, "I edited it.", EDITED, "Now I did."], tools=("Edit",))
    says = [plan, "Half.\n[[NEEDS_ITERATION]]\nedit it", plan, "All is done.\n[[GROUP_REFLECT_COMPLETE]]"]
    studio.agent("lead", says=says, team=Team(mode="reflect", members=(Member(agent="a"),)))

    result = await run_lead(studio, repo)

    assert (result.text, result.unproved) == ("All is done.", None)


@pytest.mark.parametrize("number", [6, 9, 11])
async def test_a_run_that_died_ends_with_the_same_mark(studio: Studio, repo: Path, number: int) -> None:
    first = await run_lead(studio, repo, EDITED, MISSED, fault=refuse_after(number))
    studio.expire_leases()

    result = await studio.resume(first.run_id)

    assert (result.unproved or "").startswith(NOT_FOUND)
    assert studio.events(result, OperationEnded)[-1].unproved == result.unproved


# What a model without a tool interface is asked


def write(value: Any) -> str:
    return json.dumps(value)


EMULATED_MISS = write({"tool": "edit_file", "arguments": {"path": "a.txt", "old": "n", "new": "m"}})
EMULATED_EDIT = write({"tool": "edit_file", "arguments": {"path": "a.txt", "old": "a", "new": "b"}})
CLAIM = write({"answer": "The file has been updated."})


async def run_emulated(studio: Studio, repo: Path, *replies: str, tools: Any = TOOLS) -> tuple[Result, ScriptedWire]:
    wire = ScriptedWire({"lead": list(replies)})
    model = Model(wire=wire, add_cost=add_zero_cost, tool_calls="text")
    engine = ModelEngine(model, name="m", retry=RetryPolicy(sleep=skip_sleep))
    async with studio.app(engines={"mine": engine}) as app:
        return await app.run(Agent(name="lead", engine="mine", tools=tools), "fix it", repo=repo), wire


async def test_a_model_whose_calls_all_failed_can_only_call_or_say_that_it_is_not_done(
    studio: Studio, repo: Path
) -> None:
    said = write({"not_done": "The text is not in the file."})

    result, wire = await run_emulated(studio, repo, EMULATED_MISS, CLAIM, said)

    assert result.error == (
        "lead: its calls failed, and it says that the task is not done: The text is not in the file."
    )
    schema = wire.heard[-1].schema
    assert schema is not None
    validate(json.loads(said), schema)
    validate(json.loads(EMULATED_MISS), schema)
    with pytest.raises(ValidationError):
        validate(json.loads(CLAIM), schema)
    assert '{"not_done": "why"}' in wire.heard[-1].system
    assert '"answer"' not in wire.heard[-1].system
    assert "edit_file failed with this message:\na.txt is unchanged" in wire.heard[-1].messages[-1].text


async def test_a_model_that_then_does_it_can_answer(studio: Studio, repo: Path) -> None:
    result, wire = await run_emulated(studio, repo, EMULATED_MISS, CLAIM, EMULATED_EDIT, CLAIM)

    assert (result.text, result.unproved) == ("The file has been updated.", None)
    assert (repo / "a.txt").read_text() == "b\n"
    assert len(studio.events(result, ModelAskedAgain)) == 1
    assert '"answer"' in wire.heard[-1].system


async def test_a_model_that_claims_it_again_is_asked_once_and_its_work_is_unproved(studio: Studio, repo: Path) -> None:
    result, _ = await run_emulated(studio, repo, EMULATED_MISS, CLAIM, CLAIM)

    assert result.text == "The file has been updated."
    assert (result.unproved or "").startswith(NOT_FOUND)
    assert len(studio.events(result, ModelAskedAgain)) == 1


@pytest.mark.parametrize(
    "replies",
    [
        [write({"tool": "read_file", "arguments": {"path": "no.txt"}})],
        [write({"tool": "bash", "arguments": {"command": "false"}})],
        [EMULATED_EDIT, EMULATED_MISS],
    ],
)
async def test_a_failed_look_and_work_that_is_partly_done_are_not_asked_about(
    studio: Studio, repo: Path, replies: list[str]
) -> None:
    result, _ = await run_emulated(studio, repo, *replies, CLAIM)

    assert result.text == "The file has been updated."
    assert not studio.events(result, ModelAskedAgain)
