"""Define options that several commands share, and read text from an argument or from standard input."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ...files.settings_document import MODES
from ...system.identity import get_local_actor
from ...values.actor import Actor, Channel
from ...values.errors import Mistake


@dataclass(slots=True)
class GlobalOptions:
    """Options of `podium` that apply to every command. `channel` is where the user entered the command."""

    channel: Channel = "command"
    is_debug: bool = False


def read_text_argument(argument: str) -> str:
    """Return the text of an argument, or of standard input if the argument is `-`.

    Raise Mistake if the text is empty or not UTF-8.
    """
    text = sys.stdin.buffer.read() if argument == "-" else argument.encode(errors="surrogateescape")
    try:
        content = text.decode()
    except UnicodeDecodeError as error:
        raise Mistake(f"the text is not UTF-8 (byte {error.start}); convert it first") from error
    if not content.strip():
        raise Mistake("the text is empty; enter at least one word")
    return content


permissions_option = click.option(
    "--permissions",
    "permission_mode",
    type=click.Choice(MODES),
    help="Permission mode, which sets what agents can do without asking.",
)
park_option = click.option(
    "--park",
    "parks",
    is_flag=True,
    help="Without a terminal, queue permission requests and pause the run instead of denying them.",
)
no_sandbox_option = click.option(
    "--no-sandbox",
    "is_bare",
    is_flag=True,
    help="Run commands without a sandbox. Podium shows a warning and records this.",
)


def build_overrides(*, permission_mode: str | None, is_bare: bool, parks: bool) -> dict[str, Any]:
    """Return the settings that a command's options override. None means that the setting is not overridden."""
    return {
        "unattended": "park" if parks else None,
        "permission_mode": permission_mode,
        "sandbox": False if is_bare else None,
    }


repo_option = click.option(
    "--repo",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The repository to use instead of the current one.",
)
json_option = click.option("--json", "is_json", is_flag=True, help="Print JSON.")


def get_command_actor() -> Actor:
    """Return who uses the current command: the user of this process, in a shell or in a chat."""
    context = click.get_current_context(silent=True)
    options = None if context is None else context.find_object(GlobalOptions)
    return get_local_actor("command" if options is None else options.channel)
