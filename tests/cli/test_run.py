from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from typing import get_args

import pytest

from podium.patterns.registry import find_pattern
from podium.values.agent import Agent, Team
from podium.values.team_modes import MODES, Mode

from ..preloaded_podium import PODIUM
from .conftest import SLOW, Desk, read_until_exit, wait_for

RED = "\x1b[31m"


def test_the_answer_goes_to_standard_output_and_all_else_to_standard_error(desk: Desk) -> None:
    desk.write_agent("lead", "the answer")

    said = desk.run_podium("run", "lead", "do it")

    run = desk.run_id()
    assert (said.returncode, said.stdout) == (0, "the answer\n")
    assert said.stderr.splitlines()[0] == f'run {run}: started; request to lead: "do it"'
    assert said.stderr.splitlines()[1:3] == ["lead: started", "lead: calling scripted"]
    assert said.stderr.splitlines()[-1].startswith(f"run {run}: succeeded in ")


def test_a_request_can_come_from_standard_input(desk: Desk) -> None:
    said = desk.invoke("run", "answer", "-", "--quiet", input="what is\nthis?")

    assert "answer was asked: what is" in said.stdout
    assert said.stderr == ""


@pytest.mark.parametrize("request_", ["", "  \n "])
def test_an_empty_request_is_a_usage_error(desk: Desk, request_: str) -> None:
    said = desk.invoke("run", "answer", request_)

    assert said.exit_code == 2
    assert said.stderr == "podium: the text is empty; enter at least one word\n"
    assert not desk.store.exists()


def test_a_request_that_is_no_text_is_a_usage_error(desk: Desk) -> None:
    said = subprocess.run([PODIUM, "run", "answer", b"caf\xe9"], env=desk.environment, capture_output=True, text=True)

    assert said.returncode == 2
    assert said.stderr == "podium: the text is not UTF-8 (byte 3); convert it first\n"


def test_an_unknown_agent_is_a_usage_error(desk: Desk) -> None:
    said = desk.invoke("run", "nobody", "do it")

    assert said.exit_code == 2
    assert said.stderr.startswith('podium: agent "nobody" not found')


def test_a_number_of_iterations_goes_with_no_other_mode_than_reflect(desk: Desk) -> None:
    desk.write_agent("lead", team={"mode": "broadcast", "members": ["one"]})
    desk.write_agent("one", "done")

    said = desk.invoke("run", "lead", "do it", "--mode", "broadcast", "--max", "3")

    assert said.exit_code == 2
    assert "--max needs --reflect; --mode broadcast has no iterations" in said.stderr
    assert not desk.store.exists()


def test_every_mode_that_a_team_can_have_can_run() -> None:
    patterns = [find_pattern(Agent(name="lead", team=Team(mode=mode, members=()))) for mode in MODES]

    assert list(MODES) == list(get_args(Mode))
    assert [pattern.__name__ for pattern in patterns] == [f"run_{mode}" for mode in MODES]


def test_constraints_reach_the_planner_and_are_refused_where_they_would_do_nothing(desk: Desk) -> None:
    desk.write_agent("a", "x")
    desk.write_agent("lead", *["no plan"] * 3, team={"mode": "collaborate", "members": ["a"]})

    planned = desk.invoke("run", "lead", "go", "--constraint", "use no network")
    alone = desk.invoke("run", "a", "go", "--constraint", "use no network")

    assert planned.exit_code == 1
    assert "planner" in planned.stderr
    assert (alone.exit_code, "a has no team, so constraints have no effect" in alone.stderr) == (2, True)


def test_max_for_an_agent_without_a_team_is_refused_with_how_to_reflect(desk: Desk) -> None:
    desk.write_agent("a", "x")

    said = desk.invoke("run", "a", "go", "--max", "3")

    assert said.exit_code == 2
    assert "a has no team; an agent without a team supports only reflect mode: use --reflect, or mode=" in said.stderr


