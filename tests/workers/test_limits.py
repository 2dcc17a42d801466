"""Runs that wait until a provider's limit resets: they let go of their process, and continue by themselves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

import pytest
from anyio import fail_after, sleep, to_thread
from msgspec import structs

from podium import App
from podium.core.placement import WorkerOptions
from podium.store.wakeup import send_wakeup
from podium.testing import Fails
from podium.values.errors import Mistake, RunHeld, RunOver
from podium.values.event import CallFailed, LimitReached, ModelReplied, Noticed, RunEnded, RunPaused, RunResumed
from podium.workers.commander_socket import commander_socket_path, is_commander_listening
from podium.workers.worker_resumption import mark_runs_resumed

from ..actors import ADA
from .worker_lab import KEY, LONG, WorkerLab, bash, make_scripted_agent, wait_exited

pytestmark = pytest.mark.anyio

OTHER_KEY = "sk-the-key-of-another-account"
QUICK = "limits: {max_wait: 0.5}\n"
HOUR = {"says": "done", "fails": {"status": 429, "retry_after": 3600, "times": 1}}


async def test_a_worker_waits_without_a_process_and_continues_by_itself(lab: WorkerLab) -> None:
    lab.write_settings(QUICK)
    run = await lab.delegate("feat/x", {"says": "done", "fails": {"status": 429, "retry_after": 6, "times": 1}})
    lab.start_commander()

    paused = await lab.wait_for_event(run, RunPaused)
    await lab.wait_ended(run)

    events = lab.events(run)
    [failed] = [event for event in events if isinstance(event, CallFailed)]
    [limit] = [event for event in events if isinstance(event, LimitReached)]
    assert (failed.wait, failed.until, paused.until) == (None, limit.until, limit.until)
    assert paused.reason == "the limit of openai:m"
    assert len([event for event in events if isinstance(event, RunResumed)]) == 2
    assert not [event for event in events if isinstance(event, Noticed)]
    await lab.wait_finished()
    lab.assert_clean_end(run)


async def test_a_commander_that_is_killed_while_a_run_waits_loses_nothing(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/x", HOUR)
    # The key is not in the environment of this commander: it comes with the run, and is needed again at the end.
    commander = lab.start_commander()
    paused = await lab.wait_for_event(run, RunPaused)
    worker = await lab.wait_worker(run)
    await wait_exited(worker.pid)
    with fail_after(LONG):
        while len(lab.list_processes()) > 1:  # noqa: ASYNC110 - the fork server exits too, so only the commander is left
            await sleep(0.05)
    is_kept = is_commander_listening(commander_socket_path(lab.store))
    commander.kill()
    commander.wait()
    await lab.wait_no_processes()

    said = await lab.run_podium("ps")
    shown = json.loads((await lab.run_podium("ps", "--json")).stdout)["runs"][0]
    await lab.run_podium("resume")
    still = lab.events(run)[-1]
    await lab.run_podium("resume", run)
    await lab.wait_ended(run)

    assert is_kept
    assert "waiting 59 min" in said.stdout
    assert "no running process will continue 1 run waiting for a limit to reset" in said.stderr
    assert (shown["state"], shown["wakes_at"]) == ("waiting", paused.until)
    assert still == paused  # without its id, the run is only watched
    assert lab.events(run, ModelReplied)[-1].text == "done"
    await lab.wait_no_processes()
    lab.assert_clean_end(run)


async def test_a_waiting_run_is_shown_with_its_time_and_can_be_stopped(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/x", HOUR)
    lab.start_commander()
    paused = await lab.wait_for_event(run, RunPaused)

    shown = json.loads((await lab.run_podium("show", run, "--json")).stdout)
    text = (await lab.run_podium("show", run)).stdout
    workers = json.loads((await lab.run_podium("workers", "--json")).stdout)["workers"]
    listed = (await lab.run_podium("workers")).stdout
    logs = (await lab.run_podium("logs", run)).stdout
    lab.stop(run)
    ended = await lab.wait_ended(run)

    assert (shown["state"], shown["wakes_at"]) == ("waiting", paused.until)
    assert "The run is waiting for the limit of openai:m, and will continue by itself at" in text
    assert (workers[0]["state"], workers[0]["wakes_at"]) == ("waiting_limit", paused.until)
    assert "waiting_limit 59 min" in listed
    assert "waiting for the limit of openai:m until" in logs
    assert ended.outcome == "cancelled"
    await lab.wait_finished()
    lab.assert_clean_end(run)


async def test_the_daily_budget_of_a_repository_limits_its_workers(lab: WorkerLab) -> None:
    (lab.repo.path / "podium.yaml").write_text("workers: 1\nbudget: {per_repository_day: {turns: 1}}\n")
    first, second = await lab.delegate_all({"feat/x": ["done"], "feat/y": ["done"]})

    lab.start_commander()
    await lab.wait_ended(second)

    assert [lab.events(run, RunEnded)[0].outcome for run in (first, second)] == ["succeeded", "failed"]
    assert "raise budget.per_repository_day.turns in the repository's podium.yaml" in str(lab.events(second))
    await lab.wait_finished()


async def test_a_time_that_passed_while_no_process_was_there_is_said(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/x", "done")
    async with App(lab.settings(), environ=lab.environ) as app:
        claimed = await app.runs.claim_idle(run, by=ADA)
        await claimed.record_and_release(RunPaused(until=time.time() - 7205, reason="the limit of openai:m"))

    lab.start_commander()
    await lab.wait_ended(run)

    [notice] = lab.events(run, Noticed)
    assert notice.text.endswith("No process was running to continue it, so it continues 2 h 0 min late.")


@pytest.mark.slow
async def test_serve_continues_a_run_whose_commander_was_killed(lab: WorkerLab) -> None:
    lab.write_settings(QUICK)
    run = await lab.delegate("feat/x", {"says": "done", "fails": {"status": 429, "retry_after": 8, "times": 1}})
    commander = lab.start_commander()
    paused = await lab.wait_for_event(run, RunPaused)
    commander.kill()
    commander.wait()
    await lab.wait_no_processes()

    # The key came with the run, and the run's commander is gone: the server's environment has it.
    server = subprocess.Popen(
        [sys.executable, "-P", "-m", "podium", "serve", "--port", "0", "--json"],
        cwd=lab.repo.path,
        env=lab.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    ended = await lab.wait_ended(run)
    server.terminate()
    server.wait()
    await lab.wait_no_processes()

    assert ended.outcome == "succeeded"
    assert lab.entries(run)[-1].at > paused.until
    assert set(lab.finished_calls(run).values()) == {1}
    lab.assert_clean_end(run)


@pytest.mark.slow
async def test_processes_that_resume_a_waiting_run_at_once_continue_it_once(lab: WorkerLab) -> None:
    limited = structs.replace(bash("true"), fails=Fails(status=429, retry_after=3600, times=1))
    options = WorkerOptions(max_restarts=0)  # a worker that finds its run taken must not count as crashed
    run = await lab.delegate("feat/x", bash("true"), limited, bash("true"), "done", options=options)
    lab.start_commander()
    await lab.wait_for_event(run, RunPaused)

    # This process competes with the commander's worker for the run until the worker has it.
    with suppress(RunHeld, RunOver), fail_after(LONG):
        while True:
            await mark_runs_resumed(lab.store, [run], by=ADA)
            send_wakeup(lab.store, "owner")
    ended = await lab.wait_ended(run)
    await lab.wait_finished()

    assert (ended.outcome, ended.failure) == ("succeeded", None)
    assert set(lab.finished_calls(run).values()) == {1}
    assert len(lab.server.calls) == 5
    lab.assert_clean_end(run)


async def test_another_account_is_used_while_the_first_is_at_its_limit(
    lab: WorkerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.write_settings("limits: {fallback_models: ['openai@work:m']}\n")
    with pytest.raises(Mistake, match=r"limits.fallback_models: .*OPENAI_API_KEY_WORK is not set"):
        await lab.delegate("feat/y", HOUR)
    monkeypatch.setenv("OPENAI_API_KEY_WORK", OTHER_KEY)
    run = await lab.delegate("feat/x", HOUR)
    lab.start_commander()
    await lab.wait_ended(run)

    [notice] = lab.events(run, Noticed)
    assert notice.text.startswith("hand uses openai@work:m until ")
    assert "openai returned 429" in notice.text
    assert not lab.events(run, LimitReached, RunPaused)
    assert [one.headers["authorization"] for one in lab.server.calls] == [f"Bearer {KEY}", f"Bearer {OTHER_KEY}"]


async def list_runs(lab: WorkerLab) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = json.loads((await lab.run_podium("ps", "--json")).stdout)["runs"]
    return runs


async def test_a_run_in_the_foreground_waits_and_ctrl_c_leaves_it_resumable(lab: WorkerLab) -> None:
    lab.write_agent(make_scripted_agent(HOUR))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "podium", "run", "hand", "go", "--plain"],
        cwd=lab.repo.path,
        env=lab.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    await lab.wait_called(1)
    [waiting] = await list_runs(lab)
    with fail_after(LONG):
        while not waiting["wakes_at"]:
            [waiting] = await list_runs(lab)

    process.send_signal(signal.SIGINT)
    _, said = await to_thread.run_sync(process.communicate)
    [left] = await list_runs(lab)
    resumed = await lab.run_podium("resume", waiting["id"])

    assert (waiting["state"], process.returncode) == ("running", 130)
    assert "hand: waiting for the limit of openai:m until " in said
    assert "podium resume" in said
    assert (left["state"], left["wakes_at"]) == ("resumable", None)
    assert (resumed.returncode, resumed.stdout.strip()) == (0, "done")


async def test_a_run_beyond_the_budget_of_the_day_ends_with_its_own_exit_code(lab: WorkerLab) -> None:
    lab.write_settings("budget: {per_repository_day: {turns: 1}}\n")
    lab.write_agent(make_scripted_agent("done"))

    first, second = [await lab.run_podium("run", "hand", "go", "--plain", "--no-input") for _ in range(2)]

    assert (first.returncode, second.returncode, second.stdout) == (0, 5, "")
    assert "the daily budget of 1 model calls for this repository is used up (1 used since midnight)" in second.stderr
    assert len(lab.server.calls) == 1


async def test_a_reply_of_another_model_is_recorded_and_said_once(lab: WorkerLab) -> None:
    lab.write_agent(
        make_scripted_agent(structs.replace(bash("true"), model="m-mini"), {"says": "done", "model": "m-mini"})
    )

    said = await lab.run_podium("run", "hand", "go", "--plain", "--no-input")

    assert said.stderr.count("hand asked for m, but the reply names the model m-mini.") == 1
    assert said.stdout.strip() == "done"
