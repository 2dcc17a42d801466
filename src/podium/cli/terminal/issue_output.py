"""Print what `podium watch` does: one line, or one JSON object, for each event about an issue."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click

from ...setup.settings import Settings
from ...store.issue_rows import IssueClaim, IssueClaims
from ...values.event import SCHEMA
from ...values.plain_text import format_count, join_words
from ...workspace.issues.issue_source import IssueSource, format_issue_name
from . import exit_codes
from .text import align_columns, as_json, escape_for_terminal, print_to_stderr, truncate_line

if TYPE_CHECKING:
    from ...workers.issue_scout import NewIssues, WatchOptions
    from ...workers.issue_watch import WatchEvent

LONGEST_TITLE = 60


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
            click.echo(json.dumps(event_fields(self._source, event)))
            return
        text = format_event(event)
        if event.kind in ("problem", "waiting", "skipped"):
            print_to_stderr(text)
        else:
            click.echo(escape_for_terminal(text))

    def print_problem(self, text: str) -> None:
        """Print a problem that is not specific to one issue."""
        # Imported here to keep start-up fast: most commands need no workers.
        from ...workers.issue_watch import WatchEvent

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


def event_fields(source: str, event: WatchEvent) -> dict[str, Any]:
    """Return an event as JSON fields."""
    fields: dict[str, Any] = {"schema": SCHEMA, "event": event.kind, "source": source, "text": event.text}
    if event.count:
        fields["count"] = event.count
    return fields | ({} if event.claim is None else claim_fields(event.claim))


def claim_fields(claim: IssueClaim) -> dict[str, Any]:
    """Return a claim as JSON fields."""
    is_started = claim.state not in ("claimed", "triage", "person")
    return {
        "issue": claim.issue,
        "title": claim.title,
        "author": claim.author,
        "url": claim.url,
        "claimed_at": claim.claimed,
        "state": claim.state,
        "agent": claim.agent or None,
        "run": claim.run if is_started else None,
        "branch": claim.branch or None,
        "note": claim.note,
        "comment": claim.comment or None,
        "comment_url": claim.comment_url or None,
        "repo": claim.root,
    }


def print_claims(claims: Sequence[IssueClaim], *, is_json: bool) -> int:
    """Print the issues that were picked up, newest first, and return the exit code."""
    if is_json:
        listed = [{"source": claim.source, **claim_fields(claim)} for claim in claims]
        click.echo(as_json({"schema": SCHEMA, "issues": listed}))
        return exit_codes.GOAL_MET
    for row in align_columns([_format_row(claim) for claim in claims]):
        click.echo(escape_for_terminal("  ".join(row).rstrip()))
    if not claims:
        print_to_stderr("no issues have been picked up yet; start with podium watch SOURCE")
    return exit_codes.GOAL_MET


def _format_row(claim: IssueClaim) -> tuple[str, ...]:
    is_started = claim.state not in ("claimed", "triage", "person")
    return (
        format_issue_name(claim.issue),
        f"{datetime.fromtimestamp(claim.claimed):%Y-%m-%d %H:%M}",
        claim.state,
        claim.agent or "-",
        claim.run if is_started else "-",
        f"comment {claim.comment}" if claim.comment else "-",
        truncate_line(
            claim.note if claim.state in ("person", "claimed") and claim.note else claim.title, LONGEST_TITLE
        ),
    )


def print_dry_run(settings: Settings, place: Path, source: IssueSource, options: WatchOptions, *, is_json: bool) -> int:
    """Print which issues would be picked up now, and return the exit code. Nothing is changed."""
    from ...roster.discovery import load_roster  # imported here to keep start-up fast: the help does not need it
    from ...workers.issue_scout import IssueScout
    from ...workers.issue_triage import find_candidates

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
