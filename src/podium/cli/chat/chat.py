"""`podium chat`: chat with an agent, line by line."""

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
from ...files.discovery import load_roster
from ...files.settings import Settings
from ...system.locations import find_repo
from ...values.errors import Mistake
from ..output.command_options import permissions_option
from ..output.exit_codes import SIGNALLED
from .chat_session import ChatSession
from .console import ChatConsole
from .plain_console import PlainConsole
from .slash_commands import SlashCompletionSource

AGENT = "answer"
HISTORY = "chat_history"


@click.command("chat")
@click.argument("agent", default=AGENT)
@click.option("--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Repository to work in.")
@click.option("--model", help="Model for agents that do not specify one, e.g. openai:gpt-5-mini.")
@permissions_option
@click.option(
    "--no-sandbox",
    "is_bare",
    is_flag=True,
    help="Run commands without a sandbox. Podium shows a warning and records this.",
)
@click.option("--plain", "is_plain", is_flag=True, help="Print plain lines, without a prompt fixed at the bottom.")
def chat_command(
    agent: str, repo: Path | None, model: str | None, permission_mode: str | None, is_bare: bool, is_plain: bool
) -> int:
    """Chat with AGENT; each line continues the conversation. Running podium without a command also starts a chat.

    /help lists the commands for delegating to workers, answering their requests, and viewing runs
    and costs. Ctrl-C stops the agent. Press Ctrl-C again, or Ctrl-D, to exit.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Mistake(f"podium chat needs a terminal for input and output; use podium run {agent} REQUEST instead")
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
    """Run a chat until it ends and return the exit code."""
    loop = asyncio.get_running_loop()
    chat: ChatSession | None = None

    def interrupt_chat() -> None:
        if chat is not None:
            chat.handle_interrupt()

    console: ChatConsole
    if is_plain:
        console = PlainConsole()
    else:
        from .prompt_console import (
            PromptConsole,
        )  # imported here for start-up time: the help does not need it

        console = PromptConsole(
            history=settings().home / HISTORY, completions=SlashCompletionSource(place), interrupt=interrupt_chat
        )
    chat = ChatSession(console, agent=agent, place=place, settings=settings)
    loop.add_signal_handler(signal.SIGINT, interrupt_chat)
    loop.add_signal_handler(signal.SIGTERM, chat.exit_chat, SIGNALLED + signal.SIGTERM)
    try:
        with console:
            console.print_line(f"podium {__version__}: chatting with {agent}; type /help for help, Ctrl-D to exit")
            await chat.run_until_exit()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    return chat.code
