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
from ...system.identity import get_local_actor, read_host_id
from ...system.locations import find_repo
from ...values.errors import Mistake, PodiumError
from ...watch.sources.forge_issues import USABLE, choose_source, find_own_source
from ...watch.sources.issue_source import IssueSource
from ...workspace.git.repository import Repository
from ..output import exit_codes
from ..output.command_options import json_option, repo_option
from ..output.text import print_to_stderr
from .logs import parse_age

if TYPE_CHECKING:
    from ...watch.issue_triage import WatchOptions
    from ...watch.issue_watch import IssueWatch
import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from ...store.issue_rows import IssueClaim
from ...values.column import Column, encode_row
from ...values.event import SCHEMA
from ...values.plain_text import format_count, join_words
from ...watch.sources.issue_source import format_issue_name
from ..output.table import format_table
from ..output.text import as_json, escape_for_terminal, truncate_line

if TYPE_CHECKING:
    from ...watch.issue_triage import NewIssues, WatchOptions
    from ...watch.issue_watch import WatchEvent


LONGEST_TITLE = 60


def _get_run(claim: IssueClaim) -> str | None:
    return None if claim.state in ("claimed", "triage", "person") else claim.run


def _format_title(claim: IssueClaim) -> str:
    text = claim.note if claim.note and claim.state in ("person", "claimed") else claim.title
    return truncate_line(text, LONGEST_TITLE)


CLAIM_COLUMNS: tuple[Column[IssueClaim], ...] = (
    Column("issue", "Issue", lambda claim: claim.issue, text=lambda claim: format_issue_name(claim.issue)),
    Column("title", "Title", lambda claim: claim.title, text=_format_title, fills=True),
    Column("author", "Author", lambda claim: claim.author, shown="nowhere"),
    Column("url", "URL", lambda claim: claim.url, shown="nowhere"),
    Column(
        "claimed_at",
        "Picked up",
        lambda claim: claim.claimed,
        text=lambda claim: f"{datetime.fromtimestamp(claim.claimed):%Y-%m-%d %H:%M}",
    ),
    Column("state", "State", lambda claim: claim.state),
    Column("agent", "Agent", lambda claim: claim.agent or None),
    Column("run", "Run", _get_run),
    Column("branch", "Branch", lambda claim: claim.branch or None, shown="nowhere"),
    Column("note", "Note", lambda claim: claim.note, shown="nowhere"),
    Column(
        "comment",
        "Comment",
        lambda claim: claim.comment or None,
        text=lambda claim: f"comment {claim.comment}" if claim.comment else "-",
    ),
    Column("comment_url", "Comment URL", lambda claim: claim.comment_url or None, shown="nowhere"),
    Column("repo", "Repository", lambda claim: claim.root, shown="nowhere"),
)
"""The columns of a list of issues that were picked up."""


class IssueOutput:
    """Prints the events of a watch. `has_problems` is true if one of them was a problem."""

    def __init__(self, source: str, *, is_json: bool) -> None:
        self._source = source
        self._is_json = is_json
        self._has_printed = False
        self.has_problems = False

    def print_event(self, event: WatchEvent) -> None:
        """Print an event. Unless the output is JSON, problems and skipped or waiting issues go to standard error."""
        self._has_printed = True
        self.has_problems |= event.kind == "problem"
        if self._is_json:
            fields = {"schema": SCHEMA, "event": event.kind, "source": self._source, "text": event.text}
            count = {"count": event.count} if event.count else {}
            claim = {} if event.claim is None else encode_row(event.claim, CLAIM_COLUMNS)
            click.echo(json.dumps(fields | count | claim))
            return
        text = _format_event(event)
        if event.kind in ("problem", "waiting", "skipped"):
            print_to_stderr(text)
        else:
            click.echo(escape_for_terminal(text))

    def print_problem(self, text: str) -> None:
        """Print a problem that is not specific to one issue."""
        # Imported here to keep start-up fast: most commands need no workers.
        from ...watch.issue_watch import WatchEvent

        self.print_event(WatchEvent(kind="problem", text=text))

    def print_end(self) -> None:
        """Print that there are no new issues, unless an event was printed or the output is JSON."""
        if not self._has_printed and not self._is_json:
            print_to_stderr(f"no new issues in {self._source}")


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
        return _print_claims(IssueClaims(settings.store).list_all(most=MOST_LISTED), is_json=is_json)
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
        return _print_claims(IssueClaims(settings.store).list_all(chosen.key, most=MOST_LISTED), is_json=is_json)
    if forget is not None:
        return _forget_issue(settings, chosen, forget)
    if is_dry:
        return _print_dry_run(settings, place, chosen, options, is_json=is_json)
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


