"""Slash commands: what a person can ask for in a chat beside talking.

Most of them are commands of `podium`, called as they are on the command line and shown in the chat.
"""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import anyio

from ...roster.discovery import load
from ...roster.team_definition import is_team
from ...setup.settings import Settings
from ...store.sqlite.open_requests import waiting
from ...values.errors import Mistake, PodiumError
from ...workspace.git.branch import branches
from ...workspace.git.repository import Repository
from ..terminal.measure import aligned

ENDLESS = frozenset({"wait", "-f", "--follow"})
"""What of `podium workers` would not come back before something else has happened."""

_OPTION = re.compile(r"(?:^|\s)--[A-Za-z]")
_QUOTED = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|'[^']*')(?=\s+--[A-Za-z]|\s*$)""", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slash:
    """A slash command: what it takes, what it does, and what `podium` is called with for it.

    Without `calls` it is the chat's own. With `is_local` it is about the repository of the chat.
    """

    takes: str = ""
    does: str
    calls: Callable[[str], list[str]] | None = None
    is_local: bool = False


def _delegated(rest: str) -> list[str]:
    """A call of `podium delegate`, whose task needs no quotes here: it is all that stands before the first option.

    What stands behind `--` has no options. A line that begins otherwise is read as on the command line.
    """
    branch, _, said = rest.partition(" ")
    said = said.strip()
    if said.startswith("-- "):
        return ["delegate", "--", branch, said[3:].strip()]
    quoted = _QUOTED.match(said)
    option = _OPTION.search(said, quoted.end() if quoted else 0)
    task = said if option is None else said[: option.start()].strip()
    if branch[:1] in ("-", '"', "'") or (option is not None and not task):
        return ["delegate", *shlex.split(rest)]
    if not task or task == "-":
        example = "/delegate feat/csv export the report to CSV"
        raise Mistake(f"/delegate takes a branch and a task, as in {example}; /delegate --help shows its options")
    if quoted:
        [task] = shlex.split(task)
    if option is None:
        return ["delegate", "--", branch, task]
    return ["delegate", branch, task, *shlex.split(said[option.start() :])]


def _denied(rest: str) -> list[str]:
    id, _, why = rest.partition(" ")
    return ["deny", f"--why={why.strip()}", "--", id]


def _split(*words: str) -> Callable[[str], list[str]]:
    return lambda rest: [*words, *shlex.split(rest)]


SLASHES = {
    "help": Slash(does="list these commands"),
    "delegate": Slash(
        takes="BRANCH TASK [OPTIONS]",
        does="have a worker do a task on its own branch",
        calls=_delegated,
        is_local=True,
    ),
    "workers": Slash(
        takes="[COMMAND]",
        does="the workers and how they stand",
        calls=_split("workers"),
        is_local=True,
    ),
    "worktrees": Slash(
        takes="[COMMAND]",
        does="the worktrees of workers; as podium worktrees",
        calls=_split("worktrees"),
        is_local=True,
    ),
    "approve": Slash(takes="ID", does="allow what an agent asks for", calls=_split("approve")),
    "deny": Slash(takes="ID [WHY]", does="refuse what an agent asks for", calls=_denied),
    "status": Slash(
        takes="[RUN]",
        does="the runs and how they stand, or one of them",
        calls=lambda rest: _split("show" if rest else "ps")(rest),
    ),
    "cost": Slash(takes="[RUN]", does="what this chat has used, and what runs cost", calls=_split("cost")),
    "team": Slash(
        takes="[NAME]",
        does="the teams there are, or one of them",
        calls=lambda rest: _split("team", "show")(rest) if rest else ["teams"],
        is_local=True,
    ),
    "agent": Slash(takes="[NAME]", does="talk to another agent, or list them"),
    "clear": Slash(does="forget what was said, and begin anew"),
    "quit": Slash(does="leave, as Ctrl-D does"),
}


def help_lines() -> list[str]:
    """All slash commands, for people."""
    rows = [[f"/{name} {slash.takes}".strip(), slash.does] for name, slash in SLASHES.items()]
    return [
        *("  ".join(["", *row]) for row in aligned(rows)),
        "Ctrl-C stops the agent, twice it leaves.",
        "What you say while an agent works reaches it at its next step.",
        "A line that begins with // goes to the agent with one slash.",
    ]


def named(name: str) -> Slash:
    """The slash command of this name. Raises Mistake."""
    if name in SLASHES:
        return SLASHES[name]
    close = get_close_matches(name, SLASHES, n=1, cutoff=0.5)
    near = f"did you mean /{close[0]}?" if close else "/help lists all"
    raise Mistake(
        f"there is no command /{name}; {near}{' ' if close else ', and '}//{name} goes to the agent with one slash"
    )


def arguments(slash: Slash, rest: str, *, place: Path) -> list[str]:
    """What `podium` is called with in a chat about this place. Raises Mistake."""
    assert slash.calls is not None
    if not rest and slash.takes.startswith("ID"):
        raise Mistake("it takes the id of a request, which stands in brackets where an agent asks for something")
    try:
        words = slash.calls(rest)
    except ValueError as error:
        raise Mistake(f"{rest!r} cannot be read: {error}") from error
    if words[0] == "workers" and (endless := ENDLESS & set(words)):
        raise Mistake(f"{min(endless)} would keep the chat waiting; call podium {shlex.join(words)} elsewhere")
    return in_place(words, place) if slash.is_local else words


def in_place(words: list[str], place: Path) -> list[str]:
    """A call of `podium` that is about this repository, whatever the current folder is."""
    command = 2 if words[:2] == ["team", "show"] else 1
    return [*words[:command], f"--repo={place}", *words[command:]]


def called(words: list[str]) -> str:
    """What `podium` says when it is called so. Nobody is there to answer it.

    While it runs, standard streams are its own, also for every other thread.
    """
    from ..root import podium  # here, because root finds its commands by importing modules like this one

    said, stdin = io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO())
    try:
        with redirect_stdout(said), redirect_stderr(said):
            podium.answer(words)
    finally:
        sys.stdin = stdin
    return said.getvalue().rstrip("\n")


class Words:
    """What the last word of a line may become: slash commands, and what they are about."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def __call__(self, line: str) -> Iterable[str]:
        if not line.startswith("/"):
            return ()
        name, space, rest = line[1:].partition(" ")
        if not space:
            return sorted(f"/{known}" for known in SLASHES)
        if " " in rest:
            return ()
        try:
            return sorted(self._about(name))
        except PodiumError:
            return ()

    def _about(self, name: str) -> Iterable[str]:
        match name:
            case "agent":
                return load(self._place, Settings.load().home).agents
            case "team":
                agents = load(self._place, Settings.load().home).agents
                return [agent for agent in agents if is_team(agents[agent])]
            case "delegate":
                return anyio.run(branches, Repository.at(self._place))
            case "approve" | "deny":
                return [one.asked.id for one in waiting(Settings.load().store)]
        return ()
