"""The command line: each command parses, calls one thing, and renders."""

import sys

from .command_table import answer_help_or_version
from .terminal.broken_pipe import discard_stdout


def main(argv: list[str] | None = None) -> int:
    """Answer one command; what it gives is the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments and _is_on_terminal():
        arguments = ["chat"]
    text = answer_help_or_version(arguments)
    if text is None:
        # Importing what parses and runs commands takes longer than answering without them.
        from .root import podium

        return podium.run_command_line(arguments)
    try:
        print(text, flush=True)
    except BrokenPipeError:
        return discard_stdout()
    return 0


def _is_on_terminal() -> bool:
    """Whether a person is there to talk to; either stream may be missing, as after `podium >&-`."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
