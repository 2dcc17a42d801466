"""Find the bubblewrap program, and say how to install it if it is missing."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from ...values.errors import Mistake
from ..git.repository import find_trusted_program

INSTALLERS = (
    ("apt-get", "sudo apt-get install bubblewrap"),
    ("dnf", "sudo dnf install bubblewrap"),
    ("pacman", "sudo pacman -S bubblewrap"),
    ("zypper", "sudo zypper install bubblewrap"),
    ("apk", "sudo apk add bubblewrap"),
)


def find_bubblewrap(*, outside: Path) -> str:
    """Return the absolute path of bubblewrap. Raise Mistake if this is not Linux or bubblewrap is not installed."""
    if sys.platform != "linux":
        raise Mistake("commands need a sandbox, and this system has none; --no-sandbox runs them without one")
    program = find_trusted_program("bwrap", outside=outside)
    if program is None:
        raise Mistake(
            f"commands need a sandbox, and bubblewrap is not installed; install it with: {_find_install_command()}"
        )
    return program


def _find_install_command() -> str:
    fallback = "your system's package manager (the package is called bubblewrap)"
    return next((command for manager, command in INSTALLERS if shutil.which(manager)), fallback)
