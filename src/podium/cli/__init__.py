"""Run the `podium` command line. The help and the version are printed without importing any command."""

import gc
import os
import sys

from .command_table import answer_help_or_version


def run_program() -> int:
    """Run the command that this process was started for, and return its exit code. The process must exit afterwards."""
    _open_closed_streams()
    code = main()
    # A collection at exit would take longer than many commands, and the process's memory is freed anyway.
    gc.freeze()
    return code


def _open_closed_streams() -> None:
    """Discard what is written to a stream that was closed for this process, as after `podium ps >&-`.

    The descriptor is taken, too, so that no file that is opened later receives the output of a child process.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - open until the exit


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
        from .output.text import discard_stdout  # imported here for start-up time: pipes rarely break

        return discard_stdout()
    except OSError as error:
        return _report_unwritable(error)
    return 0


def _report_unwritable(error: OSError) -> int:
    """Report that the output cannot be written, and return the exit code."""
    from ..values.errors import explain_full_disk  # imported here for start-up time: disks are rarely full
    from .output.text import discard_unwritable_stdout

    discard_unwritable_stdout()
    print(f"podium: {explain_full_disk(error) or error}", file=sys.stderr)
    return 1


def _is_on_terminal() -> bool:
    """Return whether stdin and stdout are terminals. Either can be None, as after `podium >&-`."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
