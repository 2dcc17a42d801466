"""`podium decide`: start a run in which a person decides or a team votes."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal

import click

from ...app import App
from ...files.settings import Settings
from ...runs.decision_start import PERSON, NewDecision, start_decision
from ...runs.queries.run_lookup import open_reader
from ...runs.run_handle import Run
from ...store.request_list import list_run_requests
from ...system.locations import find_repo
from ..output.agent_text import ResultDocument
from ..output.command_options import get_command_actor, read_text_argument, repo_option
from ..output.follow_run import RunEnding, work_on_run
from ..output.run_output import OutputOptions, output_options
from ..output.terminal_input import is_attended, no_input_option
from ..output.text import as_json, print_to_stderr


@click.command("decide")
@click.argument("topic")
@click.option("--option", "options", multiple=True, required=True, help="An option; give at least two.")
@click.option("--evidence", default="", help="Background information for the decision; - reads standard input.")
@click.option(
    "--by", default=PERSON, metavar="person|TEAM", help='Who decides: "person", or the name of a team that votes.'
)
@click.option("--rule", help="Voting rule: majority, quorum:N, unanimous or weighted; default: the team's rule.")
@click.option("--window", type=float, help="Time limit for the vote in seconds; default: the team's time limit.")
@click.option(
    "--decide-by",
    type=click.Choice(["lead", PERSON]),
    help="Who decides if the vote is inconclusive; default: the team's setting.",
)
@click.option("--supersede", metavar="ID", help="The earlier decision that this one replaces.")
@click.option("--model", help="Model for members that do not specify one, e.g. openai:gpt-5-mini.")
@repo_option
@no_input_option
@output_options
def decide_command(
    topic: str,
    options: tuple[str, ...],
    evidence: str,
    by: str,
    rule: str | None,
    window: float | None,
    decide_by: Literal["lead", "person"] | None,
    supersede: str | None,
    model: str | None,
    repo: Path | None,
    **output: bool,
) -> int:
    """Make a decision on TOPIC, and record it.

    You choose an option at the terminal. Without a terminal, the decision stays open until you choose an option with
    podium answer. With --by TEAM, the members of that team vote according to the team's rule. If the vote is
    inconclusive, the team's lead decides, unless the team's settings or --decide-by let you decide.
    """
    shown = OutputOptions(**output)
    place = find_repo(repo or Path())
    settings = Settings.load(repo=place, model=model)
    new = NewDecision(
        topic=topic,
        options=options,
        evidence=read_text_argument(evidence) if evidence == "-" else evidence,
        decides=by,
        rule=rule,
        window=window,
        decide_by=decide_by,
        supersedes=supersede,
    )

    def start(app: App) -> AbstractAsyncContextManager[Run]:
        by = get_command_actor()
        return start_decision(app.runs, new, place=place, by=by, is_attended=is_attended())

    ending = work_on_run(settings, start, shown.make_view)
    code = shown.print_ending(ending)
    if ending.is_parked:
        _print_waiting(settings, ending)
    if shown.is_json:
        click.echo(as_json(ResultDocument.of(ending.result)))
    return code


def _print_waiting(settings: Settings, ending: RunEnding) -> None:
    """Print, for each open request of the run, the command that answers it."""
    assert ending.result is not None
    with open_reader(settings.store) as reader:
        requests = list_run_requests(reader, reader.read_summary(ending.result.run_id))
    for one in requests:
        print_to_stderr(f"the decision needs your answer: podium answer {one.asked.id} OPTION")
