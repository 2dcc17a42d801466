from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Callable
from dataclasses import replace

import pytest

from podium.runs.queries.run_listing import MOST_ENDED, filter_recent_runs
from podium.store.reader import RunSummary
from podium.values.event import SCHEMA

from .conftest import SLOW, Desk, read_until_exit, wait_for


def test_without_any_runs_ps_says_so_and_makes_nothing(desk: Desk) -> None:
    before = sorted(desk.home.rglob("*"))

    said = desk.run_podium("ps")

    assert (said.returncode, said.stdout) == (0, "")
    assert said.stderr == 'no runs yet; start one with: podium run AGENT "request"\n'
    assert sorted(desk.home.rglob("*")) == before
    assert json.loads(desk.invoke("ps", "--json").stdout)["runs"] == []


@pytest.mark.parametrize("command", ["show", "logs", "verify", "stop", "pause", "resume"])
def test_without_any_runs_nothing_can_be_named(desk: Desk, command: str) -> None:
    said = desk.invoke(command, "abc")

    assert said.exit_code == 2
    assert "no runs yet" in said.stderr
    assert not desk.store.exists()


def test_ps_shows_the_state_of_runs(desk: Desk, make_interrupted_run: Callable[[], str]) -> None:
    dead = make_interrupted_run()
    desk.write_agent("good", "the answer")
    desk.invoke("run", "good", "a first line\nand a second " + "x" * 200)
    desk.write_agent("slow", SLOW)
    with desk.start_podium("run", "slow", "do it") as process:
        wait_for(process.stderr, "slow: calling")

        lines = desk.invoke("ps").stdout.splitlines()

    assert lines[0].split() == ["RUN", "STATE", "AGENT", "STARTED", "TOOK", "REQUEST"]
    assert [line.split()[1:3] for line in lines[1:]] == [
        ["running", "slow"],
        ["succeeded", "good"],
        ["resumable", "lead"],
    ]
    assert lines[2].endswith("  a first line")
    assert lines[3].startswith(dead)
    assert max(map(len, lines)) <= 100


def test_ps_as_json_has_it_all(desk: Desk) -> None:
    desk.write_agent("lead", "the answer")
    desk.invoke("run", "lead", "do it")

    [run] = json.loads(desk.invoke("ps", "--json").stdout)["runs"]

    assert (run["id"], run["state"], run["agent"], run["request"]) == (desk.run_id(), "succeeded", "lead", "do it")
    assert run["repo"] == str(desk.repo)


def test_ps_leaves_out_old_runs_that_have_ended(desk: Desk, make_interrupted_run: Callable[[], str]) -> None:
    make_interrupted_run()
    desk.write_agent("lead", "the answer")
    desk.invoke("run", "lead", "do it")
    ended, unfinished = desk.runs()
    many = [replace(ended, id=str(number)) for number in range(MOST_ENDED + 5)]

    shown: list[RunSummary] = filter_recent_runs([*many, unfinished])

    assert [run.id for run in shown] == [*(run.id for run in many[:MOST_ENDED]), unfinished.id]


def test_show_has_the_tree_and_the_answer(desk: Desk) -> None:
    desk.write_agent("lead", "the answer", advisors=["helper", "poor"], handoff="last")
    desk.write_agent("helper", "some advice")
    desk.write_agent("poor", {"fails": {"status": 400, "message": "no more"}})
    desk.write_agent("last", "the last word")
    desk.invoke("run", "lead", "do it")

    lines = desk.invoke("show", desk.run_id()[:6]).stdout.splitlines()

    assert lines[0] == f"run      {desk.run_id()}  succeeded"
    assert lines[1:4] == ["agent    lead", "request  do it", f"folder   {desk.repo}"]
    tree = lines[lines.index("") + 1 :]
    assert [line.split("  ")[0] for line in tree[:5]] == ["✓ lead", "├─ ✓ helper", "├─ ✗ poor", "│", "└─ ✓ last"]
    assert tree[2].split()[3:6] == ["advice", "failed", "scripted"]
    assert tree[3] == "│    the script returned 400: no more"
    assert lines[-1] == "the last word"


def test_show_of_a_run_without_an_answer_has_its_partial_results(
    desk: Desk, make_interrupted_run: Callable[[], str]
) -> None:
    run = make_interrupted_run()
    desk.invoke("stop", run)

    shown = desk.invoke("show", run).stdout.splitlines()

    assert shown[0].endswith("cancelled")
    assert "--- helper (finished)" in shown
    assert "some advice" in shown


