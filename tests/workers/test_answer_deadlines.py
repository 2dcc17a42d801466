"""Deadlines: a worker's request is denied in time, provided that somebody was there who could have answered it."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from podium.store.answering_clients import list_clients, register_client
from podium.store.open_requests import find_open_request
from podium.values.errors import RequestClosed
from podium.values.event import PermissionAnswered, ToolAnswered

from .worker_lab import WorkerLab, bash


async def test_a_request_that_no_connected_client_answers_is_denied_and_the_worker_continues(lab: WorkerLab) -> None:
    lab.write_settings("approvals: {timeout: 1}\n")
    run = await lab.delegate("feat/one", bash("touch one.txt"), "then not", allow=())
    lab.start_commander()
    await lab.wait_asked(run)
    assert lab.events(run, PermissionAnswered) == []
    connected_at = time.time()

    with register_client(lab.store):
        assert (await lab.wait_ended(run)).outcome == "succeeded"

    await lab.wait_finished()
    [answered] = lab.events(run, PermissionAnswered)
    assert (answered.decision, answered.by, answered.channel) == ("deny", "commander", "timeout")
    assert answered.comment == "nobody answered within 1 s"
    assert answered.at - connected_at >= 1
    assert "nobody answered within 1 s" in lab.events(run, ToolAnswered)[0].text
    with pytest.raises(
        RequestClosed, match=f"{answered.id} expired at .*: nobody answered within 1 s, so bash was denied"
    ):
        find_open_request(lab.store, answered.id)
    lab.assert_clean_end(run)


async def test_without_a_connected_client_a_request_waits_past_the_deadline(lab: WorkerLab) -> None:
    lab.write_settings("approvals: {timeout: 1}\n")
    parked = await lab.delegate("feat/one", bash("touch one.txt"), "done", allow=())
    lab.start_commander()
    asked = await lab.wait_asked(parked)
    with register_client(lab.store):
        pass  # somebody was there for a moment and left

    # A worker that only waits for two seconds outlasts the time that the deadline would have allowed.
    waiting = await lab.delegate("feat/two", bash("sleep 2"), "waited", allow=("Bash",))
    await lab.wait_ended(waiting)

    assert lab.events(parked, PermissionAnswered) == []
    assert lab.answer(parked, asked, "once")
    assert (await lab.wait_ended(parked)).outcome == "succeeded"
    await lab.wait_finished()


async def test_a_client_that_was_killed_is_no_longer_connected(lab: WorkerLab) -> None:
    lab.home.mkdir()
    script = "import sys; from pathlib import Path; from podium.store.answering_clients import register_client\n"
    script += "with register_client(Path(sys.argv[1])): print('there', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-P", "-c", script, str(lab.store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as client:
        assert client.stdout is not None
        client.stdout.readline()
        while_connected = list_clients(lab.store)
        client.kill()

    assert len(while_connected) == 1
    assert list_clients(lab.store) == set()
