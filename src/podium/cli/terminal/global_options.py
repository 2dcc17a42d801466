"""Options that apply to every command, and who uses the command."""

from __future__ import annotations

from dataclasses import dataclass

import click

from ...system.host_id import get_local_actor
from ...values.actor import Actor, Channel


@dataclass(slots=True)
class GlobalOptions:
    """Options of `podium` that apply to every command. `channel` is where the user entered the command."""

    channel: Channel = "command"
    is_debug: bool = False


def get_command_actor() -> Actor:
    """Return who uses the current command: the user of this process, in a shell or in a chat."""
    context = click.get_current_context(silent=True)
    options = None if context is None else context.find_object(GlobalOptions)
    return get_local_actor("command" if options is None else options.channel)