def test_show_of_an_unfinished_run_says_how_to_continue(desk: Desk, make_interrupted_run: Callable[[], str]) -> None:
    run = make_interrupted_run()

    shown = desk.invoke("show", run).stdout

    assert "unfinished" in shown
    assert shown.endswith(f"The run has not ended. Resume it with: podium resume {run}\n")


def test_show_as_json_has_the_tree_with_usage_rolled_up(desk: Desk) -> None:
    desk.write_agent("lead", {"says": "the answer", "usage": {"input_tokens": 5}}, advisors=["helper"])
    desk.write_agent("helper", {"says": "some advice", "usage": {"output_tokens": 7}})
    desk.invoke("run", "lead", "do it")

    shown = json.loads(desk.invoke("show", desk.run_id(), "--json").stdout)

    assert shown["usage"]["input_tokens"] == shown["tree"]["usage"]["input_tokens"] == 5
    assert shown["tree"]["usage"]["output_tokens"] == 7
    assert shown["tree"]["children"][0]["text"] == "some advice"
    assert shown["result"]["text"] == "the answer"


def test_logs_print_a_line_for_each_change_of_state(desk: Desk) -> None:
    desk.write_agent("lead", "the answer")
    desk.invoke("run", "lead", "do it")

    lines = desk.invoke("logs", desk.run_id()).stdout.splitlines()
    later = desk.invoke("logs", desk.run_id(), "--after", "3").stdout.splitlines()

    assert [line.split(maxsplit=2)[2] for line in lines] == [
        f'run {desk.run_id()}: started; request to lead: "do it"',
        "lead: started",
        "lead: calling scripted",
        'lead: says "the answer"',
        "lead: succeeded",
        f"run {desk.run_id()}: succeeded",
    ]
    assert later == [line for line in lines if int(line.split()[0]) > 3]


def test_logs_follow_a_run_until_it_ends(desk: Desk) -> None:
    desk.write_agent("lead", {"says": "the answer", "delay": 0.5})
    with desk.start_podium("run", "lead", "do it") as process:
        wait_for(process.stderr, "lead: calling")
        with desk.start_podium("logs", "-f", desk.run_id()) as follower:
            wait_for(follower.stdout, "lead: calling")
            rest, said = read_until_exit(follower)

    assert (follower.returncode, said) == (0, "")
    assert rest.splitlines()[-1].endswith("succeeded")


def test_following_a_run_without_a_process_says_so_and_can_be_interrupted(
    desk: Desk, make_interrupted_run: Callable[[], str]
) -> None:
    run = make_interrupted_run()

    with desk.start_podium("logs", run, "-f") as process:
        wait_for(process.stderr, f"run {run} is not running")
        wait_for(process.stdout, "helper: says")
        process.send_signal(signal.SIGINT)
        _, said = read_until_exit(process)

    assert (process.returncode, said.strip()) == (130, "interrupted")


def test_a_timeline_that_was_not_touched_is_whole(desk: Desk) -> None:
    desk.write_agent("lead", "the answer")
    desk.invoke("run", "lead", "do it")

    said = desk.invoke("verify", desk.run_id())
    found = json.loads(desk.invoke("verify", desk.run_id(), "--json").stdout)

    assert said.exit_code == 0
    assert said.stdout.startswith(f"run {desk.run_id()} is intact: ")
    assert (found["whole"], found["break"], found["entries"]) == (True, None, len(desk.kinds(desk.run_id())))


def test_a_changed_timeline_does_not_verify(desk: Desk) -> None:
    desk.write_agent("lead", "the answer")
    desk.invoke("run", "lead", "do it")
    store = sqlite3.connect(desk.store)
    with store:
        store.execute("DROP TRIGGER entry_stays")
        store.execute(
            "UPDATE entry SET line = CAST(replace(CAST(line AS TEXT), 'do it', 'do IT') AS BLOB) WHERE seq = 1"
        )
    store.close()

    said = desk.invoke("verify", desk.run_id())

    assert said.exit_code == 8
    assert "entry 1 was changed" in said.stdout
    assert json.loads(desk.invoke("verify", desk.run_id(), "--json").stdout)["whole"] is False


