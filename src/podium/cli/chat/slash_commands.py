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

from ...roster.discovery import load_roster
from ...roster.team_definition import is_team
from ...setup.settings import Settings
from ...store.sqlite.open_requests import list_open_requests
from ...values.errors import Mistake, PodiumError
from ...workspace.git.branch import list_branches
from ...workspace.git.repository import Repository
from ..terminal.text import align_columns

ENDLESS = frozenset({"wait", "-f", "--follow"})
"""What of `podium workers` would not come back before something else has happened."""

_OPTION = re.compile(r"(?:^|\s)--[A-Za-z]")
_QUOTED = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|'[^']*')(?=\s+--[A-Za-z]|\s*$)""", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlashCommand:
    """A slash command: what it takes, what it does, and what `podium` is called with for it.

    Without `calls` it is the chat's own. With `is_local` it is about the repository of the chat.
    """

    takes: str = ""
    does: str
    calls: Callable[[str], list[str]] | None = None
    is_local: bool = False


def _parse_delegate(rest: str) -> list[str]:
    """A call of `podium delegate`, whose task needs no quotes here: it is all that stands before the first option.

    What stands behind `--` has no options. A line that begins otherwise is read as on the command line.
    """
    branch, _, text = rest.partition(" ")
    text = text.strip()
    if text.startswith("-- "):
        return ["delegate", "--", branch, text[3:].strip()]
    quoted = _QUOTED.match(text)
    option = _OPTION.search(text, quoted.end() if quoted else 0)
    task = text if option is None else text[: option.start()].strip()
    if branch[:1] in ("-", '"', "'") or (option is not None and not task):
        return ["delegate", *shlex.split(rest)]
    if not task or task == "-":
        example = "/delegate feat/csv export the report to CSV"
        raise Mistake(f"/delegate takes a branch and a task, as in {example}; /delegate --help shows its options")
    if quoted:
        [task] = shlex.split(task)
    if option is None:
        return ["delegate", "--", branch, task]
    return ["delegate", branch, task, *shlex.split(text[option.start() :])]


def _parse_deny(rest: str) -> list[str]:
    id, _, why = rest.partition(" ")
    return ["deny", f"--why={why.strip()}", "--", id]


def _make_word_parser(*words: str) -> Callable[[str], list[str]]:
    return lambda rest: [*words, *shlex.split(rest)]


SLASH_COMMANDS = {
    "help": SlashCommand(does="list these commands"),
    "delegate": SlashCommand(
        takes="BRANCH TASK [OPTIONS]",
        does="have a worker do a task on its own branch",
        calls=_parse_delegate,
        is_local=True,
    ),
    "workers": SlashCommand(
        takes="[COMMAND]",
        does="the workers and how they stand",
        calls=_make_word_parser("workers"),
        is_local=True,
    ),
    "worktrees": SlashCommand(
        takes="[COMMAND]",
        does="the worktrees of workers; as podium worktrees",
        calls=_make_word_parser("worktrees"),
        is_local=True,
    ),
    "approve": SlashCommand(takes="ID", does="allow what an agent asks for", calls=_make_word_parser("approve")),
    "deny": SlashCommand(takes="ID [WHY]", does="refuse what an agent asks for", calls=_parse_deny),
    "status": SlashCommand(
        takes="[RUN]",
        does="the runs and how they stand, or one of them",
        calls=lambda rest: _make_word_parser("show" if rest else "ps")(rest),
    ),
    "cost": SlashCommand(
        takes="[RUN]", does="what this chat has used, and what runs cost", calls=_make_word_parser("cost")
    ),
    "team": SlashCommand(
        takes="[NAME]",
        does="the teams there are, or one of them",
        calls=lambda rest: _make_word_parser("team", "show")(rest) if rest else ["teams"],
        is_local=True,
    ),
    "agent": SlashCommand(takes="[NAME]", does="talk to another agent, or list them"),
    "clear": SlashCommand(does="forget what was said, and begin anew"),
    "quit": SlashCommand(does="leave, as Ctrl-D does"),
}


def format_slash_help() -> list[str]:
    """All slash commands, for people."""
    rows = [[f"/{name} {slash.takes}".strip(), slash.does] for name, slash in SLASH_COMMANDS.items()]
    return [
        *("  ".join(["", *row]) for row in align_columns(rows)),
        "Ctrl-C stops the agent, twice it leaves.",
        "What you say while an agent works reaches it at its next step.",
        "A line that begins with // goes to the agent with one slash.",
    ]


def find_slash_command(name: str) -> SlashCommand:
    """The slash command of this name. Raises Mistake."""
    if name in SLASH_COMMANDS:
        return SLASH_COMMANDS[name]
    close = get_close_matches(name, SLASH_COMMANDS, n=1, cutoff=0.5)
    near = f"did you mean /{close[0]}?" if close else "/help lists all"
    raise Mistake(
        f"there is no command /{name}; {near}{' ' if close else ', and '}//{name} goes to the agent with one slash"
    )


def build_arguments(slash: SlashCommand, rest: str, *, place: Path) -> list[str]:
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
    return add_repo_option(words, place) if slash.is_local else words


def add_repo_option(words: list[str], place: Path) -> list[str]:
    """A call of `podium` that is about this repository, whatever the current folder is."""
    command = 2 if words[:2] == ["team", "show"] else 1
    return [*words[:command], f"--repo={place}", *words[command:]]


def capture_podium_output(words: list[str]) -> str:
    """What `podium` says when it is called so. Nobody is there to answer it.

    While it runs, standard streams are its own, also for every other thread.
    """
    from ..root import podium  # here, because root finds its commands by importing modules like this one

    output, stdin = io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO())
    try:
        with redirect_stdout(output), redirect_stderr(output):
            podium.run_command_line(words)
    finally:
        sys.stdin = stdin
    return output.getvalue().rstrip("\n")


class SlashCompletionSource:
    """What the last word of a line may become: slash commands, and what they are about."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def __call__(self, line: str) -> Iterable[str]:
        if not line.startswith("/"):
            return ()
        name, space, rest = line[1:].partition(" ")
        if not space:
            return sorted(f"/{known}" for known in SLASH_COMMANDS)
        if " " in rest:
            return ()
        try:
            return sorted(self._complete_argument(name))
        except PodiumError:
            return ()

    def _complete_argument(self, name: str) -> Iterable[str]:
        match name:
            case "agent":
                return load_roster(self._place, Settings.load().home).agents
            case "team":
                agents = load_roster(self._place, Settings.load().home).agents
                return [agent for agent in agents if is_team(agents[agent])]
            case "delegate":
                return anyio.run(list_branches, Repository.at(self._place))
            case "approve" | "deny":
                return [one.asked.id for one in list_open_requests(Settings.load().store)]
        return ()
