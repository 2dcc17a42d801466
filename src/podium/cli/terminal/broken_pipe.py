"""Handle output that cannot be written: a closed pipe, as after `podium logs RUN | head`, or a full disk."""

import os
import sys

BROKEN_PIPE = 141
"""The exit code that shells expect after a broken pipe: 128 + SIGPIPE."""


def discard_stdout() -> int:
    """Discard all further standard output and return the exit code to use after a broken pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return BROKEN_PIPE


def discard_unwritable_stdout() -> None:
    """If the output that is still buffered cannot be written, discard it; Python would try again at its exit."""
    try:
        if sys.stdout is not None:  # it is None after `podium ps >&-`
            sys.stdout.flush()
    except (OSError, ValueError):
        discard_stdout()
