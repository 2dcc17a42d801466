"""Start the workers for `podium merge --resolve`, each of which repairs a branch that conflicts or fails a check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ...files.discovery import load_roster
from ...values.agent import Agent
from ...values.errors import PodiumError
from ...workers.merging.merge import CheckedMerge
from ...workers.merging.merge_candidates import Resolver, find_resolvers
from ...workers.queries.worker_lookup import RepoContext
from ...workspace.git.revision import branch_tips
from ...workspace.merging.merge_train import LeftOutBranch, Train
from ...workspace.merging.resolution_commit import find_unresolved_files
from ..terminal.global_options import get_command_actor
from ..terminal.text import escape_for_terminal, print_to_stderr

if TYPE_CHECKING:
    from ...workers.merging.conflict_resolution import ResolverRun


def load_resolver_team(context: RepoContext, name: str) -> tuple[Agent, ...]:
    """Return the agent called `name`, which resolves conflicts, followed by the agents that it needs.

    Raise Mistake if there is no agent with that name.
    """
    return tuple(load_roster(context.folder, context.settings.home).resolve_team(name))


async def resolve_left_out(context: RepoContext, checked: CheckedMerge, team: tuple[Agent, ...]) -> CheckedMerge:
    """Start a resolver for each branch that the merge left out, and return the merge with these resolvers."""
    [(merge, outcome)] = checked.parts
    resolving = tuple(await send_resolvers(context, outcome.train, team))
    return replace(checked, parts=((merge, replace(outcome, resolving=resolving)),))


async def send_resolvers(context: RepoContext, result: Train, team: tuple[Agent, ...]) -> list[ResolverRun]:
    """Start a resolver for each branch that conflicts or fails a check.

    Skip branches that are already resolved, or that a resolver is already working on.
    """
    unresolved_branches = [one for one in result.left_out if one.reason in ("conflict", "check")]
    if not unresolved_branches:
        return []
    from ...app import App  # imported here to keep start-up fast: most merges do not need it
    from ...workers.merging.conflict_resolution import delegate_resolution

    resolvers_by_branch = await find_resolvers(context)
    resolver_runs: list[ResolverRun] = []
    async with App(context.settings) as app:
        for one in unresolved_branches:
            if reason := await _reason_to_skip(context, one, resolvers_by_branch):
                print_to_stderr(reason)
                continue
            try:
                resolver_runs.append(
                    await delegate_resolution(
                        app.runs,
                        context.settings,
                        team,
                        one,
                        result,
                        at=context.folder,
                        by=get_command_actor(),
                    )
                )
            except PodiumError as error:
                print_to_stderr(f"{one.branch}: no resolver was started: {error}")
    return resolver_runs


async def _reason_to_skip(
    context: RepoContext, left_out: LeftOutBranch, resolvers_by_branch: Mapping[str, Resolver]
) -> str:
    """Return why a branch needs no new resolver, or an empty string if it needs a resolver."""
    for branch, resolver in reversed(list(resolvers_by_branch.items())):
        if resolver.resolves.theirs != left_out.commit:
            continue
        if not resolver.worker.is_over:
            return f"{left_out.branch}: a resolver is already working on this branch; see {branch} in podium workers"
        at = (await branch_tips(context.repository, [branch])).get(branch)
        if resolver.worker.state != "complete" or at is None:
            continue
        if not await find_unresolved_files(context.repository, at, resolver.resolves):
            return f"{left_out.branch}: already resolved on {branch}; merge it with: podium merge {branch}"
    return ""


def print_resolvers(resolver_runs: Iterable[ResolverRun], *, is_json: bool) -> None:
    """Print which workers were started, and the commands to use when they are done."""
    for one in resolver_runs:
        if not is_json:
            click.echo(escape_for_terminal(f"resolving: {one.branch}: worker {one.run} on {one.on}"))
        print_to_stderr(
            f"{one.on}: a worker is resolving the conflicts; run podium workers to see its state, and podium approvals "
            "to see its requests"
        )
        print_to_stderr(
            f"  when the worker has finished, merge {one.on} instead of {one.branch}: podium merge {one.on}"
        )
