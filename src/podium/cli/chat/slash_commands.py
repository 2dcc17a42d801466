"""Define the slash commands that a user can enter in a chat.

Most of them run a `podium` command with the same arguments as on the command line, and print its output.
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

from ...files.discovery import load_roster
from ...files.settings import Settings
from ...files.team_definition import is_team
from ...store.request_list import list_open_requests
from ...values.errors import Mistake, PodiumError
from ...workspace.git.branch import list_branches
from ...workspace.git.repository import Repository
from ..output.text import align_columns

ENDLESS = frozenset({"wait", "-f", "--follow"})
"""Arguments that make `podium workers` wait until workers end or pause."""

_OPTION = re.compile(r"(?:^|\s)--[A-Za-z]")
_QUOTED = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|'[^']*')(?=\s+--[A-Za-z]|\s*$)""", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlashCommand:
    """A slash command: its arguments, its description, and the `podium` command that it runs.

    If `calls` is None, the chat handles the slash command itself. If `is_local` is true, the command applies to the
    chat's repository.
    """

    takes: str = ""
    does: str
    calls: Callable[[str], list[str]] | None = None
    is_local: bool = False


def _parse_delegate(rest: str) -> list[str]:
    """Return the arguments for `podium delegate`. The task needs no quotes: it is the text before the first option.

    Options are not recognised after `--`. A line that starts with an option or a quote is parsed as on the
    command line.
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
        raise Mistake(f"/delegate needs a branch and a task, e.g. {example}; type /delegate --help to see its options")
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
        does="delegate a task to a worker on its own branch",
        calls=_parse_delegate,
        is_local=True,
    ),
    "workers": SlashCommand(
        takes="[COMMAND]",
        does="list the workers and their states",
        calls=_make_word_parser("workers"),
        is_local=True,
    ),
    "worktrees": SlashCommand(
        takes="[COMMAND]",
        does="list the worktrees in the repository",
        calls=_make_word_parser("worktrees"),
        is_local=True,
    ),
    "approve": SlashCommand(
        takes="ID", does="allow an agent's request for permission", calls=_make_word_parser("approve")
    ),
    "deny": SlashCommand(takes="ID [WHY]", does="deny an agent's request for permission", calls=_parse_deny),
    "status": SlashCommand(
        takes="[RUN]",
        does="list the runs, or show one of them",
        calls=lambda rest: _make_word_parser("show" if rest else "ps")(rest),
    ),
    "cost": SlashCommand(
        takes="[RUN]", does="show the model usage of this chat and of runs", calls=_make_word_parser("cost")
    ),
    "team": SlashCommand(
        takes="[NAME]",
        does="list the teams, or show one of them",
        calls=lambda rest: _make_word_parser("team", "show")(rest) if rest else ["teams"],
        is_local=True,
    ),
    "agent": SlashCommand(takes="[NAME]", does="switch to another agent, or list the agents"),
    "clear": SlashCommand(does="start a new conversation"),
    "quit": SlashCommand(does="exit the chat, like Ctrl-D"),
}


def format_slash_help() -> list[str]:
    """Return the help for all slash commands."""
    rows = [[f"/{name} {slash.takes}".strip(), slash.does] for name, slash in SLASH_COMMANDS.items()]
    return [
        *("  ".join(["", *row]) for row in align_columns(rows)),
        "Ctrl-C stops the agent; a second Ctrl-C exits the chat.",
        "A message that you send while an agent is working reaches it at its next step.",
        "To send a message that starts with a slash, type two slashes.",
    ]


def find_slash_command(name: str) -> SlashCommand:
    """Return the slash command with this name. Raise Mistake if there is none."""
    if name in SLASH_COMMANDS:
        return SLASH_COMMANDS[name]
    close = get_close_matches(name, SLASH_COMMANDS, n=1, cutoff=0.5)
    near = f"did you mean /{close[0]}?" if close else "type /help to list all commands"
    raise Mistake(f"unknown command /{name}; {near}{' ' if close else '; '}to send it to the agent, type //{name}")


def build_arguments(slash: SlashCommand, rest: str, *, place: Path) -> list[str]:
    """Return the `podium` arguments for a slash command in the folder `place`. Raise Mistake if `rest` is invalid."""
    assert slash.calls is not None
    if not rest and slash.takes.startswith("ID"):
        raise Mistake("the request id is missing; it is shown in parentheses in the agent's request")
    try:
        words = slash.calls(rest)
    except ValueError as error:
        raise Mistake(f"cannot parse {rest!r}: {error}") from error
    if words[0] == "workers" and (endless := ENDLESS & set(words)):
        raise Mistake(f"{min(endless)} would block the chat; run podium {shlex.join(words)} in another terminal")
    return add_repo_option(words, place) if slash.is_local else words


def add_repo_option(words: list[str], place: Path) -> list[str]:
    """Add the option `--repo` to `podium` arguments, so that the command does not depend on the current folder."""
    command = 2 if words[:2] == ["team", "show"] else 1
    return [*words[:command], f"--repo={place}", *words[command:]]


def capture_podium_output(words: list[str]) -> str:
    """Run a `podium` command in this process, with empty standard input, and return its output.

    While the command runs, the standard streams are redirected for all threads of the process.
    """
    from ..root import podium  # imported here to avoid a cycle: root imports the commands, and they import this module

    output, stdin = io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO())
    try:
        with redirect_stdout(output), redirect_stderr(output):
            podium.run_command_line(words, channel="chat")
    finally:
        sys.stdin = stdin
    return output.getvalue().rstrip("\n")


class SlashCompletionSource:
    """Completes slash commands and their arguments."""

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
