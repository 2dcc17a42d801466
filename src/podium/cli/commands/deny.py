"""`podium deny`: deny a permission request."""

from __future__ import annotations

import click

from ...files.settings import Settings
from ...runs.answers import NewAnswer, get_shown
from ...store.open_requests import find_open_request
from ...values.errors import Mistake
from ...values.event import Decision
from ..terminal.answer_report import submit_answer


@click.command("deny")
@click.argument("id")
@click.option("--why", default="", help="Reason to show to the agent.")
@click.option("--pause", "pauses", is_flag=True, help="Also pause the run.")
@click.option("--stop", "stops", is_flag=True, help="Also stop the run.")
def deny_command(id: str, why: str, pauses: bool, stops: bool) -> None:
    """Deny the permission request ID. podium approvals lists the open requests."""
    if pauses and stops:
        raise Mistake("--pause and --stop cannot be combined; give one of them")
    settings = Settings.load()
    one = find_open_request(settings.store, id)
    decision: Decision = "abort" if stops else "deny_and_pause" if pauses else "deny"
    submit_answer(settings, one, NewAnswer(shown=get_shown(one.asked), decision=decision, comment=why))
