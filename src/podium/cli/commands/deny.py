"""`podium deny`: refuse what an agent asks for."""

from __future__ import annotations

import time

import click

from ...setup.settings import Settings
from ...store.sqlite.open_requests import find_open_request
from ...values.errors import Mistake
from ...values.event import Decision, PermissionAnswered, PermissionAsked
from ..terminal.answering import get_username, submit_answer


@click.command("deny")
@click.argument("id")
@click.option("--why", default="", help="The reason, which the agent is told.")
@click.option("--pause", "pauses", is_flag=True, help="Pause the run, too.")
@click.option("--stop", "stops", is_flag=True, help="Stop the run, too.")
def deny_command(id: str, why: str, pauses: bool, stops: bool) -> int:
    """Refuse the action that was asked for as ID; podium approvals lists what waits."""
    if pauses and stops:
        raise Mistake("a run is either paused or stopped; give --pause or --stop")
    settings = Settings.load()
    one = find_open_request(settings.store, id)
    if not isinstance(one.asked, PermissionAsked):
        raise Mistake(f"{one.asked.id} is a question; podium answer {one.asked.id} TEXT answers it")
    decision: Decision = "abort" if stops else "deny_and_pause" if pauses else "deny"
    given = PermissionAnswered(id=one.asked.id, decision=decision, by=get_username(), comment=why, at=time.time())
    return submit_answer(settings.store, one, given)
