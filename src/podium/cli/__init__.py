"""The command line: each command parses, calls one thing, and renders."""

import sys

from .command_table import plain_answer
from .terminal.broken_pipe import let_go


def main(argv: list[str] | None = None) -> int:
    """Answer one command; what it gives is the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments and _is_on_terminal():
        arguments = ["chat"]
    text = plain_answer(arguments)
    if text is None:
        # Importing what parses and runs commands takes longer than answering without them.
        from .root import podium

        return podium.answer(arguments)
    try:
        print(text, flush=True)
    except BrokenPipeError:
        return let_go()
    return 0


def _is_on_terminal() -> bool:
    """Whether a person is there to talk to; either stream may be missing, as after `podium >&-`."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
