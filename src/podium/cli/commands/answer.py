"""`podium answer`: answer a question from an agent."""

from __future__ import annotations

import click

from ...runs.inbox import resolve_choice
from ...setup.settings import Settings
from ...store.open_requests import find_open_request
from ...system.username import get_username
from ...values.errors import Mistake
from ...values.event import QuestionAnswered, QuestionAsked
from ..terminal.answer_report import submit_answer
from ..terminal.command_options import read_text_argument


@click.command("answer")
@click.argument("id")
@click.argument("text")
def answer_command(id: str, text: str) -> int:
    """Answer the question ID with TEXT, or with the number of a choice.

    If TEXT is -, it is read from standard input.
    """
    settings = Settings.load()
    one = find_open_request(settings.store, id)
    if not isinstance(one.asked, QuestionAsked):
        raise Mistake(f"{one.asked.id} is a permission request, not a question; use podium approve or podium deny")
    words = resolve_choice(one.asked, read_text_argument(text))
    given = QuestionAnswered(id=one.asked.id, text=words, by=get_username(), digest=one.asked.digest, channel="command")
    return submit_answer(settings.store, one, given)
