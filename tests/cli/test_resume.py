from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Callable
from dataclasses import replace

import pytest

from .conftest import SLOW, Desk, read_until_exit, wait_for
from .test_terminal import Terminal


def test_a_run_goes_on_where_its_process_died(desk: Desk, make_interrupted_run: Callable[[], str]) -> None:
    run = make_interrupted_run()

    said = desk.run_podium("resume", run[:6])

    assert (said.returncode, said.stdout) == (0, "the answer\n")
    assert said.stderr.splitlines()[0].startswith(f"run {run}: resumed by process ")
    assert desk.kinds(run).count("model_replied") == 2
    assert desk.invoke("verify", run).exit_code == 0


def test_a_run_goes_on_after_its_process_was_killed(desk: Desk) -> None:
    desk.write_agent("lead", {"silent": 1, "says": "the answer"}, advisors=["helper"])
    desk.write_agent("helper", "some advice")
    with desk.start_podium("run", "lead", "do it") as process:
        wait_for(process.stderr, "lead: calling")
        process.kill()
        process.wait()

    desk.write_agent("lead", "another answer")  # a run keeps the agents that it started with
    with desk.start_podium("resume", desk.run_id()) as resumed:
        wait_for(resumed.stderr, "lead: resuming its turn")
        resumed.send_signal(signal.SIGINT)
        read_until_exit(resumed)

    assert resumed.returncode == 130
    assert desk.kinds(desk.run_id()).count("operation_ended") == 1
    assert desk.kinds(desk.run_id()).count("run_resumed") == 1


def test_a_run_goes_on_after_ctrl_c(desk: Desk) -> None:
    desk.write_agent("lead", {"says": "the answer", "delay": 0.5})
    with desk.start_podium("run", "lead", "do it") as process:
        wait_for(process.stderr, "lead: calling")
        process.send_signal(signal.SIGINT)
        read_until_exit(process)

    said = desk.invoke("resume", desk.run_id(), "--json")

    assert (process.returncode, said.exit_code) == (130, 0)
    assert json.loads(said.stdout)["text"] == "the answer"


def test_without_an_id_the_only_interrupted_run_goes_on(desk: Desk, make_interrupted_run: Callable[[], str]) -> None:
    run = make_interrupted_run()

    said = desk.invoke("resume")

    assert (said.exit_code, said.stdout) == (0, "the answer\n")
    assert said.stderr.splitlines()[0] == f"resuming 1 run: {run}"
    assert desk.invoke("resume").stderr == "nothing to resume\n"


def test_with_all_every_interrupted_run_goes_on_the_oldest_first(
    desk: Desk, make_interrupted_run: Callable[[], str]
) -> None:
    first, second = make_interrupted_run(), make_interrupted_run()

    said = desk.invoke("resume", "--all")

    assert (said.exit_code, said.stdout) == (0, "the answer\n" * 2)
    assert said.stderr.splitlines()[0] == f"resuming 2 runs: {first}, {second}"
    assert desk.invoke("resume", "--all").stderr == "nothing to resume\n"


@pytest.mark.parametrize(
    "more", [[], ["--json"], *(pytest.param([one], marks=pytest.mark.slow) for one in ("--quiet", "--no-input"))]
)
def test_without_a_terminal_several_runs_are_listed_and_none_goes_on(
    desk: Desk, make_interrupted_run: Callable[[], str], more: list[str]
) -> None:
    first, second = make_interrupted_run(), make_interrupted_run()

    said = desk.invoke("resume", *more)

    assert (said.exit_code, said.stdout) == (2, "")
    lines = said.stderr.splitlines()
    assert lines[0] == "2 runs can be resumed:"
    assert [line.split()[:3] for line in lines[1:3]] == [["1", first, "lead"], ["2", second, "lead"]]
    assert all("do it" in line for line in lines[1:3])
    assert lines[3:] == ["resume one with podium resume RUN, or all of them with podium resume --all"]
    assert desk.kinds(first).count("run_resumed") == desk.kinds(second).count("run_resumed") == 0


@pytest.mark.parametrize(
    ("answers", "code", "resumed"), [(["7", "2"], 0, [1]), (["all"], 0, [0, 1]), (["none"], 4, []), (["\x03"], 130, [])]
)
def test_on_a_terminal_the_person_chooses_among_several_runs(
    desk: Desk, make_interrupted_run: Callable[[], str], answers: list[str], code: int, resumed: list[int]
) -> None:
    runs = [make_interrupted_run(), make_interrupted_run()]
    terminal = Terminal(desk, "resume", "--plain", columns=120)

    for answer in answers:
        terminal.wait_until(lambda lines: bool(lines) and any(line.startswith("Resume which") for line in lines))
        terminal.screen.reset()
        terminal.process.send(answer if answer == "\x03" else f"{answer}\r")

    assert terminal.wait_exit() == code
    assert [place for place, run in enumerate(runs) if "run_resumed" in desk.kinds(run)] == resumed


def test_an_id_and_all_are_not_given_together(desk: Desk, make_interrupted_run: Callable[[], str]) -> None:
    said = desk.invoke("resume", make_interrupted_run(), "--all")

    assert said.exit_code == 2
    assert "give a run or --all, not both" in said.stderr


