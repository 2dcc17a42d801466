"""Deadlines: what workers ask is denied in time, as long as somebody is there who could have answered."""

from __future__ import annotations

import subprocess
import sys
import time

from podium.store.clients import list_clients, register_client
from podium.values.event import PermissionAnswered, ToolAnswered

from .worker_lab import Yard, bash


async def test_what_nobody_answers_who_is_there_is_denied_and_the_worker_goes_on(yard: Yard) -> None:
    yard.set("approvals: {timeout: 1}\n")
    run = await yard.hire("feat/one", bash("touch one.txt"), "then not", allow=())
    yard.command()
    await yard.asked(run)
    assert yard.events(run, PermissionAnswered) == []
    came = time.time()

    with register_client(yard.store):
        assert (await yard.ended(run)).outcome == "succeeded"

    await yard.over()
    [answered] = yard.events(run, PermissionAnswered)
    assert (answered.decision, answered.by, answered.comment) == ("deny", "commander", "nobody answered within 1 s")
    assert answered.at - came >= 1
    assert "nobody answered within 1 s" in yard.events(run, ToolAnswered)[0].text
    yard.check(run)


async def test_with_nobody_there_a_request_waits_longer_than_one_who_is_there_would_have(yard: Yard) -> None:
    yard.set("approvals: {timeout: 1}\n")
    parked = await yard.hire("feat/one", bash("touch one.txt"), "done", allow=())
    yard.command()
    asked = await yard.asked(parked)
    with register_client(yard.store):
        pass  # somebody looked in and left

    # One that does nothing else but wait for two seconds outlasts the time that there would have been.
    waiting = await yard.hire("feat/two", bash("sleep 2"), "waited", allow=("Bash",))
    await yard.ended(waiting)

    assert yard.events(parked, PermissionAnswered) == []
    assert yard.answer(parked, asked, "once")
    assert (await yard.ended(parked)).outcome == "succeeded"
    await yard.over()


async def test_who_died_is_not_there_any_more(yard: Yard) -> None:
    yard.home.mkdir()
    script = "import sys; from pathlib import Path; from podium.store.clients import register_client\n"
    script += "with register_client(Path(sys.argv[1])): print('there', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-P", "-c", script, str(yard.store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as client:
        assert client.stdout is not None
        client.stdout.readline()
        while_there = list_clients(yard.store)
        client.kill()

    assert len(while_there) == 1
    assert list_clients(yard.store) == set()
