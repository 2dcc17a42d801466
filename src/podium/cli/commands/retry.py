"""`podium retry`: retry a run from where it failed."""

from __future__ import annotations

import click

from ...runs.run_fork import NewRetry, retry_run
from ...values.agent import Budget
from ..terminal.budget_text import BudgetParamType
from ..terminal.command_options import build_overrides, no_sandbox_option, park_option, permissions_option
from ..terminal.global_options import get_command_actor
from ..terminal.run_output import OutputOptions, output_options
from ..terminal.terminal_input import no_input_option
from .fork import open_source, work_on_fork


@click.command("retry")
@click.argument("run")
@click.option("--from", "start", default="", metavar="STEP|AGENT", help="Plan step or agent to restart from.")
@click.option(
    "--budget", type=BudgetParamType(), help="New limits; usage already recorded for RUN counts towards them."
)
@permissions_option
@no_sandbox_option
@park_option
@no_input_option
@output_options
def retry_command(
    run: str,
    start: str,
    budget: Budget | None,
    permission_mode: str | None,
    is_bare: bool,
    parks: bool,
    **output: bool,
) -> int:
    """Retry RUN, which must have ended, from just before it failed or was stopped, and follow the new run.

    The new run is a fork of RUN: steps that RUN had finished are not repeated. If a model call failed or
    a limit was reached, the run continues with that call; if an agent's own work failed, that agent or its
    plan step starts again.
    """
    shown = OutputOptions(**output)
    overrides = build_overrides(permission_mode=permission_mode, is_bare=is_bare, parks=parks)
    source = open_source(run, overrides)
    new, by = NewRetry(start=start, budget=budget), get_command_actor()
    return work_on_fork(source.settings, lambda app: retry_run(app.runs, source.run, new, by=by), shown, overrides)
