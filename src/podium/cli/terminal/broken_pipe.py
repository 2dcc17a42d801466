"""Handle a closed output pipe, as after `podium logs RUN | head`."""

import os
import sys

BROKEN_PIPE = 141
"""The exit code that shells expect after a broken pipe: 128 + SIGPIPE."""


def discard_stdout() -> int:
    """Discard all further standard output and return the exit code to use."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return BROKEN_PIPE