def _format_event(event: WatchEvent) -> str:
    """Return an event as one line."""
    claim = event.claim
    name = "" if claim is None else format_issue_name(claim.issue)
    match event.kind:
        case "waiting":
            return f"{format_count(event.count, 'new issue')}{event.text} will have to wait for a later round"
        case "skipped":
            return (
                f"{event.text} was skipped, because the author is not a member of the project; to pick it up, use "
                "--author or --any-author"
            )
        case "problem":
            return event.text if claim is None else f"{name}: {event.text}; it will be tried again in the next round"
    assert claim is not None, "every event except waiting, skipped and problem events must have a claim"
    match event.kind:
        case "taken":
            by = f" by {claim.author}" if claim.author else ""
            return f"{name}{by} was picked up: {truncate_line(claim.title, LONGEST_TITLE)}"
        case "started":
            where = f" on branch {claim.branch}" if claim.branch else ""
            return f"{name} assigned to {claim.agent}{where}: run {claim.run}"
        case "asks":
            return f"{name} needs your answer: run podium approvals to see request {event.text[:4]} of run {claim.run}"
        case "person":
            return f"{name} needs a person: {truncate_line(event.text, 200)}"
        case "commented":
            return f"{name} has a comment: {event.text}"
    return f"{name} {claim.state}: run {claim.run}"


def _print_claims(claims: Sequence[IssueClaim], *, is_json: bool) -> int:
    """Print the issues that were picked up, newest first, and return the exit code."""
    if is_json:
        listed = [{"source": claim.source, **encode_row(claim, CLAIM_COLUMNS)} for claim in claims]
        click.echo(as_json({"schema": SCHEMA, "issues": listed}))
        return exit_codes.GOAL_MET
    for line in format_table(claims, CLAIM_COLUMNS, now=time.time(), has_headings=False):
        click.echo(line)
    if not claims:
        print_to_stderr("no issues have been picked up yet; start with podium watch SOURCE")
    return exit_codes.GOAL_MET


def _print_dry_run(
    settings: Settings, place: Path, source: IssueSource, options: WatchOptions, *, is_json: bool
) -> int:
    """Print which issues would be picked up now, and return the exit code. Nothing is changed."""
    from ...files.discovery import load_roster  # imported here to keep start-up fast: the help does not need it
    from ...watch.issue_triage import IssueScout, find_candidates

    names = [agent.name for agent in find_candidates(load_roster(place, settings.home), options.agents)]
    claims = IssueClaims(settings.store)
    active = sum(claim.is_active for claim in claims.list_open(source.key))
    room = max(0, min(options.limit, options.most_active - active))
    new = anyio.run(IssueScout(source, options, claims).find_new, room)
    if is_json:
        fields = {"schema": SCHEMA, "source": source.name, "agents": names, "waiting": new.waiting}
        taken = [{"issue": one.id, "title": one.title, "author": one.author, "url": one.url} for one in new.found]
        skipped = [{"issue": one.id, "author": one.author} for one in new.by_strangers]
        click.echo(as_json(fields | {"issues": taken, "skipped": skipped, "problems": new.problems}))
    else:
        _print_new(new, names, is_triage=len(options.agents) != 1)
    return exit_codes.GOAL_MET


def _print_new(new: NewIssues, agents: Sequence[str], *, is_triage: bool) -> None:
    who = (
        f"triage would choose between {join_words([*agents, 'a person'])}"
        if is_triage
        else f"{agents[0]} would work on them"
    )
    for issue in new.found:
        by = f" by {issue.author}" if issue.author else ""
        title = truncate_line(issue.title, LONGEST_TITLE)
        click.echo(escape_for_terminal(f"{issue.name}{by} would be picked up: {title}"))
    for issue in new.by_strangers:
        print_to_stderr(f"{issue.name} by {issue.author or 'an unknown author'} would be skipped")
    for problem in new.problems:
        print_to_stderr(problem)
    if new.waiting:
        more = "" if new.is_waiting_exact else " or more"
        print_to_stderr(f"{format_count(new.waiting, 'new issue')}{more} would have to wait")
    print_to_stderr(who if new.found else "no issues would be picked up")