def test_json_is_one_object(desk: Desk) -> None:
    desk.write_agent("lead", "the answer")

    said = desk.invoke("run", "lead", "do it", "--json")

    result = json.loads(said.stdout)
    assert said.exit_code == 0
    assert (result["schema"], result["outcome"], result["text"]) == (1, "succeeded", "the answer")
    assert result["run_id"] == desk.run_id()
    assert result["usage"]["calls"] == 1
    assert result["usage"]["usd"] == 0


def test_jsonl_is_the_timeline_and_nothing_else(desk: Desk) -> None:
    desk.write_agent("lead", "the answer")

    said = desk.invoke("run", "lead", "do it", "--jsonl")

    entries = [json.loads(line) for line in said.stdout.splitlines()]
    assert [entry["type"] for entry in entries] == desk.kinds(desk.run_id())
    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    assert {entry["schema"] for entry in entries} == {1}
    assert entries[0]["event"]["request"]["text"] == "do it"
    assert said.stderr == ""


def test_json_and_jsonl_exclude_each_other(desk: Desk) -> None:
    said = desk.invoke("run", "answer", "do it", "--json", "--jsonl")

    assert said.exit_code == 2
    assert "--json and --jsonl cannot be combined" in said.stderr


def test_a_failed_run_says_why_and_shows_its_partial_results(desk: Desk) -> None:
    desk.write_agent("lead", {"fails": {"status": 400, "message": "no more"}}, advisors=["helper"])
    desk.write_agent("helper", "some advice")

    said = desk.run_podium("run", "lead", "do it")

    assert (said.returncode, said.stdout) == (1, "")
    lines = said.stderr.splitlines()
    assert lines[-4:] == [
        "No answer. Partial results:",
        "--- helper (finished)",
        "some advice",
        "podium: lead: the script returned 400: no more",
    ]


def test_quiet_says_only_what_went_wrong(desk: Desk) -> None:
    desk.write_agent("lead", {"fails": {"status": 400, "message": "no more"}})

    said = desk.invoke("run", "lead", "do it", "--quiet")

    assert (said.exit_code, said.stdout) == (1, "")
    assert said.stderr == "podium: lead: the script returned 400: no more\n"


def test_time_that_ran_out_has_an_exit_code_of_its_own(desk: Desk) -> None:
    desk.write_agent("lead", SLOW, timeout=0.1)

    said = desk.run_podium("run", "lead", "do it", "--quiet")

    assert said.returncode == 5
    assert said.stderr == "podium: lead: timed out after 0.1 s\n"


def test_an_exceeded_turn_limit_has_the_exit_code_of_a_timeout(desk: Desk) -> None:
    desk.write_agent("lead", {"calls": [{"name": "no_such_tool"}]}, maxTurns=1)

    said = desk.invoke("run", "lead", "do it", "--quiet")

    assert said.exit_code == 5
    assert "no answer after 1 model calls" in said.stderr


def test_a_dry_run_asks_no_model_and_tells_what_it_would_take(desk: Desk) -> None:
    said = desk.run_podium(
        "run", "triage", "do it", "--dry-run", OPENAI_API_KEY="k", OPENAI_BASE_URL="http://127.0.0.1:9"
    )

    assert said.returncode == 0
    assert said.stdout.startswith("[rehearsed] ")
    assert said.stderr.splitlines()[-1].startswith("dry run: 2 model calls and about ")
    assert "estimated from simulated replies" in said.stderr.splitlines()[-1]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_run_that_can_be_resumed(desk: Desk, number: signal.Signals, code: int) -> None:
    desk.write_agent("lead", {**SLOW, "silent": 1, "says": "the answer"})

    with desk.start_podium("run", "lead", "do it") as process:
        wait_for(process.stderr, "lead: calling")
        process.send_signal(number)
        _, said = read_until_exit(process)

    run = desk.run_id()
    assert process.returncode == code
    assert said.splitlines()[-1] == f"interrupted; continue with: podium resume {run}"
    assert desk.invoke("ps").stdout.splitlines()[1].split()[:2] == [run, "resumable"]


