"""`podium approve`: approve a permission request."""

from __future__ import annotations

import click

from ...files.always_allow_rules import AllowedRule
from ...files.settings import Settings
from ...runs.answers import NewAnswer, get_shown
from ...store.open_requests import find_open_request
from ...values.event import Decision, PermissionAnswered
from ..terminal.answer_report import submit_answer


@click.command("approve")
@click.argument("id")
@click.option("--run", "for_run", is_flag=True, help="Allow this exact action for the rest of the run.")
@click.option(
    "--always",
    "for_good",
    is_flag=True,
    help="Always allow such actions in the run's repository by saving a rule.",
)
@click.option("--everywhere", is_flag=True, help="With --always, allow such actions in all repositories.")
def approve_command(id: str, for_run: bool, for_good: bool, everywhere: bool) -> None:
    """Approve the permission request ID, once by default. podium approvals lists the open requests.

    Without --always, the approval covers exactly the action that was shown. If a request is answered twice,
    the first answer counts, and the second command exits with code 6.
    """
    if for_run and for_good:
        raise click.UsageError("--run and --always cannot be combined; --always also applies to this run")
    if everywhere and not for_good:
        raise click.UsageError("--everywhere needs --always; give both")
    settings = Settings.load()
    one = find_open_request(settings.store, id)
    decision: Decision = "always" if for_good else "run" if for_run else "once"
    answer = NewAnswer(shown=get_shown(one.asked), decision=decision, everywhere=everywhere)
    given = submit_answer(settings, one, answer)
    if isinstance(given.answered, PermissionAnswered) and given.answered.rule:
        click.echo(_describe_saved_rule(given.answered.rule, given.saved), err=True)


def _describe_saved_rule(rule: str, saved: AllowedRule | None) -> str:
    if saved is None:
        return (
            f"{rule} is allowed for the rest of this run, but was not saved, because the run has no repository; "
            "with --everywhere, it is saved for all repositories"
        )
    where = f"in {saved.repo}" if saved.repo else "everywhere"
    return f"{rule} is now always allowed {where}; use podium policy revoke to delete this rule"
