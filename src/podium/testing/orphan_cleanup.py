"""Stop a test's servers even if the process that started them is killed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def clean_up_when_killed(script: str, *arguments: str) -> Iterator[None]:
    """Make sure that a shell script runs, with these arguments, if this process is killed during the block."""
    # The shell waits for a line of input. If this process is killed, the operating system closes that input, so the
    # shell stops waiting and runs the script.
    with subprocess.Popen(
        ["sh", "-c", f"read -r _ && exit\n{script}", "sh", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as waiting:
        try:
            yield
        finally:
            waiting.communicate(b"\n")
