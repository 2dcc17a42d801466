"""What a person is told about workers in the background, by commands and webhooks."""

from __future__ import annotations

from functools import partial

from anyio import to_thread

from podium.store.mailbox import post_to_mailbox
from podium.values.event import QuestionAnswered, QuestionAsked

from ..webhook import serve_webhook
from .worker_lab import WorkerLab, bash, call


async def test_requests_questions_and_the_end_of_a_worker_are_told_once(lab: WorkerLab) -> None:
    moves = (bash("make one"), bash("make two"), call("ask_person", question="Which one?"), "done")
    run = await lab.delegate("feat/one", *moves, allow=(), tools=("Bash", "ask_person"))
    with serve_webhook() as hook:
        # The rule is newer than the run, so the commander answers the first request, and nobody is needed for it.
        lab.write_settings(f"permissions: {{allow: ['Bash(make one)']}}\nnotify: ['{hook.url}', bell]\n")
        lab.start_commander()

        first = await to_thread.run_sync(hook.wait_call)
        asked = await lab.wait_asked(run, 2)
        lab.answer(run, asked, "deny")
        second = await to_thread.run_sync(hook.wait_call)
        question = await lab.wait_for_event(run, QuestionAsked)
        answer = QuestionAnswered(id=question.id, text="this one", by="me")
        await to_thread.run_sync(partial(post_to_mailbox, lab.store, run, answer, ref=question.id))
        third = await to_thread.run_sync(hook.wait_call)
        await lab.wait_finished()

        assert hook.list_calls() == []
    assert (first["event"], first["run"], first["request"], first["waiting"]) == ("needs-input", run, asked.id, 1)
    assert (second["event"], second["run"], second["request"]) == ("needs-input", run, question.id)
    assert (third["event"], third["run"], third["outcome"]) == ("finished", run, "succeeded")


async def test_a_worker_of_another_run_needs_input_but_its_end_is_left_to_that_run(lab: WorkerLab) -> None:
    parent = await lab.delegate("feat/one", {"fails": "no"})
    child = await lab.delegate("feat/two", bash("make"), "done", allow=(), parent=parent)
    with serve_webhook() as hook:
        lab.write_settings(f"notify: '{hook.url}'\n")
        lab.start_commander()

        calls = [await to_thread.run_sync(hook.wait_call) for _ in range(2)]
        lab.answer(child, await lab.wait_asked(child), "deny")
        await lab.wait_finished()

        told = sorted((call["event"], call["run"]) for call in [*calls, *hook.list_calls()])
    assert told == sorted([("failed", parent), ("needs-input", child)])


async def test_a_webhook_that_fails_is_a_line_in_the_commanders_log(lab: WorkerLab) -> None:
    runs = await lab.delegate_all({"feat/one": ["done"], "feat/two": ["done"]})
    with serve_webhook(status=500) as hook:
        lab.write_settings(f"notify: '{hook.url}'\n")
        lab.start_commander()

        outcomes = [(await lab.wait_ended(run)).outcome for run in runs]
        await lab.wait_finished()

        assert len(hook.list_calls()) == 2
    assert outcomes == ["succeeded", "succeeded"]
    log = (lab.folder / "commander.log").read_text()
    assert log == (f"the notification failed: the webhook at {hook.url.split('/')[2]} returned status 500\n")
