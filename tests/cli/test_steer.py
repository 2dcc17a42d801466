from __future__ import annotations

import getpass
import signal
from collections.abc import Callable

import pytest

from podium.store.reader import StoreReader
from podium.values.event import MessageReceived, TurnStarted

from .conftest import SLOW, Desk, read_until_exit, wait_for


def test_a_run_is_stopped_from_another_process(desk: Desk) -> None:
    desk.write_agent("lead", SLOW, advisors=["helper"])
    desk.write_agent("helper", "some advice")
    with desk.start_podium("run", "lead", "do it") as process:
        wait_for(process.stderr, "lead: calling")
        run = desk.run_id()

        stopped = desk.run_podium("stop", run[:8])
        _, said = read_until_exit(process)

    assert (stopped.returncode, process.returncode) == (0, 1)
    assert stopped.stderr.splitlines() == [
        f"stopping run {run}",
        f"run {run} has ended (cancelled); run podium show {run} to see its results",
    ]
    assert "some advice" in said
    assert said.splitlines()[-1] == "podium: the run was cancelled"
    assert desk.kinds(run)[-1] == "run_ended"


def test_a_run_without_a_process_is_stopped_all_the_same(desk: Desk, make_interrupted_run: Callable[[], str]) -> None:
    run = make_interrupted_run()

    stopped = desk.invoke("stop", run)

    assert stopped.exit_code == 0
    assert "has ended (cancelled)" in stopped.stderr
    assert desk.invoke("stop", run).exit_code == 2


def test_a_run_is_paused_and_resumed(desk: Desk) -> None:
    desk.write_agent("lead", "the answer", advisors=["helper"])
    desk.write_agent("helper", {"says": "some advice", "delay": 1})
    with desk.start_podium("run", "lead", "do it") as process:
        wait_for(process.stderr, "helper: calling")
        run = desk.run_id()

        paused = desk.invoke("pause", run)
        _, said = read_until_exit(process)

    assert (paused.exit_code, process.returncode) == (0, 1)
    assert paused.stderr.splitlines()[-1] == said.splitlines()[-1] == f"paused; continue with: podium resume {run}"
    assert desk.invoke("ps").stdout.splitlines()[1].split()[1] == "paused"
    assert desk.invoke("resume").stderr.startswith("no interrupted runs to resume, but 1 run is paused; to resume it: ")
    assert desk.invoke("resume", run).stdout == "the answer\n"


def test_a_run_without_a_process_is_paused_and_goes_on_only_when_it_is_named(
    desk: Desk, make_interrupted_run: Callable[[], str]
) -> None:
    run = make_interrupted_run()

    first, second = desk.invoke("pause", run), desk.invoke("pause", run)

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert first.stderr == f"run {run} is paused; continue it with: podium resume {run}\n"
    assert second.stderr == f"run {run} is already paused; continue it with: podium resume {run}\n"
    assert desk.invoke("resume").stderr.startswith("no interrupted runs to resume, but 1 run is paused; to resume it: ")
    assert desk.invoke("resume", run).exit_code == 0


def test_a_message_reaches_the_agent_at_its_next_turn(desk: Desk) -> None:
    desk.write_agent("lead", "the answer", advisors=["helper"])
    desk.write_agent("helper", {"says": "some advice", "delay": 1})
    with desk.start_podium("run", "lead", "do it") as process:
        wait_for(process.stderr, "helper: calling")

        sent = desk.invoke("send", f"{desk.run_id()[:8]}/lead", "be brief")
        _, said = read_until_exit(process)

    assert sent.stderr == "lead will receive the message with its next model call\n"
    assert f'message for lead by {getpass.getuser()} (command): "be brief"' in said
    assert "lead: received 1 message" in said


def test_the_timeline_says_at_once_that_an_agent_finished_before_it_received_a_message(desk: Desk) -> None:
    desk.write_agent("lead", "the answer", advisors=["helper"])
    desk.write_agent("helper", {"says": "some advice", "delay": 1})
    with desk.start_podium("run", "lead", "do it") as process:
        wait_for(process.stderr, "helper: calling")

        desk.invoke("send", f"{desk.run_id()[:8]}/helper", "be brief")
        _, said = read_until_exit(process)

    assert "helper finished its task before it received the message: be brief" in said
    assert said.index("helper finished its task") < said.index("lead: calling")