def test_a_file_that_is_not_a_store_is_reported(desk: Desk) -> None:
    desk.store.write_text("this is not a database, and long enough to look like a file of something else")

    said = desk.invoke("ps")

    assert said.exit_code == 8
    assert "is not a readable store" in said.stderr


@pytest.mark.parametrize("words", [["agents"], ["check"], ["graph", "answer"]])
def test_json_output_about_agents_has_its_schema_version(desk: Desk, words: list[str]) -> None:
    told = json.loads(desk.invoke(*words, "--json").stdout)

    assert told["schema"] == SCHEMA


def test_the_newest_entries_of_all_runs_are_listed_with_their_run(desk: Desk) -> None:
    desk.write_agent("a", "one", "two")
    runs = []
    for request in ("first", "second"):
        desk.invoke("run", "a", request)
        runs.append(desk.run_id())

    listed = desk.invoke("logs", "--kind", "turn_ended", "--since", "1h")
    short = desk.invoke("logs", "--kind", "turn_ended", "--last", "1")
    as_json = desk.invoke("logs", "--kind", "turn_ended", "--jsonl").stdout.splitlines()

    assert [(line.split()[0], line.split("  ")[-1]) for line in listed.stdout.splitlines()] == [
        (runs[1], 'a: says "one"'),
        (runs[0], 'a: says "one"'),
    ]
    assert listed.stderr == ""
    assert short.stdout.splitlines() == listed.stdout.splitlines()[:1]
    assert short.stderr == "not shown: entries older than the newest 1; use --last N to print more\n"
    assert [json.loads(line)["run"] for line in as_json] == runs[::-1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-f"], "--follow needs RUN"),
        (["--after", "3"], "--after needs RUN"),
        (["abc", "--last", "3"], "--last is for entries from all runs; with RUN, use --after SEQ or --since TIME"),
    ],
)
def test_options_of_a_log_that_need_a_run_or_none_say_so(desk: Desk, arguments: list[str], sentence: str) -> None:
    said = desk.invoke("logs", *arguments)

    assert said.exit_code == 2
    assert sentence in said.stderr


def test_a_damaged_entry_does_not_hide_the_entries_of_other_runs(desk: Desk) -> None:
    desk.write_agent("a", "one")
    desk.invoke("run", "a", "first")
    damaged = desk.run_id()
    desk.invoke("run", "a", "second")
    with sqlite3.connect(desk.store) as connection:
        connection.execute("DROP TRIGGER entry_stays")
        connection.execute("UPDATE entry SET line = X'7B' WHERE run = ? AND kind = 'turn_ended'", (damaged,))
    connection.close()

    said = desk.invoke("logs", "--kind", "turn_ended")

    assert said.exit_code == 8
    assert [line.split()[0] for line in said.stdout.splitlines()] == [desk.run_id()]
    assert f"an entry in run {damaged} cannot be read" in said.stderr


@pytest.mark.parametrize("seq", ["= 1", "= (SELECT max(seq) FROM entry WHERE run = ?1)"])
def test_a_run_that_cannot_be_read_does_not_hide_the_others(desk: Desk, seq: str) -> None:
    desk.write_agent("a", "one")
    desk.invoke("run", "a", "first")
    damaged = desk.run_id()
    with sqlite3.connect(desk.store) as connection:
        connection.execute("DROP TRIGGER entry_stays")
        connection.execute(f"UPDATE entry SET line = X'7B' WHERE run = ?1 AND seq {seq}", (damaged,))
    connection.close()
    alone = desk.invoke("ps")
    desk.write_agent("asking", {"calls": [{"name": "bash", "arguments": {"command": "make"}}]}, tools=["Bash"])
    desk.invoke("run", "asking", "second", "--park")

    listed, as_json = desk.invoke("ps"), json.loads(desk.invoke("ps", "--json").stdout)
    waiting = json.loads(desk.invoke("approvals", "--json").stdout)["waiting"]

    said = f"run {damaged} is not listed: an entry in run {damaged} cannot be read"
    assert (alone.exit_code, alone.stdout, said in alone.stderr) == (8, "", True)
    assert listed.exit_code == 8
    assert [line.split()[2] for line in listed.stdout.splitlines()[1:]] == ["asking"]
    assert said in listed.stderr
    assert [run["agent"] for run in as_json["runs"]] == ["asking"]
    assert [run["id"] for run in as_json["damaged"]] == [damaged]
    assert len(waiting) == 1
    assert desk.invoke("show", damaged).exit_code == 8
