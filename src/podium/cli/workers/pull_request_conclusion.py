"""Finish `podium merge --pull-request`: push the branches and open their pull requests if the user agrees."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import click
from msgspec import structs

from ...system.host_id import get_local_actor
from ...values.errors import PodiumError
from ...values.plain_text import join_words
from ...workers.merging.merge import CheckedMerge
from ...workers.merging.merge_run import MergeReport, TrainOutcome
from ...workers.merging.pull_requests import RequestPlace, open_pull_requests
from ...workers.queries.worker_lookup import RepoContext
from ...workspace.travel.forge import OpenedRequest
from ..terminal import exit_codes
from ..terminal.terminal_input import is_attended
from ..terminal.text import as_json, escape_for_terminal, print_to_stderr
from .merge_conclusion import get_left_out_code
from .move_text import MoveOptions


def conclude_with_requests(there: RepoContext, checked: CheckedMerge, place: RequestPlace, options: MoveOptions) -> int:
    """Push the merged branches and open pull requests for them if the user agrees, and return the exit code.

    The target is not moved, and there is no integration branch, so that none is left if this process is killed.
    """
    [(_, outcome)] = checked.parts
    branches = [one.branch for one in outcome.train.merged]
    refusal = _find_refusal(branches, place, options) if branches else None
    opened: list[OpenedRequest] = []
    error: PodiumError | None = None
    if refusal is None:
        error = anyio.run(_open_requests, there, outcome, place, opened, options)
    if options.is_json:
        ending = {"moved": False, "error": None if error is None else str(error), "pull_requests": opened}
        click.echo(as_json({**structs.asdict(MergeReport.of(outcome)), **ending, "branch": None}))
    if error is not None:
        raise error
    return get_left_out_code(checked) if refusal is None else refusal


async def _open_requests(
    there: RepoContext,
    outcome: TrainOutcome,
    place: RequestPlace,
    opened: list[OpenedRequest],
    options: MoveOptions,
) -> PodiumError | None:
    """Open the pull requests, and add each to `opened` as soon as it exists. If opening one fails, return the error."""
    by = get_local_actor("command" if options.is_agreed else "terminal")
    try:
        async for one in open_pull_requests(there, place, outcome.train, by=by):
            opened.append(one)
            if not options.is_json:
                what = "opened" if one.is_new else "already open, updated"
                click.echo(escape_for_terminal(f"{one.branch}: {one.url} ({what})"))
    except PodiumError as error:
        return error
    return None


def _find_refusal(branches: Sequence[str], place: RequestPlace, options: MoveOptions) -> int | None:
    """Return None if the branches may be pushed. Otherwise, print the reason and return the exit code."""
    if options.is_agreed:
        return None
    where = f"{place.remote.name} ({place.remote.url.text})"
    if options.is_json or not is_attended():
        print_to_stderr(f"{join_words(branches)} would be pushed to {where}; to do that, add --yes")
        return exit_codes.ASKS
    question = f"Push {join_words(branches)} to {where} and open pull requests?"
    if click.confirm(escape_for_terminal(question), default=None, err=True):
        return None
    print_to_stderr("nothing was pushed")
    return exit_codes.DENIED
