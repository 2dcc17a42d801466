"""`podium send`: send a message to an agent in a run."""

from __future__ import annotations

from pathlib import Path

import click

from ...runs.run_lookup import find_worker_run, open_reader
from ...runs.run_steering import send_message
from ...setup.settings import Settings
from ...store.reader import StoreReader
from ...values.attachment import read_attachments
from ...values.store_address import StoreAddress
from ..terminal.command_options import read_text_argument
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
        id, agent = find_run_and_agent(store, reader, run)
        summary = reader.read_summary(id)
    print_to_stderr(send_message(store, summary, agent, message_text, files=files))


def find_run_and_agent(store: StoreAddress, reader: StoreReader, recipient: str) -> tuple[str, str]:
    """Return the run id and the agent in `RUN/AGENT` or `BRANCH/AGENT`. The agent is empty if it is not given."""
    branch, _, last = recipient.rpartition("/")
    if id := find_worker_run(store, recipient):
        return id, ""
    if id := find_worker_run(store, branch):
        return id, last
    prefix, _, agent = recipient.partition("/")
    return reader.find_run(prefix), agent
