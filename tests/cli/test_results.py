from __future__ import annotations

import getpass
import json
from collections.abc import Callable
from typing import Any

import pytest

from podium.patterns.report_synthesis import MAX_CHARACTERS
from podium.store.reader import StoreReader
from podium.testing import make_repository
from podium.values.event import RunStarted
from podium.views.quoted_markdown import escape_inline, quote_block

from .conftest import SLOW, Desk, read_until_exit, wait_for

TEAM = {"mode": "sequential", "members": ["quick", "slow"]}


def make_stopped_run(desk: Desk) -> str:
    """Make a team run that was stopped when one member had finished and the other was still working."""
    desk.write_agent("lead", team=TEAM)
    desk.write_agent("quick", "# quick\nis <b>done</b>")
    desk.write_agent("slow", SLOW)
    with desk.start_podium("run", "lead", "do it") as process:
        wait_for(process.stderr, "slow: calling")
        desk.invoke("stop", desk.run_id())
        read_until_exit(process)
    return desk.run_id()


def test_a_stopped_run_shows_its_partial_results(desk: Desk) -> None:
    run = make_stopped_run(desk)

    said = desk.invoke("results", run[:8])

    assert said.exit_code == 0
    lines = said.stdout.splitlines()
    assert lines[:2] == [f"run {run}  cancelled", "lead was asked: do it"]
    assert f"There is no answer: it was stopped by {getpass.getuser()}." in lines
    [quick] = [line for line in lines if line.startswith("--- quick (member): succeeded, ")]
    assert lines[lines.index(quick) + 1 :][:2] == ["# quick", "is <b>done</b>"]
    assert any(line.startswith("--- slow (member): cancelled, not finished, ") for line in lines)


def test_markdown_can_be_pasted_without_harm(desk: Desk) -> None:
    run = make_stopped_run(desk)

    said = desk.invoke("results", run, "--markdown").stdout

    assert [line for line in said.splitlines() if line.startswith("#")] == [
        f"# Run {run}: cancelled",
        "## No answer",
        "## Results by agent",
        *[line for line in said.splitlines() if line.startswith("### ")],
    ]
    assert "> \\# quick\n> is &lt;b>done&lt;/b>" in said


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("## Approved", "> \\## Approved"),
        ("> 1. # deep", "> > 1. \\# deep"),
        ("Title\n===", "> Title\n> \\==="),
        ("Title\n---", "> Title\n> \\---"),
        ("one\x85# two", "> one\\x85# two"),
        ("\\<img src=x>", "> \\&lt;img src=x>"),
        ("![x](http://elsewhere)", "> !\\[x](http://elsewhere)"),
        ("[note]: http://elsewhere", "> \\[note]: http://elsewhere"),
        ("a < b, #1 and C#", "> a < b, #1 and C#"),
        ("```\nopen", "> ```\n> open"),
    ],
)
def test_quoted_text_of_agents_does_not_affect_the_markdown_around_it(text: str, shown: str) -> None:
    assert quote_block(text) == shown


def test_a_name_is_only_a_name() -> None:
    assert escape_inline("**a**\n# [b](c) @d <e>") == r"\*\*a\*\* \# \[b\](c) \@d \<e\>"


def test_programs_get_every_field(desk: Desk) -> None:
    run = make_stopped_run(desk)

    said = json.loads(desk.invoke("results", run, "--json").stdout)

    assert (said["schema"], said["run"], said["state"], said["answer"]) == (1, run, "cancelled", None)
    assert [(part["agent"], part["state"]) for part in said["parts"]] == [("quick", "succeeded"), ("slow", "cancelled")]
    assert said["parts"][0]["text"] == "# quick\nis <b>done</b>"
    assert said["parts"][1]["usage"]["calls"] == 1
    assert said["budget"] is None


def test_a_run_that_was_interrupted_has_results_too(desk: Desk, make_interrupted_run: Callable[[], str]) -> None:
    run = make_interrupted_run()

    said = desk.invoke("results", run).stdout

    assert "There is no answer yet: it has not ended." in said
    assert f"Resume it with: podium resume {run}" in said


def test_a_run_can_be_looked_into_while_it_works(desk: Desk) -> None:
    desk.write_agent("lead", team=TEAM)
    desk.write_agent("quick", "quick is done")
    desk.write_agent("slow", SLOW)
    with desk.start_podium("run", "lead", "do it") as process:
        wait_for(process.stderr, "slow: calling")

        said = desk.invoke("results", desk.run_id()).stdout

        process.kill()

    assert "running" in said.splitlines()[0]
    assert "quick is done" in said
    assert "--- slow (member): unfinished" in said


