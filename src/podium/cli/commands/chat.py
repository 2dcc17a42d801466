"""`podium chat`: talk to an agent, line by line."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import anyio
import click

from ... import __version__
from ...roster.discovery import load_roster
from ...setup.settings import Settings
from ...system.locations import find_repo
from ...values.errors import Mistake
from ..chat.chat_session import ChatSession
from ..chat.console import ChatConsole
from ..chat.plain_console import PlainConsole
from ..chat.slash_commands import SlashCompletionSource
from ..terminal.exit_codes import SIGNALLED
from ..terminal.options import permissions_option

AGENT = "answer"
HISTORY = "chat_history"


@click.command("chat")
@click.argument("agent", default=AGENT)
@click.option(
    "--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), help="The repository to work in."
)
@click.option("--model", help="What agents think with that name no model of their own, such as openai:gpt-5-mini.")
@permissions_option
@click.option("--no-sandbox", "is_bare", is_flag=True, help="Run commands without a sandbox; shown and recorded.")
@click.option("--plain", "is_plain", is_flag=True, help="Plain lines, without a prompt that stays at the bottom.")
def chat_command(
    agent: str, repo: Path | None, model: str | None, permission_mode: str | None, is_bare: bool, is_plain: bool
) -> int:
    """Talk to AGENT; each line goes on with the conversation. podium alone, on a terminal, does the same.

    /help lists what else can be done here: delegating to workers, answering what they ask, looking at
    runs and costs. Ctrl-C stops the agent, a second one leaves, as Ctrl-D does.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Mistake(f"a chat needs a terminal, and this is none; podium run {agent} REQUEST asks once")
    place = find_repo(repo or Path())
    settings = partial(
        Settings.load,
        repo=place,
        model=model or None,
        permission_mode=permission_mode,
        sandbox=False if is_bare else None,
    )
    load_roster(place, settings().home).resolve_team(agent)
    run_chat = partial(_run_chat, agent, place, settings, is_plain or os.environ.get("TERM", "dumb") == "dumb")
    return anyio.run(run_chat, backend_options={"use_uvloop": find_spec("uvloop") is not None})


async def _run_chat(agent: str, place: Path, settings: Callable[[], Settings], is_plain: bool) -> int:
    """Hold a chat to its end; the exit code."""
    loop = asyncio.get_running_loop()
    chat: ChatSession | None = None

    def interrupt_chat() -> None:
        if chat is not None:
            chat.handle_interrupt()

    console: ChatConsole
    if is_plain:
        console = PlainConsole()
    else:
        from ..chat.prompt_console import PromptConsole  # it takes longer to import than the help to answer

        console = PromptConsole(
            history=settings().home / HISTORY, completions=SlashCompletionSource(place), interrupt=interrupt_chat
        )
    chat = ChatSession(console, agent=agent, place=place, settings=settings)
    loop.add_signal_handler(signal.SIGINT, interrupt_chat)
    loop.add_signal_handler(signal.SIGTERM, chat.exit_chat, SIGNALLED + signal.SIGTERM)
    try:
        with console:
            console.print_line(f"podium {__version__}: you talk to {agent}; /help lists what there is, Ctrl-D leaves")
            await chat.run_until_exit()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    return chat.code