def test_a_paused_run_is_named_if_there_is_nothing_else_to_resume(
    desk: Desk, make_interrupted_run: Callable[[], str]
) -> None:
    run = make_interrupted_run()
    desk.invoke("pause", run)

    said = desk.invoke("resume")

    assert said.exit_code == 0
    assert said.stderr == f"no interrupted runs to resume, but 1 run is paused; to resume it: podium resume {run}\n"


def test_all_of_them_as_json_are_one_object(desk: Desk, make_interrupted_run: Callable[[], str]) -> None:
    runs = [make_interrupted_run(), make_interrupted_run()]

    said = desk.invoke("resume", "--all", "--json", "--quiet")

    assert [result["run_id"] for result in json.loads(said.stdout)["runs"]] == runs


def test_a_run_whose_folder_is_gone_is_not_resumed_and_no_other_is_held_up(
    desk: Desk, make_interrupted_run: Callable[[], str]
) -> None:
    run = make_interrupted_run()
    elsewhere = replace(desk, repo=desk.repo.parent / "elsewhere")
    desk.repo.rename(elsewhere.repo)

    named, every = (elsewhere.run_podium("resume", *words) for words in ([run], ["--all"]))

    sentence = (
        f"run {run} works in {desk.repo}, which is no longer a folder on this machine; restore it, or end the run"
    )
    assert named.stderr == f"podium: {sentence} with: podium stop {run}\n"
    assert sentence in every.stderr
    assert (named.returncode, every.returncode) == (2, 2)
    assert desk.kinds(run).count("run_resumed") == 0


def test_a_run_that_is_worked_on_is_left_to_its_process(desk: Desk) -> None:
    desk.write_agent("lead", SLOW)
    with desk.start_podium("run", "lead", "do it") as process:
        wait_for(process.stderr, "lead: calling")

        said = desk.run_podium("resume", desk.run_id())
        all_of_them = desk.invoke("resume")

    assert said.returncode == 6
    assert f"is in use by process {process.pid}" in said.stderr
    assert all_of_them.stderr == "nothing to resume\n"


def test_a_run_that_has_ended_stays_as_it_is(desk: Desk) -> None:
    desk.write_agent("lead", "the answer")
    desk.invoke("run", "lead", "do it")

    said = desk.invoke("resume", desk.run_id())

    assert said.exit_code == 2
    assert "has ended (succeeded)" in said.stderr


def test_an_id_that_fits_several_runs_lists_them(desk: Desk) -> None:
    desk.write_agent("lead", "the answer")
    for _ in range(17):  # with this many ids, two start with the same character
        desk.invoke("run", "lead", "do it")
    [twin, *_] = [sign for sign in "0123456789abcdef" if sum(run.id[0] == sign for run in desk.runs()) > 1]

    said = desk.invoke("show", twin)

    assert said.exit_code == 2
    assert f"{twin!r} matches several runs" in said.stderr
    assert all(run.id in said.stderr for run in desk.runs() if run.id.startswith(twin))


def test_nothing_to_resume_makes_nothing(desk: Desk) -> None:
    said = desk.run_podium("resume")

    assert (said.returncode, said.stderr) == (0, "nothing to resume\n")
    assert not desk.store.exists()


def test_a_process_that_lost_its_run_to_another_says_so(desk: Desk) -> None:
    desk.write_agent("lead", {"says": "the answer", "delay": 0.5})
    with desk.start_podium("run", "lead", "do it", "--quiet", "--jsonl") as process:
        wait_for(process.stdout, "turn_started")
        store = sqlite3.connect(desk.store)
        with store:
            store.execute("UPDATE run SET epoch = epoch + 1")  # as taking over the run does
        store.close()
        _, said = read_until_exit(process)

    assert process.returncode == 6
    assert "taken over" in said.splitlines()[0]


@pytest.mark.parametrize("now", ["{far: {command: other-server}}", "{}"])
def test_a_run_is_not_resumed_with_other_mcp_servers_than_those_with_which_it_began(desk: Desk, now: str) -> None:
    settings = desk.home / "config.yaml"
    settings.write_text("mcpServers: {far: {command: no-such-server}, unused: {command: x}}\n")
    desk.write_agent("lead", {"silent": True}, tools=["mcp__far"])
    with desk.start_podium("run", "lead", "go") as process:
        while not desk.store.exists() or "turn_started" not in (desk.kinds(desk.run_id()) if desk.runs() else ()):
            assert process.poll() is None
        process.kill()
        process.wait()

    settings.write_text(f"mcpServers: {now}\n")
    refused = desk.run_podium("resume", desk.run_id())
    settings.write_text("mcpServers: {far: {command: no-such-server}, unused: {command: changed}}\n")
    with desk.start_podium("resume", desk.run_id()) as process:
        while desk.kinds(desk.run_id()).count("run_resumed") < 1:
            assert process.poll() is None
        process.kill()

    assert refused.returncode == 8
    assert "began with the MCP server 'far', which" in refused.stderr
    assert f"podium fork {desk.run_id()}" in refused.stderr
