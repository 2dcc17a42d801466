"""`podium deny`: deny a permission request."""

from __future__ import annotations

import time

import click

from ...setup.settings import Settings
from ...store.open_requests import find_open_request
from ...system.username import get_username
from ...values.errors import Mistake
from ...values.event import Decision, PermissionAnswered, PermissionAsked
from ..terminal.answer_report import submit_answer


@click.command("deny")
@click.argument("id")
@click.option("--why", default="", help="Reason to show to the agent.")
@click.option("--pause", "pauses", is_flag=True, help="Also pause the run.")
@click.option("--stop", "stops", is_flag=True, help="Also stop the run.")
def deny_command(id: str, why: str, pauses: bool, stops: bool) -> int:
    """Deny the permission request ID. podium approvals lists the open requests."""
    if pauses and stops:
        raise Mistake("--pause and --stop cannot be combined; give one of them")
    settings = Settings.load()
    one = find_open_request(settings.store, id)
    if not isinstance(one.asked, PermissionAsked):
        raise Mistake(f"{one.asked.id} is a question, not a permission request; use podium answer {one.asked.id} TEXT")
    decision: Decision = "abort" if stops else "deny_and_pause" if pauses else "deny"
    given = PermissionAnswered(
        id=one.asked.id, decision=decision, by=get_username(), comment=why, at=time.time(), channel="command"
    )
    return submit_answer(settings.store, one, given)
