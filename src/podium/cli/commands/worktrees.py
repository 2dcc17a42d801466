"""`podium worktrees`: the checkouts of a repository, those of workers and others, and putting them away."""

from __future__ import annotations

import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import click

from ...runs.run_lookup import looking
from ...runs.run_state import is_over
from ...setup.settings import Settings
from ...setup.worktree_setup import hook
from ...store.sqlite.worktree_ledger import Ledger
from ...values.byte_size import sized
from ...values.errors import Mistake
from ...values.event import SCHEMA
from ...workspace.git.repository import Repository
from ...workspace.worktrees.cleanup import Line, Listed, cleanup, listed
from ...workspace.worktrees.disk_quota import Taken, taken
from ...workspace.worktrees.worktree import Worktrees
from ...workspace.worktrees.worktree_folder import FOLDER
from ..terminal.measure import ago, aligned, leaner
from ..terminal.say import say
from ..terminal.text import as_json, visible

NOTHING = "no worktrees but the repository's own"
FULL = "no more are made; podium worktrees cleanup makes room, and a higher quota would do as well"
SPARE = ("MADE", "SIZE", "BEHIND")
"""What a narrow terminal can do without, from the first on."""

in_repo = click.option(
    "--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), help="The repository; by default this one."
)
as_object = click.option("--json", "is_json", is_flag=True, help="Print it as JSON.")
forced = click.option("--force", is_flag=True, help="Also what has work in it, which is saved first.")


@click.group("worktrees", invoke_without_command=True)
@in_repo
@as_object
@click.pass_context
def command(ctx: click.Context, repo: Path | None, is_json: bool) -> None:
    """List the worktrees of a repository and how they stand, or put away what is not needed any more."""
    ctx.obj = there = worktrees_of(Repository.at(repo or Path.cwd()))
    if ctx.invoked_subcommand is not None:
        if is_json:
            raise click.UsageError(f"--json goes after {ctx.invoked_subcommand}")
        return
    found, of_all = anyio.run(_looked, there)
    if is_json:
        total = {"taken": of_all.size, "quota": of_all.quota, "reached": of_all.is_reached}
        click.echo(as_json({"schema": SCHEMA, "worktrees": [fields(one) for one in found], **total}))
        return
    if found:
        click.echo(visible(table(found, now=time.time(), most=shutil.get_terminal_size().columns)))
    else:
        say(NOTHING)
    if of_all.worktrees:
        click.echo(f"{of_all}{f'; {FULL}' if of_all.is_reached else ''}")


async def _looked(there: Worktrees) -> tuple[list[Listed], Taken]:
    """The worktrees of the repository, and then what those of the whole store take."""
    return await listed(there), await taken(there.ledger, there.quota)


@command.command("cleanup")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed, and why.")
@forced
@as_object
@click.pass_obj
def clean(there: Worktrees, dry_run: bool, force: bool, is_json: bool) -> None:
    """Remove the worktrees of workers that are not needed any more, and say of each what became of it."""

    async def work() -> list[Line]:
        return await cleanup(there, busy=partial(unfinished, there.ledger.store), force=force, dry_run=dry_run)

    lines = anyio.run(work)
    if is_json:
        told = [{"branch": one.branch, "path": str(one.path), "act": one.act, "why": one.why} for one in lines]
        click.echo(as_json({"schema": SCHEMA, "dry_run": dry_run, "worktrees": told}))
    elif not lines:
        say(NOTHING)
    for line in lines if not is_json else ():
        act = "would be removed" if dry_run and line.act == "removed" else line.act
        click.echo(visible(f"{act}: {line.branch or 'no branch'} in {line.path}: {line.why}"))


@command.command("remove")
@click.argument("branch")
@forced
@click.pass_obj
def remove(there: Worktrees, branch: str, force: bool) -> None:
    """Remove the worktree of BRANCH; the branch stays."""

    async def work() -> str:
        noted = [one for one in await there.ledger.worktrees(there.repository.common_dir) if one.branch == branch]
        if noted and noted[0].run in unfinished(there.ledger.store):
            raise Mistake(f"a worker is at work on {branch}; podium workers cancel {branch} ends it first")
        return str(await there.remove(branch, force=force))

    click.echo(visible(anyio.run(work)))


def unfinished(store: Path) -> set[str]:
    """The runs that are at work, or may go on."""
    if not store.exists():
        return set()
    with looking(store) as reader:
        return {summary.id for summary in reader.runs() if not is_over(summary)}


def fields(one: Listed) -> dict[str, Any]:
    """A worktree as a list tells of it."""
    stands = one.standing
    told: dict[str, Any] = {
        "branch": one.branch,
        "path": str(one.path),
        "ours": one.is_ours,
        "state": one.state,
        "run": one.run,
        "created_at": one.created,
        "size": one.size,
        "trouble": one.trouble,
    }
    if stands is None:
        return told
    numbers = ("ahead", "behind", "unmerged", "modified", "untracked", "added", "removed")
    return told | {
        **{name: getattr(stands, name) for name in numbers},
        "commits": [{"id": commit.id, "subject": commit.subject} for commit in stands.commits],
        "files": [{"path": file.path, "added": file.added, "removed": file.removed} for file in stands.files],
    }


def table(found: list[Listed], *, now: float, most: int) -> str:
    """Worktrees in columns; on a narrow terminal some go, and the folder stays whole."""
    rows = [["BRANCH", "STATE", "AHEAD", "BEHIND", "LINES", "OPEN", "SIZE", "MADE", "FOLDER"]]
    for one in found:
        stands = one.standing
        rows.append(
            [
                one.branch or "-",
                "not ours" if not one.is_ours else "trouble" if one.trouble else one.state,
                str(stands.ahead) if stands else "-",
                str(stands.behind) if stands else "-",
                f"+{stands.added} -{stands.removed}" if stands else "-",
                str(stands.modified + stands.untracked) if stands else "-",
                sized(one.size) if one.is_ours else "-",
                ago(now - one.created) if one.is_ours else "-",
                str(one.path),
            ]
        )
    lines = ["  ".join(row) for row in aligned(leaner(rows, most=most, spare=SPARE))]
    return "\n".join([*lines, *(f"{one.branch}: {one.trouble}" for one in found if one.trouble)])


def worktrees_of(repository: Repository) -> Worktrees:
    """The worktrees of a repository, with what is done before one goes."""
    settings = Settings.load(repo=repository.main)
    teardown = hook(
        settings.worktrees.teardown,
        what="teardown",
        home=settings.home,
        store=settings.store,
        is_sandboxed=settings.sandbox,
    )
    return Worktrees(
        repository=repository,
        ledger=Ledger(settings.store),
        folder=settings.worktrees.folder or FOLDER,
        quota=settings.worktrees.quota,
        teardown=teardown,
    )
