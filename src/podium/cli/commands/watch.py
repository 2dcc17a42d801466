"""`podium watch`: pick up new issues from a source and have agents work on them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import TYPE_CHECKING

import anyio
import click

from ...files.settings import Settings
from ...store.issue_rows import IssueClaims
from ...system.host_id import get_local_actor, read_host_id
from ...system.locations import find_repo
from ...values.errors import Mistake, PodiumError
from ...watch.sources.forge_issues import USABLE, choose_source, find_own_source
from ...watch.sources.issue_source import IssueSource
from ...workspace.git.repository import Repository
from ..terminal import exit_codes
from ..terminal.command_options import json_option, repo_option
from ..terminal.issue_output import IssueOutput, print_claims, print_dry_run
from ..terminal.text import print_to_stderr
from .logs import parse_age

if TYPE_CHECKING:
    from ...watch.issue_triage import WatchOptions
    from ...watch.issue_watch import IssueWatch

MOST_LISTED = 200
SHORTEST_SECONDS = 1.0
FOREVER = float("inf")


@click.command("watch")
@click.argument("source", required=False, default="")
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="NAME",
    help="Agent that works on the issues; if you name several, the issue-triage agent chooses one for each issue.",
)
@click.option("--label", "labels", multiple=True, metavar="LABEL", help="Pick up only issues with this label.")
@click.option("--author", "authors", multiple=True, metavar="NAME", help="Pick up only issues opened by this author.")
@click.option(
    "--any-author",
    "is_any_author",
    is_flag=True,
    help="On a forge, also pick up issues opened by people who are not members of the project.",
)
@click.option("--once", "is_once", is_flag=True, help="Check for new issues once and exit; useful for cron jobs.")
@click.option("--wait", "is_waiting", is_flag=True, help="With --once, wait until the work has ended.")
@click.option(
    "--every", default="60s", show_default=True, metavar="TIME", help="How often to check for issues, e.g. 30s or 5m."
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Maximum number of new issues per check.",
)
@click.option(
    "--active", type=click.IntRange(min=1), default=5, show_default=True, help="Maximum number of issues in progress."
)
@click.option(
    "--delegate/--in-place",
    "is_delegated",
    default=None,
    help="Work on a branch in a separate worktree (--delegate), or directly in the repository's folder (--in-place); "
    "default: on a branch if the agent can change files.",
)
@click.option("--comment", "comments", is_flag=True, help="Comment on each issue when the work on it has ended.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Only show which issues would be picked up.")
@click.option("--list", "is_list", is_flag=True, help="List the issues that were picked up, with their states.")
@click.option(
    "--forget", metavar="ISSUE", help="Forget that this issue was picked up, so that it can be picked up again."
)
@repo_option
@json_option
def watch_command(
    source: str,
    agents: tuple[str, ...],
    labels: tuple[str, ...],
    authors: tuple[str, ...],
    is_any_author: bool,
    is_once: bool,
    is_waiting: bool,
    every: str,
    limit: int,
    active: int,
    is_delegated: bool | None,
    comments: bool,
    is_dry: bool,
    is_list: bool,
    forget: str | None,
    repo: Path | None,
    is_json: bool,
) -> int:
    """Pick up new issues from SOURCE, choose an agent for each, and have it work on the issue.

    SOURCE is a folder of Markdown files, github:OWNER/REPOSITORY or gitlab:GROUP/PROJECT. By default, it is the project
    of the repository's remote. Podium uses gh to access GitHub and glab to access GitLab. No issue is picked up twice.
    The work is done by runs in the background, which ask for permission as usual. On GitHub and GitLab, only issues
    opened by members of the project are picked up, unless --author or --any-author is given. Nothing is written to the
    source without --comment.
    """
    seconds = parse_age(every)
    if seconds is None or not SHORTEST_SECONDS <= seconds <= 86400:
        raise click.UsageError(f"--every {every!r} is not an interval between 1s and 1d; use for example 30s or 5m")
    if is_waiting and not is_once:
        raise click.UsageError("--wait needs --once; without --once, podium watch waits anyway")
    place = find_repo(repo or Path()).resolve()
    settings = Settings.load(repo=place)
    if is_list and not source:
        return print_claims(IssueClaims(settings.store).list_all(most=MOST_LISTED), is_json=is_json)
    from ...watch.issue_triage import WatchOptions  # imported here to keep start-up fast: the help does not need it

    options = WatchOptions(
        agents=agents,
        labels=labels,
        authors=authors,
        is_any_author=is_any_author,
        limit=limit,
        most_active=active,
        is_delegated=is_delegated,
        comments=comments,
    )
    chosen = anyio.run(_find_source, source, place, settings)
    if is_list:
        return print_claims(IssueClaims(settings.store).list_all(chosen.key, most=MOST_LISTED), is_json=is_json)
    if forget is not None:
        return _forget_issue(settings, chosen, forget)
    if is_dry:
        return print_dry_run(settings, place, chosen, options, is_json=is_json)
    output = IssueOutput(chosen.name, is_json=is_json)
    rounds = Rounds(every=every, seconds=seconds, is_once=is_once, is_waiting=is_waiting)
    return anyio.run(_watch, settings, place, chosen, options, output, rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """How often to check a source: once, or at an interval.

    `every` is the interval as the user gave it, and `seconds` is its length. If `is_once` is true, the source is
    checked only once; if `is_waiting` is true, the command then waits until the work has ended.
    """

    every: str
    seconds: float
    is_once: bool
    is_waiting: bool


async def _find_source(given: str, place: Path, settings: Settings) -> IssueSource:
    if given:
        host = read_host_id(settings.home)
        return choose_source(given, folder=Path.cwd(), outside=place, home=settings.home, host=host)
    try:
        repository = Repository.at(place)
    except Mistake:
        raise Mistake(f"{place} is not in a git repository, so SOURCE has no default; {USABLE}") from None
    return await find_own_source(repository, outside=repository.main_folder, home=settings.home, setting=settings.forge)


def _forget_issue(settings: Settings, source: IssueSource, issue: str) -> int:
    claims = IssueClaims(settings.store)
    name = issue.removeprefix("#")
    found = [one for one in claims.list_all(source.key, most=100_000) if one.issue in (name, f"{name}.md")]
    if not found:
        raise Mistake(
            f"issue {issue!r} from {source.name} has not been picked up; run podium watch --list to list the "
            "issues that have been picked up"
        )
    if found[0].is_active:
        raise Mistake(
            f"issue {issue!r} from {source.name} is being worked on; stop its run first with podium stop {found[0].run}"
        )
    claims.remove(found[0])
    print_to_stderr(f"removed the record of {issue}; the issue will be picked up again if it is still open")
    return exit_codes.GOAL_MET


async def _watch(
    settings: Settings, place: Path, source: IssueSource, options: WatchOptions, output: IssueOutput, rounds: Rounds
) -> int:
    from ...app import App  # imported here to keep start-up fast: the help does not need it
    from ...watch.issue_watch import IssueWatch

    with anyio.CancelScope() as scope, _cancel_at_signal(scope) as signals:
        async with App(settings) as app:
            by = get_local_actor("watch")
            watch = IssueWatch(app.runs, settings, source, options, place=place, by=by, report=output.print_event)
            if rounds.is_once:
                await _run_once(watch, output, is_waiting=rounds.is_waiting)
                return exit_codes.GOAL_NOT_MET if output.has_problems else exit_codes.GOAL_MET
            print_to_stderr(f"watching {source.name} every {rounds.every}; stop it with Ctrl-C")
            await _run_forever(watch, output, rounds.seconds)
    print_to_stderr("stopped watching; work that was started continues in the background; see podium ps")
    return exit_codes.SIGNALLED + (signals[0] if signals else SIGINT)


async def _run_once(watch: IssueWatch, output: IssueOutput, *, is_waiting: bool) -> None:
    from ...watch.issue_watch import TRIAGE_SECONDS  # imported here to keep start-up fast: the help does not need it

    await watch.run_round()
    await watch.wait(until=FOREVER if is_waiting else time.time() + TRIAGE_SECONDS, is_triage_only=not is_waiting)
    output.print_end()


async def _run_forever(watch: IssueWatch, output: IssueOutput, seconds: float) -> None:
    """Check for issues until cancelled. An error in the first round is raised; later errors are only printed."""
    has_looked = False
    while True:
        until = time.time() + seconds
        try:
            await watch.run_round()
            await watch.wait(until=until)
        except PodiumError as error:
            if not has_looked:
                raise
            output.print_problem(str(error))
        has_looked = True
        await anyio.sleep(max(0.0, until - time.time()))


@contextmanager
def _cancel_at_signal(scope: anyio.CancelScope) -> Iterator[list[int]]:
    """Cancel a scope on Ctrl-C or SIGTERM. Yield a list that collects the received signals."""
    import asyncio  # imported here to keep start-up fast: the help does not need it

    received: list[int] = []

    def cancel(number: int) -> None:
        received.append(number)
        scope.cancel()

    # Signals arrive in the main thread only, and the event loop on Windows does not support handlers.
    if threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
        yield received
        return
    loop = asyncio.get_running_loop()
    for number in (SIGINT, SIGTERM):
        loop.add_signal_handler(number, partial(cancel, number))
    try:
        yield received
    finally:
        for number in (SIGINT, SIGTERM):
            loop.remove_signal_handler(number)