def test_a_loop_is_summed_up_in_a_line_with_its_verdicts(desk: Desk) -> None:
    team = {"mode": "reflect", "members": ["worker"], "max_iterations": 3}
    desk.write_agent("lead", "@worker:worker look", "It is done.\n[[GROUP_REFLECT_COMPLETE]]", team=team)
    desk.write_agent("worker", "seen")
    desk.invoke("run", "lead", "find out")

    lines = desk.invoke("results", desk.run_id()).stdout.splitlines()

    assert lines[lines.index("Answer:") + 1] == "It is done."
    [loop] = [line for line in lines if "Loop led by lead" in line]
    assert loop.startswith('✓ Loop led by lead: "find out", 1/3 iterations, ')
    assert loop.endswith(", goal_met:")
    assert any(line.startswith("  iteration 1: 1.00 (stable) by lead: complete") for line in lines)


def test_a_discussion_reports_who_voted_and_why_it_ended(desk: Desk) -> None:
    vote = {"calls": [{"name": "vote_conclude", "arguments": {"ready": True, "reason": "all said"}}]}
    desk.write_agent("lead", "We agree.", team={"mode": "discuss", "members": ["ann"]})
    desk.write_agent("ann", vote, "so be it")
    desk.invoke("run", "lead", "talk")

    said = desk.invoke("results", desk.run_id()).stdout

    assert "Discussion led by lead: 1 round, 0 messages, ended by consensus:" in said
    assert "  ann: ready in round 1, all said" in said


def test_a_discussion_in_which_nobody_voted_is_one_sentence(desk: Desk) -> None:
    desk.write_agent("lead", "moderated", "decided", team={"mode": "discuss", "members": ["ann"], "max_rounds": 1})
    desk.write_agent("ann", "all said")
    desk.run_podium("run", "lead", "go")

    said = desk.invoke("results", desk.run_id()).stdout

    assert said.endswith("Discussion led by lead: 1 round, 1 message, ended by max_rounds.\n")


def test_what_held_a_verdict_back_stays_on_its_line(desk: Desk) -> None:
    plan = "@worker:ann do it\n@end"
    team = {"mode": "reflect", "members": ["ann"], "checks": ["make test"], "max_iterations": 1}
    desk.write_agent("lead", plan, "done\n[[GROUP_REFLECT_COMPLETE]]", team=team)
    desk.write_agent("ann", "did it")
    make_repository(desk.repo, {})
    desk.run_podium("run", "lead", "go")

    said = desk.invoke("results", desk.run_id()).stdout.splitlines()

    [verdict] = [line for line in said if line.startswith("  iteration 1:")]
    assert "the checks did not pass: the checks were not run: " in verdict
    assert verdict.endswith("; done")


def test_two_forms_at_once_are_a_mistake(desk: Desk) -> None:
    assert desk.invoke("results", "x", "--json", "--markdown").exit_code == 2


# Summaries


def make_run_for_synthesis(desk: Desk, *moves: str | dict[str, Any]) -> str:
    """Make a team run whose lead would summarise it with these script steps."""
    desk.write_agent("lead", *moves, team={"mode": "sequential", "members": ["quick", "late"]}, tools=["Read", "Bash"])
    desk.write_agent("quick", "@worker:late do it\nquick is done")
    desk.write_agent("late", {"fails": {"status": 400, "message": "no more paper"}})
    desk.invoke("run", "lead", "do it")
    return desk.run_id()


def test_the_lead_sums_up_the_results_of_its_run(desk: Desk) -> None:
    run = make_run_for_synthesis(desk, "# All in all\nQuick is done.")

    said = desk.invoke("results", run, "--synthesis", "--markdown")

    assert said.exit_code == 0
    own = desk.run_id()
    assert said.stdout.startswith(f"# Run {run}: ")
    assert said.stdout.endswith(f"\n\n## Synthesis by lead (run {own})\n\n> \\# All in all\n> Quick is done.\n")
    with StoreReader(desk.store) as reader:
        started = reader.read_entries(own)[0].event
    assert isinstance(started, RunStarted)
    [lead] = started.agents
    assert (lead.name, lead.tools, lead.team) == ("lead", (), None)
    assert "> > @ worker:late do it\n> > quick is done" in started.request.text
    assert "no more paper" in started.request.text


