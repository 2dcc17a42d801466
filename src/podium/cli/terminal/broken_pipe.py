"""Handle a reader of our output that has gone away, as after `podium logs RUN | head`."""

import os
import sys

BROKEN_PIPE = 141
"""The exit code that shells expect of a program whose reader went away: 128 + SIGPIPE."""


def discard_stdout() -> int:
    """Discard all further standard output and return the exit code to use."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return BROKEN_PIPE
