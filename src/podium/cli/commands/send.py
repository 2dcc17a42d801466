"""`podium send`: say something to an agent of a run."""

from __future__ import annotations

import secrets
from difflib import get_close_matches
from pathlib import Path

import click

from ...runs.run_lookup import looking, worker_called
from ...runs.run_state import is_over, state
from ...setup.settings import Settings
from ...store.sqlite.mailbox import post
from ...store.sqlite.reader import Reader, Summary
from ...values.agent import working_names
from ...values.attachment import attached
from ...values.errors import Mistake
from ...values.event import MessageReceived, RunStarted
from ..terminal.say import say
from ..terminal.spoken import spoken


@click.command("send")
@click.argument("run", metavar="RUN[/AGENT]")
@click.argument("text")
@click.option(
    "--attach",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="An image or a text file that goes with it; may be given several times.",
)
def command(run: str, text: str, paths: tuple[Path, ...]) -> None:
    """Say TEXT to an agent of RUN, the first one by default; it hears it when its next turn begins.

    A TEXT of - is read from standard input. RUN may also be the branch or name of a worker in this repository.
    """
    words, files = spoken(text), attached(paths)
    store = Settings.load().store
    with looking(store) as reader:
        id, agent = meant(store, reader, run)
        summary = reader.summary(id)
    to = addressee(summary, agent)
    message = MessageReceived(id=secrets.token_hex(6), to=to, text=words, attachments=tuple(one.about for one in files))
    post(store, summary.id, message, files=files)
    if state(summary) == "running":
        say(f"{to} hears it when its next turn begins")
    else:
        say(f"nobody works on run {summary.id} now: the message waits until podium resume {summary.id}")


def meant(store: Path, reader: Reader, named: str) -> tuple[str, str]:
    """The run that is named, and the agent in it; empty for the first one. A branch may have slashes of its own."""
    branch, _, last = named.rpartition("/")
    if id := worker_called(store, named):
        return id, ""
    if id := worker_called(store, branch):
        return id, last
    prefix, _, agent = named.partition("/")
    return reader.find(prefix), agent


def addressee(summary: Summary, agent: str) -> str:
    """The agent that is meant; raises Mistake where it cannot hear."""
    if is_over(summary):
        raise Mistake(f"run {summary.id} has ended ({state(summary)}), and nobody there hears any more")
    started = summary.first.event
    assert isinstance(started, RunStarted)
    names = working_names(started.agents)
    if not agent or agent in names:
        return agent or started.agent
    close = get_close_matches(agent, names, n=1)
    there_are = f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"
    raise Mistake(f"run {summary.id} has no agent {agent!r}; {there_are}")
