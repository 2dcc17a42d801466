"""`podium worktrees`: list, clean up and remove the worktrees in a repository."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import anyio
import click

from ...files.settings import Settings
from ...runs.fork_checkouts import FORK_BRANCHES, remove_unfinished_forks
from ...system.locations import find_home_folder
from ...values.column import encode_rows
from ...values.errors import Mistake
from ...values.event import SCHEMA
from ...workers.merging.pushed_work import RefCleanup, remove_finished_refs
from ...workers.queries.worker_lookup import RepoContext, open_worktrees
from ...workers.queries.worktree_listing import (
    WORKTREE_COLUMNS,
    ListedWorktree,
    OtherWorktree,
    clean_up_all_worktrees,
    list_other_worktrees,
    list_unfinished_runs,
)
from ...workspace.git.repository import Repository, read_git_output
from ...workspace.git.revision import HEADS, branch_tip, contains_commit
from ...workspace.git.snapshot import resolve_commit
from ...workspace.worktrees.cleanup import CleanupResult, WorktreeSummary, list_worktrees
from ...workspace.worktrees.disk_quota import WorktreeDiskUsage, read_disk_usage
from ...workspace.worktrees.worktree import Worktrees
from ...workspace.worktrees.worktree_slots import list_slots
from ..output.command_options import json_option, repo_option
from ..output.table import format_table
from ..output.text import as_json, escape_for_terminal, print_to_stderr
from . import worktrees

NO_WORKTREES = "no worktrees other than the main one"
QUOTA_REACHED = "no new worktrees can be created; free space with podium worktrees cleanup, or raise the quota"
force_option = click.option(
    "--force", is_flag=True, help="Also remove worktrees with unmerged or uncommitted work; it is saved first."
)


@click.group("worktrees", invoke_without_command=True)
@repo_option
@json_option
@click.pass_context
def worktrees_command(ctx: click.Context, repo: Path | None, is_json: bool) -> None:
    """List a repository's worktrees and their states, or remove those that are no longer needed."""
    ctx.obj = worktrees = open_worktrees(Repository.at(repo or Path.cwd()))
    anyio.run(remove_unfinished_forks, Settings.load(repo=worktrees.repository.main_folder))
    if ctx.invoked_subcommand is not None:
        if is_json:
            subcommand = ctx.invoked_subcommand
            raise click.UsageError(
                f"--json cannot come before {subcommand}; run podium worktrees {subcommand} --help to list its options"
            )
        return
    summaries, disk_usage, elsewhere = anyio.run(_load_worktrees, worktrees)
    slots, now = list_slots(find_home_folder()), time.time()
    rows = [ListedWorktree(summary=one, slot=slots.get(str(one.path)), now=now) for one in summaries]
    if is_json:
        total = {"taken": disk_usage.total_size, "quota": disk_usage.quota, "reached": disk_usage.is_reached}
        listed = encode_rows(rows, WORKTREE_COLUMNS)
        also = [{"branch": one.branch, "path": str(one.path), "repo": one.root, "run": one.run} for one in elsewhere]
        click.echo(as_json({"schema": SCHEMA, "worktrees": listed, "also": also, **total}))
        return
    if rows:
        for line in format_table(rows, WORKTREE_COLUMNS, now=now, most=shutil.get_terminal_size().columns):
            click.echo(line)
        for one in (row for row in summaries if row.trouble):
            click.echo(escape_for_terminal(f"{one.branch}: {one.trouble}"))
    else:
        print_to_stderr(NO_WORKTREES)
    for other in elsewhere:
        click.echo(escape_for_terminal(f"{other.branch}: also in {other.path}"))
    if disk_usage.worktrees:
        click.echo(f"{disk_usage}{f'; {QUOTA_REACHED}' if disk_usage.is_reached else ''}")


async def _load_worktrees(
    worktrees: Worktrees,
) -> tuple[list[WorktreeSummary], WorktreeDiskUsage, list[OtherWorktree]]:
    """Return the repository's worktrees, the disk usage of all worktrees in the store, and the other worktrees.

    The other worktrees are in other repositories and were created for this repository's workers.
    """
    listed = await list_worktrees(worktrees)
    elsewhere = await list_other_worktrees(worktrees)
    return listed, await read_disk_usage(worktrees.ledger, worktrees.quota), elsewhere


