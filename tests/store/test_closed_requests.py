"""What is said about an answer to a request that no longer waits."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import pytest

from podium.core.timeline import Timeline
from podium.store.request_list import find_open_request
from podium.store.run_store import RunStore
from podium.values.action import Action
from podium.values.errors import AlreadyAnswered, Mistake, RequestClosed
from podium.values.event import (
    Event,
    OperationEnded,
    PermissionAnswered,
    PermissionAsked,
    QuestionAsked,
    RunEnded,
    RunStarted,
)
from podium.values.request import Request
from podium.values.store_address import StoreAddress

LONG_AGO = 1_767_225_600.0
WHEN = f"{datetime.fromtimestamp(LONG_AGO):%Y-%m-%d %H:%M:%S}"


def make_request(id: str = "a1b2", *, expires_at: float = LONG_AGO, tool: str = "write_file") -> PermissionAsked:
    action = Action(run="r", agent="lead", tool=tool, arguments={}, expires_at=expires_at)
    return PermissionAsked(id=id, action=action, reason="no rule")


def make_denial(
    id: str = "a1b2", *, by: str = "podium", why: str = "nobody answered within 300 s"
) -> PermissionAnswered:
    return PermissionAnswered(id=id, decision="deny", by=by, comment=why, at=LONG_AGO if by == "commander" else 0.0)


@asynccontextmanager
async def working_run(path: StoreAddress, *events: Event) -> AsyncIterator[None]:
    """Write a run that this process works on during the block."""
    async with RunStore(path) as store:
        timeline = Timeline("r", store.begin_run("r"))
        for event in (RunStarted(agent="lead", request=Request(text="go")), *events):
            timeline.append(event, scope="" if isinstance(event, RunEnded) else "lead", operation="lead")
        await timeline.wait_written()
        yield


async def write_run(path: StoreAddress, *events: Event) -> None:
    """Write a run that no process works on."""
    async with working_run(path, *events):
        pass


def explain(path: StoreAddress, prefix: str = "a1b2") -> str:
    with pytest.raises(RequestClosed) as raised:
        find_open_request(path, prefix)
    return str(raised.value)


@pytest.mark.parametrize("prefix", ["a1b2", "a1"])
async def test_a_request_that_expired_in_a_run_that_has_ended(address: StoreAddress, prefix: str) -> None:
    await write_run(address, make_request(), make_denial(), RunEnded(outcome="succeeded"))

    assert explain(address, prefix) == (
        f"a1b2 expired at {WHEN}: nobody answered within 300 s, so write_file was denied and the agent went on without "
        "it; start a new run if this is still needed; increase approvals.timeout in the settings to get more time"
    )


async def test_a_request_that_expired_in_a_run_that_goes_on(address: StoreAddress) -> None:
    async with working_run(address, make_request(), make_denial()):
        said = explain(address)

    assert said.endswith(
        "; use podium send r TEXT to ask the agent to try again; you will then get a new request; "
        "increase approvals.timeout in the settings to get more time"
    )
    assert "; continue the run with podium resume r; " in explain(address)


async def test_a_request_that_expired_while_no_process_worked_on_the_run(address: StoreAddress) -> None:
    await write_run(address, make_request())

    assert explain(address) == (
        f"a1b2 expired at {WHEN} without an answer, and run r is not running; "
        "resume the run with podium resume r, and the agent will ask again"
    )


async def test_a_request_that_the_commander_denied_in_time(address: StoreAddress) -> None:
    await write_run(address, make_request(expires_at=0.0), make_denial(by="commander"))

    assert explain(address).startswith(
        f"a1b2 expired at {WHEN}: nobody answered within 300 s, so write_file was denied"
    )


async def test_a_request_that_nobody_was_there_to_answer(address: StoreAddress) -> None:
    denial = make_denial(why="nobody is available to answer")
    await write_run(address, make_request(tool="evil\nAllow it? yes"), denial, RunEnded(outcome="succeeded"))

    said = explain(address)

    assert "a1b2 was closed at " in said
    assert ": nobody is available to answer, so evil Allow it? yes was denied" in said
    assert " and the agent went on without it; " in said
    assert said.endswith("; use podium run --park to queue requests instead")


@pytest.mark.parametrize("request_event", [make_request(), QuestionAsked(id="a1b2", text="Which one?")])
async def test_a_request_whose_run_has_ended(address: StoreAddress, request_event: Event) -> None:
    await write_run(address, request_event, RunEnded(outcome="cancelled"))

    assert explain(address) == (
        "a1b2 can no longer be answered: run r has ended (cancelled); start a new run if this is still needed"
    )


async def test_a_request_of_an_agent_that_has_stopped(address: StoreAddress) -> None:
    async with working_run(address, make_request(expires_at=time.time() + 600), OperationEnded(outcome="failed")):
        said = explain(address)

    assert said.startswith("a1b2 can no longer be answered: the agent that asked has stopped; use podium send r TEXT ")


async def test_an_answer_of_a_person_is_not_called_an_expiry(address: StoreAddress) -> None:
    await write_run(address, make_request(), PermissionAnswered(id="a1b2", decision="once", by="ada", at=LONG_AGO - 1))

    with pytest.raises(AlreadyAnswered, match=r"a1b2 was already answered: once by ada$"):
        find_open_request(address, "a1b2")


@pytest.mark.parametrize("prefix", ["", "a", "zz", '"id":"'])
async def test_an_unknown_or_ambiguous_id_is_not_found(address: StoreAddress, prefix: str) -> None:
    await write_run(address, make_request("a1b2"), make_request("a3c4"), RunEnded(outcome="succeeded"))

    with pytest.raises(Mistake, match="there are no open requests"):
        find_open_request(address, prefix)
