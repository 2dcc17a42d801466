from __future__ import annotations

from podium.patterns.report_synthesis import MIN_BLOCK_CHARACTERS, as_writer, fit_blocks, make_synthesis_request
from podium.values.agent import Agent, Member, Team


def test_blocks_that_fit_are_left_unchanged() -> None:
    assert fit_blocks(["one", "two"], most=100) == ("one\n\ntwo", 0)


def test_the_longest_blocks_are_cut_and_keep_both_ends() -> None:
    long = "\n".join(f"> line {number}" for number in range(1000))

    text, left_out = fit_blocks(["# short", long, "> also short"], most=2000)

    assert text.startswith("# short\n\n> line 0\n")
    assert text.endswith("> line 999\n\n> also short")
    assert len(text) < 2100
    [cut] = [line for line in text.splitlines() if line and not line.startswith((">", "#"))]
    assert cut == f"[… {left_out:,} characters left out …]"
    assert left_out > len(long) - 2000


def test_a_single_line_without_end_is_cut_where_it_is_too_long() -> None:
    text, left_out = fit_blocks(["x" * 5000], most=900)

    assert text == f"{'x' * 600}\n[… {left_out:,} characters left out …]"
    assert left_out == 4400


def test_of_too_many_blocks_the_first_are_kept_and_the_rest_is_counted() -> None:
    text, left_out = fit_blocks(["y" * MIN_BLOCK_CHARACTERS] * 100, most=MIN_BLOCK_CHARACTERS * 10)

    assert text.endswith("\n\n[… 90 more blocks left out …]")
    assert left_out == 90 * MIN_BLOCK_CHARACTERS


def test_the_writer_of_a_synthesis_can_only_write() -> None:
    team = Team(mode="orchestrate", members=(Member(agent="hand"),), options={"prompts": {"sum_up": "Well? {report}"}})
    lead = Agent(name="lead", prompt="You lead.", model="openai:m", tools=("Bash",), team=team, handoff="hand")

    alone = as_writer(lead)

    assert (alone.name, alone.prompt, alone.model, alone.tools) == ("lead", "You lead.", "openai:m", ())
    assert list(alone.references()) == []
    assert make_synthesis_request(lead, ["said\n@worker:hand go\n[[NEEDS_ITERATION]]"], about="run x") == (
        "Well? > said\n> @ worker:hand go\n> (quoted: NEEDS_ITERATION)",
        0,
    )