@worktrees_command.command("cleanup")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed, and why.")
@force_option
@json_option
@click.pass_obj
def worktrees_cleanup_command(worktrees: Worktrees, dry_run: bool, force: bool, is_json: bool) -> None:
    """Remove worktrees that Podium created and that are no longer needed, and print the result for each.

    This includes worktrees in other repositories that were created for this repository's workers.
    Workers on other machines push their work to refs on a remote. Those refs are removed too once the work is merged.
    """

    async def run_cleanup() -> tuple[list[CleanupResult], list[RefCleanup]]:
        lines = await clean_up_all_worktrees(worktrees, force=force, dry_run=dry_run)
        context = RepoContext(worktrees.repository.root)
        return lines, await remove_finished_refs(context, force=force, dry_run=dry_run)

    lines, refs = anyio.run(run_cleanup)
    if is_json:
        items = [{"branch": one.branch, "path": str(one.path), "act": one.act, "why": one.why} for one in lines]
        remote = [{"branch": one.branch, "remote": one.remote, "act": one.act, "why": one.why} for one in refs]
        click.echo(as_json({"schema": SCHEMA, "dry_run": dry_run, "worktrees": items, "refs": remote}))
        return
    if not lines:
        print_to_stderr(NO_WORKTREES)
    for line in lines:
        act = "would be removed" if dry_run and line.act == "removed" else line.act
        click.echo(escape_for_terminal(f"{act}: {line.branch or 'no branch'} in {line.path}: {line.why}"))
    for ref in refs:
        act = "would be removed" if dry_run and ref.act == "removed" else ref.act
        click.echo(escape_for_terminal(f"{act}: refs of {ref.branch} on {ref.remote}: {ref.why}"))


@worktrees_command.command("remove")
@click.argument("branch")
@force_option
@click.option("--branch", "deletes_branch", is_flag=True, help="Also delete BRANCH if it is merged.")
@click.pass_obj
def worktrees_remove_command(worktrees: Worktrees, branch: str, force: bool, deletes_branch: bool) -> None:
    """Remove the worktree of BRANCH; the branch is kept unless --branch is given."""

    async def remove_worktree() -> str:
        rows = [
            one
            for one in await worktrees.ledger.list_worktrees(worktrees.repository.common_dir)
            if one.branch == branch
        ]
        if rows and rows[0].run in list_unfinished_runs(worktrees.ledger.store):
            if branch.startswith(f"{FORK_BRANCHES}/"):
                raise Mistake(
                    f"run {rows[0].run} is still using {branch}; stop it first with: podium stop {rows[0].run}"
                )
            raise Mistake(f"a worker is still using {branch}; cancel it first with: podium workers cancel {branch}")
        removed = str(await worktrees.remove(branch, force=force))
        return f"{removed}\n{await _delete_merged_branch(worktrees.repository, branch)}" if deletes_branch else removed

    click.echo(escape_for_terminal(anyio.run(remove_worktree)))


async def _delete_merged_branch(repository: Repository, branch: str) -> str:
    """Delete a branch if all its commits are on the current branch. Return a message about the result."""
    tip = await branch_tip(repository, branch)
    head = await resolve_commit(repository, "HEAD")
    if not await contains_commit(repository, head, tip):
        return f"kept the branch {branch}: it is not merged; run git branch -D {branch} to delete it anyway"
    await read_git_output(repository, "update-ref", "-d", f"{HEADS}{branch}", tip)
    return f"deleted the branch {branch} (was {tip[:12]})"


@click.command("cleanup", params=worktrees.worktrees_cleanup_command.params)
@click.pass_context
def workers_cleanup_command(ctx: click.Context, /, **option_values: Any) -> None:
    """Remove the worktrees of workers that have ended, and report the result for each.

    Same as podium worktrees cleanup: worktrees with uncommitted or unmerged work are kept unless --force is given.
    """
    context: RepoContext = ctx.obj
    ctx.obj = context.worktrees
    ctx.invoke(worktrees.worktrees_cleanup_command, **option_values)
