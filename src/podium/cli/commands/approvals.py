"""`podium approvals`: what waits for you."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from ...runs.run_state import state
from ...setup.settings import Settings
from ...store.sqlite.open_requests import Waiting, waiting
from ...values.event import SCHEMA, PermissionAsked
from ..terminal.entry_text import agent_of
from ..terminal.measure import ago, cut
from ..terminal.request_prompt import described, questioned, who
from ..terminal.say import say
from ..terminal.text import as_json, visible


@click.command("approvals")
@click.argument("id", required=False)
@click.option("--json", "is_json", is_flag=True, help="Print the list as JSON.")
def command(id: str | None, is_json: bool) -> None:
    """List what agents of all runs ask and nobody has answered, the oldest first; with ID, show it in full."""
    store = Settings.load().store
    there = waiting(store) if store.exists() else []
    if id is not None:
        from ...store.sqlite.open_requests import find

        there = [find(store, id)]
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "waiting": [fields(one) for one in there]}))
    elif not there:
        say("nothing waits for you")
    elif id is not None:
        click.echo(visible(whole(there[0])))
        say(f"answer it with: {ways(there)}")
    else:
        same = Counter(wish(one) for one in there)
        for one in there:
            click.echo(visible(line(one, same[wish(one)])))
        say(f"podium approvals ID shows one in full; {ways(there)}")


def fields(one: Waiting) -> dict[str, Any]:
    """A request as a list tells of it."""
    return {
        "id": one.asked.id,
        "run": one.summary.id,
        "state": state(one.summary),
        "agent": agent_of(one.entry.operation),
        "worker": one.worker or None,
        "asked_at": one.entry.at,
        "asked": one.asked,
        "action_id": one.asked.action.id if isinstance(one.asked, PermissionAsked) else None,
    }


def line(one: Waiting, same: int) -> str:
    """A request on one line."""
    what = (
        f"{one.asked.action.tool} {_subject(one.asked)}" if isinstance(one.asked, PermissionAsked) else one.asked.text
    )
    again = f"  (one of {same} for the same)" if same > 1 else ""
    asks = f"{who(one.entry, one.worker)} in {one.summary.id}"
    return f"{one.asked.id}  {ago(time.time() - one.entry.at)}  {asks}: {cut(' '.join(what.split()), 90)}{again}"


def whole(one: Waiting) -> str:
    """All there is to know about a request."""
    if isinstance(one.asked, PermissionAsked):
        return described(one.entry, one.asked, one.worker, now=time.time()).strip()
    return questioned(one.entry, one.asked, one.worker).strip()


def ways(there: Sequence[Waiting]) -> str:
    """The commands that answer what waits."""
    id = there[0].asked.id if len(there) == 1 else "ID"
    kinds = {isinstance(one.asked, PermissionAsked) for one in there}
    answers = [f"podium approve {id}, podium deny {id} --why TEXT"] if True in kinds else []
    return ", ".join([*answers, f"podium answer {id} TEXT"] if False in kinds else answers)


def wish(one: Waiting) -> str:
    """What makes two requests the same."""
    return one.asked.action.wish if isinstance(one.asked, PermissionAsked) else one.asked.id


def _subject(asked: PermissionAsked) -> str:
    arguments = asked.action.arguments
    return str(next((arguments[key] for key in ("command", "path", "url") if key in arguments), arguments))
