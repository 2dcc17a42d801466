"""Run the `podium` command line. The help and the version are printed without importing any command."""

import gc
import sys

from .command_table import answer_help_or_version


def run_program() -> int:
    """Run the command that this process was started for, and return its exit code. The process must exit afterwards."""
    code = main()
    # A collection at exit would take longer than many commands, and the process's memory is freed anyway.
    gc.freeze()
    return code


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code.

    Without arguments, start a chat if run in a terminal; otherwise, print the help.
    """
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments and _is_on_terminal():
        arguments = ["chat"]
    text = answer_help_or_version(arguments)
    if text is None:
        # Imported here, because importing click and the commands takes longer than printing the help.
        from .root import podium

        return podium.run_command_line(arguments)
    try:
        print(text, flush=True)
    except BrokenPipeError:
        from .terminal.broken_pipe import discard_stdout  # imported here for start-up time: pipes rarely break

        return discard_stdout()
    return 0


def _is_on_terminal() -> bool:
    """Return whether stdin and stdout are terminals. Either can be None, as after `podium >&-`."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