def test_a_second_signal_ends_the_process_at_once(desk: Desk) -> None:
    program = """
        import anyio
        from podium.cli.output.follow_run import cancel_on_signal

        async def main():
            with anyio.CancelScope() as scope, cancel_on_signal(scope):
                try:
                    print("working", flush=True)
                    await anyio.sleep_forever()
                finally:
                    print("cleaning up", flush=True)
                    with anyio.CancelScope(shield=True):
                        await anyio.sleep_forever()

        anyio.run(main)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for(process.stdout, "working")
        process.send_signal(signal.SIGINT)
        wait_for(process.stdout, "cleaning up")
        process.send_signal(signal.SIGINT)
        _, said = read_until_exit(process)

    assert (process.returncode, said) == (130, "")


def test_escape_codes_of_agents_are_shown_and_do_not_act(desk: Desk) -> None:
    desk.write_agent("lead", f"{RED}red [bold]markup[/bold] \u202e")

    said = desk.invoke("run", "lead", f"{RED}do it")

    assert "\x1b" not in said.stdout + said.stderr
    assert said.stdout == "\\x1b[31mred [bold]markup[/bold] \\u202e\n"
    assert 'request to lead: "\\x1b[31mdo it"' in said.stderr


def test_escape_codes_do_not_act_in_json_either(desk: Desk) -> None:
    desk.write_agent("lead", f"{RED}red\x9b")

    as_object = desk.invoke("run", "lead", "do it", "--json").stdout
    as_lines = desk.invoke("logs", desk.run_id(), "--jsonl").stdout

    assert (as_object + as_lines).isascii()
    assert "\x1b" not in as_object + as_lines
    assert json.loads(as_object)["text"] == f"{RED}red\x9b"


@pytest.mark.parametrize(
    "variables", [{"LANG": "C", "LC_ALL": "C"}, {"PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii:strict"}]
)
def test_what_a_terminal_cannot_show_is_no_error(desk: Desk, variables: dict[str, str]) -> None:
    desk.write_agent("lead", "Grüße")

    said = desk.run_podium("run", "lead", "Wie heißt es? " * 20, **variables)

    assert (said.returncode, "Traceback" in said.stderr) == (0, False)
    assert said.stdout in ("Grüße\n", "Gr\\xfc\\xdfe\n")
    assert desk.run_podium("show", desk.run_id(), **variables).returncode == 0


def test_a_closed_output_pipe_leaves_the_run_resumable(desk: Desk) -> None:
    desk.write_agent("lead", {"says": "word " * 50, "pieces": 50, "pace": 0.3})

    with desk.start_podium("run", "lead", "do it", "--jsonl") as process:
        wait_for(process.stdout, "run_started")
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read()

    assert (process.wait(), said) == (141, "")
    assert desk.invoke("ps").stdout.splitlines()[1].split()[1] == "resumable"
    assert "stop_asked" not in desk.kinds(desk.run_id())


def test_a_pipe_closed_by_head_is_no_error(desk: Desk) -> None:
    desk.write_agent("lead", "the answer")
    desk.invoke("run", "lead", "do it")

    piped = f"{PODIUM} logs {desk.run_id()} --jsonl | head -n 1; {PODIUM} --help | head -n 1"
    said = subprocess.run(["bash", "-c", piped], env=desk.environment, capture_output=True, text=True)

    assert said.stderr == ""
    assert len(said.stdout.splitlines()) == 2


def test_no_traceback_without_debug(desk: Desk) -> None:
    desk.home.joinpath("podium.db").mkdir()

    plain = desk.run_podium("run", "answer", "do it")
    debugged = desk.run_podium("--debug", "run", "answer", "do it")
    from_environment = desk.run_podium("run", "answer", "do it", PODIUM_DEBUG="1")

    assert plain.returncode == debugged.returncode == 1
    assert len(plain.stderr.splitlines()) == 1
    assert plain.stderr.startswith("podium: ")
    assert "Traceback" in debugged.stderr
    assert "Traceback" in from_environment.stderr
    assert debugged.stderr.splitlines()[-1] == plain.stderr.rstrip("\n")
