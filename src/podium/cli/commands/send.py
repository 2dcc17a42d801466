"""`podium send`: send a message to an agent in a run."""

from __future__ import annotations

from pathlib import Path

import click

from ...files.settings import Settings
from ...runs import find
from ...runs.queries.run_lookup import open_reader
from ...runs.run_steering import NewMessage, send_message
from ...values.request import read_attachments
from ..terminal.command_options import read_text_argument
from ..terminal.global_options import get_command_actor
from ..terminal.text import print_to_stderr


@click.command("send")
@click.argument("run", metavar="RUN[/AGENT]")
@click.argument("text")
@click.option(
    "--attach",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Image or text file to attach; can be repeated.",
)
def send_command(run: str, text: str, paths: tuple[Path, ...]) -> None:
    """Send TEXT to an agent in RUN (default: the first one), which receives it with its next model call.

    If TEXT is -, it is read from standard input. RUN can also be the branch or name of a worker in this
    repository.
    """
    message_text, files = read_text_argument(text), read_attachments(paths)
    store = Settings.load().store
    with open_reader(store) as reader:
        found = find.resolve(reader, run, wanted="agent")
        summary = reader.read_summary(found.run)
    message = NewMessage(text=message_text, agent=found.agent, files=files)
    print_to_stderr(send_message(store, summary, message, by=get_command_actor()).text)
