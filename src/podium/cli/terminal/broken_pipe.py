"""When nobody reads our output any more, as after `podium logs RUN | head`."""

import os
import sys

BROKEN_PIPE = 141
"""The exit code of a program whose reader went away, as shells know it: 128 + SIGPIPE."""


def discard_stdout() -> int:
    """Stop writing to standard output, without a word about it; the exit code to leave with."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return BROKEN_PIPE
