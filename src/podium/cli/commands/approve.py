"""`podium approve`: allow what an agent asks for."""

from __future__ import annotations

import time

import click

from ...config.allowed_rules import AllowedRule, save_allowed_rule
from ...setup.settings import Settings
from ...store.sqlite.open_requests import find_open_request
from ...values.errors import Mistake
from ...values.event import Decision, PermissionAnswered, PermissionAsked
from ..terminal.answering import get_username, submit_answer


@click.command("approve")
@click.argument("id")
@click.option("--run", "for_run", is_flag=True, help="Allow this very action for the rest of the run.")
@click.option("--always", "for_good", is_flag=True, help="Allow it and its like for good; the rule is shown and kept.")
def approve_command(id: str, for_run: bool, for_good: bool) -> int:
    """Allow the action that was asked for as ID, once; podium approvals lists what waits.

    The answer holds for exactly the action that was shown. Of two answers the first counts, and the
    exit code of the other is 6.
    """
    if for_run and for_good:
        raise click.UsageError("--run and --always exclude each other; what is allowed for good is so in this run, too")
    settings = Settings.load()
    one = find_open_request(settings.store, id)
    if not isinstance(one.asked, PermissionAsked):
        raise Mistake(f"{one.asked.id} is a question; podium answer {one.asked.id} TEXT answers it")
    rule = one.asked.always if for_good else ""
    if for_good and not rule:
        raise Mistake(f"no rule for good can be made from {one.asked.id} safely; allow it once or for this run")
    decision: Decision = "always" if for_good else "run" if for_run else "once"
    given = PermissionAnswered(id=one.asked.id, decision=decision, by=get_username(), rule=rule, at=time.time())
    code = submit_answer(settings.store, one, given)
    if rule and code == 0:
        save_allowed_rule(settings.home, AllowedRule(rule=rule, at=time.time(), by=get_username(), run=one.summary.id))
        click.echo(f"from now on {rule} is allowed; {settings.home / 'allowed.json'} has it", err=True)
    return code
