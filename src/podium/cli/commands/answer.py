"""`podium approve`, `deny` and `answer`: answer a request from an agent."""

from __future__ import annotations

import click

from ...files.always_allow_rules import AllowedRule
from ...files.settings import Settings
from ...runs.answers import GivenAnswer, NewAnswer, answer_request, get_shown, resolve_choice
from ...store.request_list import OpenRequest, find_open_request
from ...values.errors import Mistake
from ...values.event import Decision, PermissionAnswered, QuestionAsked
from ...values.plan import WorkPlan
from ..output.command_options import get_command_actor, read_text_argument
from ..output.text import print_to_stderr


def submit_answer(
    settings: Settings, one: OpenRequest, answer: NewAnswer, *, plan: WorkPlan | None = None
) -> GivenAnswer:
    """Submit an answer and print a confirmation. Raise AlreadyAnswered if the request already has another answer."""
    run, by = one.summary.id, get_command_actor()
    given = answer_request(settings.store, run, one.asked, answer, by=by, home=settings.home, plan=plan)
    id, how = one.asked.id, "was answered"
    if isinstance(given.answered, PermissionAnswered):
        how = "was allowed" if given.answered.is_allowed else "was denied"
    if one.summary.phase == "running":
        print_to_stderr(f"{id} {how}")
    else:
        print_to_stderr(f"{id} {how}, but run {run} is not running; resume it with: podium resume {run}")
    return given


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


@click.command("answer")
@click.argument("id")
@click.argument("text")
def answer_command(id: str, text: str) -> None:
    """Answer the question ID with TEXT, or with the number of a choice.

    If TEXT is -, it is read from standard input.
    """
    settings = Settings.load()
    one = find_open_request(settings.store, id)
    words = read_text_argument(text)
    if isinstance(one.asked, QuestionAsked):
        words = resolve_choice(one.asked, words)
    submit_answer(settings, one, NewAnswer(shown=get_shown(one.asked), text=words))
