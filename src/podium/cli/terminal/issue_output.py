"""Print what `podium watch` does: one line, or one JSON object, for each event about an issue."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click

from ...files.settings import Settings
from ...store.issue_rows import IssueClaim, IssueClaims
from ...values.column import Column, encode_row
from ...values.event import SCHEMA
from ...values.plain_text import format_count, join_words
from ...watch.sources.issue_source import IssueSource, format_issue_name
from . import exit_codes
from .table import format_table
from .text import as_json, escape_for_terminal, print_to_stderr, truncate_line

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
        text = format_event(event)
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


def format_event(event: WatchEvent) -> str:
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


def print_claims(claims: Sequence[IssueClaim], *, is_json: bool) -> int:
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


def print_dry_run(settings: Settings, place: Path, source: IssueSource, options: WatchOptions, *, is_json: bool) -> int:
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
