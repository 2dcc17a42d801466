"""Resolvers: the workers that `podium merge --resolve` sends to the branches that clash or fail a check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

from ...roster.discovery import load
from ...values.agent import Agent
from ...values.errors import PodiumError
from ...workers.worker_options import Terms, suited
from ...workspace.git.revision import tips
from ...workspace.merging.merge_train import LeftOut, Train
from ...workspace.merging.resolution_commit import unresolved
from ..terminal.say import say
from ..terminal.text import visible
from .merge_candidates import Resolver, resolvers
from .worker_lookup import There

if TYPE_CHECKING:
    from ...workers.conflict_resolution import Resolving


def resolving_team(there: There, name: str) -> tuple[Agent, ...]:
    """The agent that resolves, then those that it needs. Raises Mistake where there is none of that name."""
    first, *others = load(there.place, there.settings.home).team(name)
    return suited(first, Terms(), there.settings), *others


async def sent(there: There, result: Train, team: tuple[Agent, ...]) -> list[Resolving]:
    """A worker for each branch that clashes or fails a check, where none has resolved it or is about to."""
    wanting = [one for one in result.left_out if one.reason in ("conflict", "check")]
    if not wanting:
        return []
    from ...app import App  # here, because most merges need none of it
    from ...workers.conflict_resolution import have_resolved
    from ...workers.delegate import start_commander
    from ...workers.key_promise import promised

    known = await resolvers(there)
    found: list[Resolving] = []
    async with App(there.settings) as app:
        for one in wanting:
            if already := await _already(there, one, known):
                say(already)
                continue
            try:
                with promised(there.settings.store) as promise:
                    sent = have_resolved(app, team[0], one, result, at=there.place, run=promise.run, agents=team[1:])
                    found.append(await sent)
                    start_commander(there.settings, promise=promise)
            except PodiumError as error:
                say(f"{one.branch}: nobody is sent to resolve it: {error}")
    return found


async def _already(there: There, left_out: LeftOut, known: Mapping[str, Resolver]) -> str:
    """Why nobody needs to be sent to a branch; empty where somebody does."""
    for branch, resolver in reversed(list(known.items())):
        if resolver.resolves.theirs != left_out.commit:
            continue
        if not resolver.worker.is_over:
            return f"{left_out.branch}: a worker is on it already; podium workers shows {branch}"
        at = (await tips(there.repository, [branch])).get(branch)
        if resolver.worker.state != "complete" or at is None:
            continue
        if not await unresolved(there.repository, at, resolver.resolves):
            return f"{left_out.branch}: {branch} has it resolved; podium merge {branch} takes that"
    return ""


def tell(found: Iterable[Resolving], *, is_json: bool) -> None:
    """Say who was sent to what, and what to do then."""
    for one in found:
        if not is_json:
            click.echo(visible(f"resolving: {one.branch}: worker {one.run} on {one.on}"))
        say(f"{one.on}: podium workers shows how it stands, podium approvals what it asks;")
        say(f"  when it is done, podium merge {one.on} takes it in place of {one.branch}")
