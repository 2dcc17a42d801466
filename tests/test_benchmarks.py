"""The benchmarks run. Their times are for people to read; no test fails because of one."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from benchmarks import permission_requests, team_scenario
from benchmarks.child import Open
from benchmarks.children import podium_team, raw_team
from benchmarks.children.counting_model import Conversations
from benchmarks.discussion_scenario import make_message
from benchmarks.harness import LIMIT, OURS, BenchmarkFailed, Sample, Spread, interleave_samples
from benchmarks.result_line import MILLISECONDS, PER_SECOND, Goal, Line, Unit, max_ratio
from benchmarks.result_table import format_table
from benchmarks.rows import ROWS

from podium import Settings
from podium.engines.model.model_wire import Message, ModelCall
from podium.policy import check
from podium.testing import ModelServer

ROOT = Path(__file__).parent.parent
LINES_WITHOUT_LIMIT = {f"10 agents streaming: {share} on the timeline" for share in ("50%", "95%")}
"""Lines about features that only Podium has."""


def run_benchmarks(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("rows", [("one_call", "append", "policy"), pytest.param(tuple(ROWS), marks=pytest.mark.slow)])
def test_a_quick_run_gives_every_row_and_no_failed_call(rows: tuple[str, ...], tmp_path: Path) -> None:
    chosen = [word for row in rows for word in ("--only", row)]
    done = run_benchmarks("--quick", "--no-peers", *chosen, "--json", str(tmp_path / "result.json"))

    assert done.returncode == 0, done.stderr
    lines = json.loads((tmp_path / "result.json").read_text())["lines"]
    assert {line["row"] for line in lines} == set(rows)
    for line in lines:
        assert line["failed"] == {}, line
        assert set(line["figures"]) == ({OURS} if line["what"] in LINES_WITHOUT_LIMIT else {OURS, LIMIT}), line
        assert all(figure["median"] > 0 for figure in line["figures"].values()), line
        assert line["what"] in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends processes with the one that started them")
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_being_ended_leaves_no_process_behind(end: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", "fan_out", "--json", str(tmp_path / "x.json")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not (started := list_children(process.pid)):
            assert process.poll() is None

        process.send_signal(end)

    assert [pid for pid in started if not has_exited(pid)] == []


def list_children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def has_exited(pid: int) -> bool:
    """Return whether a process has ended, or ends soon."""
    try:
        ending = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([ending], [], [], 10)[0])
    finally:
        os.close(ending)


def test_the_rows_can_be_listed() -> None:
    done = run_benchmarks("--list")

    assert [line.split()[0] for line in done.stdout.splitlines()] == list(ROWS)


def test_another_tree_is_measured_in_turn_with_this_one(tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(ROOT / "benchmarks", other / "benchmarks", ignore=shutil.ignore_patterns("peers", "__pycache__"))
    (other / "benchmarks" / "peers").symlink_to(ROOT / "benchmarks" / "peers")
    (other / ".venv").symlink_to(sys.prefix)

    done = run_benchmarks("compare", str(other), "--only", "policy", "--rounds", "1", "--quick")

    assert done.returncode == 0, done.stderr
    head, *rows = done.stdout.splitlines()
    assert head.split()[-4:] == ["relative", "to", "the", "limit"]
    assert [row for row in rows if row.startswith("policy") and row.count("×") == 2] == rows != []


def test_a_tree_without_an_environment_is_not_compared(tmp_path: Path) -> None:
    done = run_benchmarks("compare", str(tmp_path))

    assert done.returncode == 2
    assert "run make test there first" in done.stderr


# The programs that are compared


async def collect_calls(open_: Open) -> list[str]:
    """Return what a team's program sends to the model, in an order that does not depend on which worker is first."""
    async with ModelServer() as server, open_(server.url) as call:
        assert await call() == team_scenario.ANSWER
    return sorted(repr((one.call.system, one.call.messages, one.call.tools)) for one in server.calls)


async def test_the_limit_of_a_team_makes_the_same_six_calls() -> None:
    ours = await collect_calls(podium_team.open_caller)

    limit = await collect_calls(raw_team.open_caller)

    assert len(ours) == 6
    assert limit == ours


