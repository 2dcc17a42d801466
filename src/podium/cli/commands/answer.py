"""`podium answer`: answer a question from an agent."""

from __future__ import annotations

import click

from ...files.settings import Settings
from ...runs.answers import NewAnswer, get_shown, resolve_choice
from ...store.open_requests import find_open_request
from ...values.event import QuestionAsked
from ..terminal.answer_report import submit_answer
from ..terminal.command_options import read_text_argument


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