def test_a_message_for_a_run_without_a_process_waits(desk: Desk, make_interrupted_run: Callable[[], str]) -> None:
    run = make_interrupted_run()

    sent = desk.invoke("send", run, "-", input="be brief\n")
    resumed = desk.invoke("resume", run)

    assert (
        sent.stderr
        == f"run {run} is not running; the message will be delivered when you resume it: podium resume {run}\n"
    )
    assert "lead: received 1 message" in resumed.stderr
    with StoreReader(desk.store) as reader:
        heard = [entry.event for entry in reader.read_entries(run) if isinstance(entry.event, MessageReceived)]
    assert [(message.to, message.text) for message in heard] == [("lead", "be brief\n")]


def test_files_go_with_a_message(desk: Desk, make_interrupted_run: Callable[[], str]) -> None:
    run = make_interrupted_run()
    (desk.repo / "notes.md").write_text("mind the gap\n")
    (desk.repo / "shot.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (desk.repo / "video").write_bytes(b"\xff\xfe\0")

    refused = desk.run_podium("send", run, "look", "--attach", "video")
    desk.run_podium("send", run, "look", "--attach", "notes.md", "--attach", "shot.png")
    resumed = desk.invoke("resume", run)

    assert refused.returncode == 2
    assert refused.stderr.startswith("podium: video cannot be attached: it is neither UTF-8 text nor an image")
    assert f'message for lead by {getpass.getuser()} (command): "look", with notes.md, with shot.png' in resumed.stderr
    with StoreReader(desk.store) as reader:
        turns = [entry.event.prompt for entry in reader.read_entries(run) if isinstance(entry.event, TurnStarted)]
    assert any("[file notes.md]\n> mind the gap\n[image shot.png, sha256 " in prompt for prompt in turns)


@pytest.mark.parametrize(
    ("to", "text", "why"),
    [
        ("/helpr", "hi", "has no agent 'helpr'; did you mean helper?"),
        ("/xyz", "hi", "has no agent 'xyz'; available: lead, helper"),
        ("/lead", " ", "the text is empty"),
    ],
)
def test_a_message_to_an_unknown_agent_or_without_text_is_refused(
    desk: Desk, make_interrupted_run: Callable[[], str], to: str, text: str, why: str
) -> None:
    said = desk.invoke("send", f"{make_interrupted_run()}{to}", text)

    assert said.exit_code == 2
    assert why in said.stderr


def test_a_message_to_a_run_that_has_ended_is_refused(desk: Desk) -> None:
    desk.write_agent("lead", "the answer")
    desk.invoke("run", "lead", "do it")

    said = desk.invoke("send", desk.run_id(), "hi")

    assert said.exit_code == 2
    assert "has ended (succeeded)" in said.stderr


def test_a_run_whose_process_dies_before_it_reads_the_stop_is_ended_by_the_command(desk: Desk) -> None:
    desk.write_agent("lead", SLOW)
    with desk.start_podium("run", "lead", "do it") as process:
        wait_for(process.stderr, "lead: calling")
        process.send_signal(signal.SIGSTOP)  # running, but not responding
        run = desk.run_id()
        with desk.start_podium("stop", run) as stopping:
            wait_for(stopping.stderr, f"stopping run {run}")
            process.kill()
            _, said = read_until_exit(stopping)

    assert stopping.returncode == 0
    assert said.startswith(f"run {run} has ended (cancelled)")


def test_pause_reports_that_the_process_died_before_it_paused(desk: Desk) -> None:
    desk.write_agent("lead", SLOW)
    with desk.start_podium("run", "lead", "do it") as process:
        wait_for(process.stderr, "lead: calling")
        run = desk.run_id()
        with desk.start_podium("pause", run) as pausing:
            wait_for(pausing.stderr, f"pausing run {run}")
            process.kill()
            _, said = read_until_exit(pausing)

    assert pausing.returncode == 0
    assert said == f"the process working on run {run} has exited; continue with: podium resume {run}\n"