def test_the_lead_is_asked_as_it_was_in_its_run(desk: Desk) -> None:
    run = make_run_for_synthesis(desk, "as it was")
    desk.write_agent("lead", "as it is now")

    said = desk.invoke("results", run, "--synthesis")

    assert said.stdout.splitlines()[-2:] == [f"Synthesis by lead (run {desk.run_id()}):", "as it was"]


def test_a_synthesis_that_fails_leaves_the_report_and_its_own_exit_code(desk: Desk) -> None:
    run = make_run_for_synthesis(desk, {"fails": {"status": 400, "message": "out of ink"}})

    said = desk.invoke("results", run, "--synthesis")
    program = desk.invoke("results", run, "--synthesis", "--json")

    assert (said.exit_code, program.exit_code) == (1, 1)
    assert "quick is done" in said.stdout
    assert "out of ink" in said.stdout.splitlines()[-1]
    assert "podium: lead: " in said.stderr
    fields = json.loads(program.stdout)
    assert fields["run"] == run
    assert fields["synthesis"] == {**fields["synthesis"], "run": desk.run_id(), "outcome": "failed", "text": ""}
    assert "out of ink" in fields["synthesis"]["error"]


def test_the_named_agent_sums_up_and_an_unknown_one_is_refused(desk: Desk) -> None:
    run = make_run_for_synthesis(desk, "unused")
    desk.write_agent("critic", "so so", handoff="lead", advisors=["quick"])

    said = desk.invoke("results", run, "--synthesis", "--agent", "critic", "--json")
    nobody = desk.invoke("results", run, "--synthesis", "--agent", "cirtic")
    alone = desk.invoke("results", run, "--agent", "critic")

    synthesis = json.loads(said.stdout)["synthesis"]
    assert (synthesis["agent"], synthesis["text"], synthesis["left_out"]) == ("critic", "so so", 0)
    assert (nobody.exit_code, nobody.stdout) == (2, "")
    assert (alone.exit_code, alone.stdout) == (2, "")


def test_a_synthesis_can_be_stopped_like_every_run(desk: Desk) -> None:
    run = make_run_for_synthesis(desk, SLOW)
    with desk.start_podium("results", run, "--synthesis") as process:
        wait_for(process.stderr, "lead: calling")
        desk.invoke("stop", desk.run_id())
        stdout, _ = read_until_exit(process)

    assert process.returncode == 1
    assert stdout.startswith(f"run {run}  ")
    assert stdout.endswith("No synthesis: the run was cancelled.\n")


def test_without_workers_no_agent_is_asked_to_sum_up(desk: Desk) -> None:
    make_repository(desk.repo)

    said = desk.invoke("results", "--workers", "--synthesis")
    program = desk.invoke("results", "--workers", "--synthesis", "--json")

    assert (said.exit_code, said.stdout) == (0, "")
    assert json.loads(program.stdout)["synthesis"] is None
    assert not desk.store.exists()


def test_a_long_report_is_cut_where_it_is_longest(desk: Desk) -> None:
    desk.write_agent("lead", "as one would expect", team={"mode": "sequential", "members": ["brief", "wordy"]})
    desk.write_agent("brief", "in short")
    desk.write_agent("wordy", "\n".join(f"line {number} of many" for number in range(6000)))
    desk.invoke("run", "lead", "do it")

    said = desk.invoke("results", desk.run_id(), "--synthesis", "--json")

    left_out = json.loads(said.stdout)["synthesis"]["left_out"]
    assert f"the report is too long for lead: {left_out:,} characters were omitted" in said.stderr
    with StoreReader(desk.store) as reader:
        started = reader.read_entries(desk.run_id())[0].event
    assert isinstance(started, RunStarted)
    text = started.request.text
    assert len(text) < 1.2 * MAX_CHARACTERS
    assert "in short" in text
    assert "line 0 of many" in text
    assert "line 5999 of many" in text


def test_every_stage_of_a_handoff_chain_is_shown_in_full(desk: Desk) -> None:
    first, second = "the first draft " * 50, "the second draft " * 50
    desk.write_agent("writer", first, handoff="editor")
    desk.write_agent("editor", second, handoff="proof")
    desk.write_agent("proof", "the final text")
    desk.invoke("run", "writer", "do it")

    said = desk.invoke("results", desk.run_id())

    assert first.strip() in said.stdout
    assert second.strip() in said.stdout
    assert said.stdout.count("the final text") == 2  # as the answer, and as the last member's result