def test_members_say_something_new_each_time_and_always_as_much() -> None:
    said = [make_message(number) for number in range(100)]

    words = [word for text in said for word in text.split()]
    assert len(set(words)) == len(words)
    assert len({len(text) for text in said}) == 1


def test_only_a_verbatim_continuation_of_a_conversation_counts_as_repeated() -> None:
    conversations = Conversations()
    first = Message(role="user", text="a" * 40)
    move, *begun = conversations.answer(ModelCall(agent="", model="", system="b" * 40, messages=(first,)))
    reply, second = Message(role="assistant", text=move.says), Message(role="user", text="c" * 80)

    _, *gone_on = conversations.answer(ModelCall(agent="", model="", system="b" * 40, messages=(first, reply, second)))
    _, *retold = conversations.answer(ModelCall(agent="", model="", system="d" * 40, messages=(first, reply, second)))

    said = -(-len(move.says) // 4)
    assert begun == [20, 0]
    assert gone_on == [20, 20 + said]
    assert retold == [40 + said, 0]


@pytest.mark.parametrize("what", ["edit", "command"])
def test_permission_is_asked_for_something_else_each_time_and_the_rules_allow_it(what: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(permission_requests.RULES)
    rules = Settings.load({"PODIUM_HOME": str(tmp_path)}).build_rules()

    actions = [permission_requests.make_request(what, number).action for number in range(100)]

    assert len({action.digest for action in actions}) == len(actions)
    assert {check(action, rules).decision for action in actions} == {"allow"}


# Taking turns


def test_contestants_take_turns_at_going_first_in_a_round() -> None:
    order: list[str] = []

    def take(name: str) -> Sample:
        order.append(name)
        return Sample()

    interleave_samples({name: partial(take, name) for name in "abc"}, rounds=3)

    assert order == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]


def fail_sample() -> Sample:
    raise BenchmarkFailed("it ended before it answered")


def test_a_peer_that_breaks_is_left_out() -> None:
    taken = interleave_samples({OURS: Sample, LIMIT: Sample, "peer": fail_sample}, rounds=2)

    assert {name: len(samples) for name, samples in taken.items()} == {OURS: 2, LIMIT: 2}


def test_a_failure_of_our_own_program_is_an_error() -> None:
    with pytest.raises(BenchmarkFailed):
        interleave_samples({OURS: fail_sample, LIMIT: Sample}, rounds=2)


# Lines


def make_line(ours: float, limit: float, *goals: Goal, unit: Unit = MILLISECONDS) -> Line:
    figures = {OURS: Spread.from_values([ours]), LIMIT: Spread.from_values([limit])}
    return Line(row="row", what="what", unit=unit, figures=figures, goals=goals)


def test_a_ratio_says_how_many_times_as_long_as_the_limit() -> None:
    assert make_line(3, 2).ratio() == 1.5
    assert make_line(2_000, 3_000, unit=PER_SECOND).ratio() == 1.5


def test_a_line_is_met_when_all_its_goals_are() -> None:
    least = Goal("figure", 10_000, is_least=True)

    assert make_line(3, 2).is_met is None
    assert make_line(3, 2, max_ratio(2)).is_met is True
    assert make_line(12_000, 20_000, max_ratio(2), least, unit=PER_SECOND).is_met is True
    assert make_line(8_000, 9_000, max_ratio(2), least, unit=PER_SECOND).is_met is False


def test_the_table_says_which_peer_is_missing_and_whose_calls_failed() -> None:
    figures = {name: Spread.from_values([1.0]) for name in (OURS, LIMIT, "there")}
    line = Line(
        row="row",
        what="what",
        unit=MILLISECONDS,
        figures=figures,
        failed={"there": 7},
        missing={"gone": "not installed"},
    )

    last = format_table([line], ["there", "gone"]).splitlines()[-1]

    assert last.endswith("1 ms 1.00×, 7 FAILED  not installed")
    assert not line.has_failed
