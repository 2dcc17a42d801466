"""`podium send`: send a message to an agent in a run."""

from __future__ import annotations

import secrets
from pathlib import Path

import click

from ...runs.run_lookup import derive_run_state, find_worker_run, open_reader, resolve_recipient
from ...setup.settings import Settings
from ...store.mailbox import post_to_mailbox
from ...store.reader import StoreReader
from ...values.attachment import read_attachments
from ...values.event import MessageReceived
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
    to = resolve_recipient(summary, agent)
    message = MessageReceived(
        id=secrets.token_hex(6), to=to, text=message_text, attachments=tuple(one.attachment for one in files)
    )
    post_to_mailbox(store, summary.id, message, files=files)
    if derive_run_state(summary) == "running":
        print_to_stderr(f"{to} will receive the message with its next model call")
    else:
        print_to_stderr(
            f"run {summary.id} is not running; the message will be delivered when you resume it: "
            f"podium resume {summary.id}"
        )


def find_run_and_agent(store: StoreAddress, reader: StoreReader, recipient: str) -> tuple[str, str]:
    """Return the run id and the agent in `RUN/AGENT` or `BRANCH/AGENT`. The agent is empty if it is not given."""
    branch, _, last = recipient.rpartition("/")
    if id := find_worker_run(store, recipient):
        return id, ""
    if id := find_worker_run(store, branch):
        return id, last
    prefix, _, agent = recipient.partition("/")
    return reader.find_run(prefix), agent
