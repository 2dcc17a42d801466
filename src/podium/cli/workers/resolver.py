"""Resolvers: the workers that `podium merge --resolve` sends to the branches that clash or fail a check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

from ...roster.discovery import load_roster
from ...runs.merging import Resolver, find_resolvers
from ...runs.worker_lookup import RepoContext
from ...values.agent import Agent
from ...values.errors import PodiumError
from ...workers.worker_options import WorkerOptions, apply_worker_options
from ...workspace.git.revision import tips
from ...workspace.merging.merge_train import LeftOutBranch, Train
from ...workspace.merging.resolution_commit import find_unresolved_files
from ..terminal.text import escape_for_terminal, print_to_stderr

if TYPE_CHECKING:
    from ...workers.conflict_resolution import ResolverRun


def load_resolver_team(context: RepoContext, name: str) -> tuple[Agent, ...]:
    """The agent that resolves, then those that it needs. Raises Mistake where there is none of that name."""
    first, *others = load_roster(context.folder, context.settings.home).resolve_team(name)
    return apply_worker_options(first, WorkerOptions(), context.settings), *others


async def send_resolvers(context: RepoContext, result: Train, team: tuple[Agent, ...]) -> list[ResolverRun]:
    """A worker for each branch that clashes or fails a check, where none has resolved it or is about to."""
    unresolved_branches = [one for one in result.left_out if one.reason in ("conflict", "check")]
    if not unresolved_branches:
        return []
    from ...app import App  # here, because most merges need none of it
    from ...workers.conflict_resolution import delegate_resolution
    from ...workers.delegate import start_commander
    from ...workers.provider_keys import announce_keys

    resolvers_by_branch = await find_resolvers(context)
    resolver_runs: list[ResolverRun] = []
    async with App(context.settings) as app:
        for one in unresolved_branches:
            if reason := await _reason_to_skip(context, one, resolvers_by_branch):
                print_to_stderr(reason)
                continue
            try:
                with announce_keys(context.settings.store) as delivery:
                    resolver_run = delegate_resolution(
                        app.launcher, team[0], one, result, at=context.folder, run=delivery.run, agents=team[1:]
                    )
                    resolver_runs.append(await resolver_run)
                    start_commander(context.settings, delivery=delivery)
            except PodiumError as error:
                print_to_stderr(f"{one.branch}: nobody is sent to resolve it: {error}")
    return resolver_runs


async def _reason_to_skip(
    context: RepoContext, left_out: LeftOutBranch, resolvers_by_branch: Mapping[str, Resolver]
) -> str:
    """Why nobody needs to be sent to a branch; empty where somebody does."""
    for branch, resolver in reversed(list(resolvers_by_branch.items())):
        if resolver.resolves.theirs != left_out.commit:
            continue
        if not resolver.worker.is_over:
            return f"{left_out.branch}: a worker is on it already; podium workers shows {branch}"
        at = (await tips(context.repository, [branch])).get(branch)
        if resolver.worker.state != "complete" or at is None:
            continue
        if not await find_unresolved_files(context.repository, at, resolver.resolves):
            return f"{left_out.branch}: {branch} has it resolved; podium merge {branch} takes that"
    return ""


def print_resolvers(resolver_runs: Iterable[ResolverRun], *, is_json: bool) -> None:
    """Say who was sent to what, and what to do then."""
    for one in resolver_runs:
        if not is_json:
            click.echo(escape_for_terminal(f"resolving: {one.branch}: worker {one.run} on {one.on}"))
        print_to_stderr(f"{one.on}: podium workers shows how it stands, podium approvals what it asks;")
        print_to_stderr(f"  when it is done, podium merge {one.on} takes it in place of {one.branch}")
