"""How a worker's permission request is answered: asked on the timeline, answered through the mailbox."""

from __future__ import annotations

from podium.store.request_list import list_open_requests
from podium.values.event import PermissionAnswered, RunResumed
from podium.values.worker_task import WorkerTask
from podium.workers.active_worker import ActiveWorker
from podium.workers.request_answers import RequestAnswers
from podium.workers.settings_cache import SettingsCache
from podium.workers.wire.wire_message import Handshake
from podium.workers.worker_notifications import WorkerLogs, WorkerNotifications

from .worker_lab import SILENT, WorkerLab, bash


def make_worker(lab: WorkerLab, run: str) -> ActiveWorker:
    task, handshake = WorkerTask(root=lab.root, path=lab.root), Handshake(worker=run, token="")
    return ActiveWorker(run=run, worker_task=task, handshake=handshake)


async def test_a_commander_answers_only_open_requests_of_the_worker_that_names_them(lab: WorkerLab) -> None:
    asking = await lab.delegate("feat/one", bash("make one"), "done", allow=())
    other = await lab.delegate("feat/two", SILENT, allow=())
    lab.start_commander()
    asked = await lab.wait_asked(asking)
    lab.write_settings("permissions: {allow: ['Bash(make one)']}\n")
    async with lab.notifier() as notifier:
        logs = WorkerLogs(lab.home)
        notifications = WorkerNotifications(lab.store, notifier, logs)
        answers = RequestAnswers(lab.store, SettingsCache(lab.environ), logs, notifications)

        await answers.handle_request(make_worker(lab, other), asked.id)
        await answers.handle_request(make_worker(lab, asking), "guessed")
        still_open = [one.asked.id for one in list_open_requests(lab.store)]
        await answers.handle_request(make_worker(lab, asking), asked.id)
        await answers.handle_request(make_worker(lab, asking), asked.id)

    assert still_open == [asked.id]
    assert (await lab.wait_ended(asking)).outcome == "succeeded"
    [answered] = lab.events(asking, PermissionAnswered)
    assert (answered.id, answered.decision, answered.by) == (asked.id, "once", "commander")
    lab.stop(other)
    await lab.wait_finished()
    lab.assert_clean_end(asking, other)


async def test_a_request_can_be_answered_while_neither_worker_nor_commander_is_there(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", bash("touch one.txt"), "done", allow=())
    commander = lab.start_commander()
    worker = await lab.wait_worker(run)
    asked = await lab.wait_asked(run)
    commander.kill()
    worker.kill()
    commander.wait()
    await lab.wait_no_processes()

    assert [one.asked.id for one in list_open_requests(lab.store)] == [asked.id]
    assert lab.answer(run, asked, "once")
    lab.start_commander()

    assert (await lab.wait_ended(run)).outcome == "succeeded"
    await lab.wait_finished()
    assert len(lab.events(run, RunResumed)) == 2
    assert [one.id for one in lab.events(run, PermissionAnswered)] == [asked.id]
    assert lab.read_file("feat/one", "one.txt") == ""
    lab.assert_clean_end(run)


async def test_a_request_that_is_open_at_a_restart_is_named_to_the_next_commander(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", bash("make one"), "done", allow=())
    commander = lab.start_commander()
    asked = await lab.wait_asked(run)
    commander.kill()
    commander.wait()
    await lab.wait_no_processes()
    lab.write_settings("permissions: {allow: ['Bash(make one)']}\n")

    lab.start_commander()

    assert (await lab.wait_ended(run)).outcome == "succeeded"
    await lab.wait_finished()
    [answered] = lab.events(run, PermissionAnswered)
    assert (answered.id, answered.by) == (asked.id, "commander")
    lab.assert_clean_end(run)
