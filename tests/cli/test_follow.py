"""`podium follow`: a run that another process works on is shown until it ends, as `podium run` shows it."""

from __future__ import annotations

import json
from collections.abc import Callable

from .conftest import SLOW, Desk, read_until_exit, wait_for


def test_a_run_that_has_ended_is_printed_as_podium_run_printed_it(desk: Desk) -> None:
    desk.write_agent("lead", "the answer")
    ran = desk.invoke("run", "lead", "do it")
    run = desk.run_id()

    followed = desk.invoke("follow", run[:6])

    assert (followed.exit_code, followed.stdout) == (0, "the answer\n")
    # The last line has the time that the run took, which the run's own process measures a little later.
    assert followed.stderr.splitlines()[:-1] == ran.stderr.splitlines()[:-1]
    assert json.loads(desk.invoke("follow", run, "--json").stdout)["text"] == "the answer"
    assert desk.invoke("follow", run, "--quiet").stderr == ""


def test_a_failed_run_has_the_same_error_and_exit_code(desk: Desk) -> None:
    desk.write_agent("lead", {"fails": "no such model"})
    ran = desk.invoke("run", "lead", "do it")

    followed = desk.invoke("follow", desk.run_id())

    assert followed.exit_code == ran.exit_code == 1
    assert followed.stderr.splitlines()[-1] == ran.stderr.splitlines()[-1]


def test_a_run_is_shown_while_another_process_works_on_it(desk: Desk) -> None:
    desk.write_agent("lead", SLOW)
    with desk.start_podium("run", "lead", "do it", "--plain") as working:
        wait_for(working.stderr, "calling")
        run = desk.run_id()
        with desk.start_podium("follow", run) as following:
            wait_for(following.stderr, "lead: calling")
            assert desk.invoke("stop", run).exit_code == 0
            _, said = read_until_exit(following)

    assert following.returncode == 1
    assert said.splitlines()[-1] == "podium: the run was cancelled"


def test_a_run_without_a_process_ends_the_command(desk: Desk, make_interrupted_run: Callable[[], str]) -> None:
    run = make_interrupted_run()

    followed = desk.invoke("follow", run)

    assert followed.exit_code == 1
    *_, why, hint = followed.stderr.splitlines()
    assert why == f"podium: no process is working on run {run}"
    assert hint.endswith(f"podium resume {run}")


def test_an_unknown_run_is_a_mistake(desk: Desk) -> None:
    assert desk.invoke("follow", "nothing").exit_code == 2
