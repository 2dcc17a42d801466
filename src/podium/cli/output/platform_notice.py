"""Print a one-time notice about Podium's limitations on operating systems other than Linux."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ...system.locations import find_home_folder
from ...system.owned_files import make_private_folder
from ...values.errors import PodiumError
from .text import print_to_stderr

NOTICES = {
    "darwin": "Podium is not tested on macOS: runs, teams and workers should work, but there is no sandbox, so a "
    "command that you allow can access everything that you can",
    "win32": "on native Windows, agents and teams can only be listed and drawn; to run them, use WSL 2",
}
OTHER = "Podium is not tested on this operating system: it is designed for Linux, and no sandbox is available here"
FILE_NAME = "platform-notice"


def print_platform_notice(platform: str) -> None:
    """Print a notice about Podium's limitations on this operating system, unless it was already printed."""
    with suppress(OSError, PodiumError):  # without a home folder, the notice is printed again next time
        marker: Path = find_home_folder() / FILE_NAME
        if marker.exists():
            return
        make_private_folder(marker.parent)
        marker.touch(mode=0o600)
    print_to_stderr(f"notice: {NOTICES.get(platform, OTHER)}")
