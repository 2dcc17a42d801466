"""Run a command for a client of `podium serve`, in a separate process that the server starts.

The command, the client's scopes and a description of the client's terminal are read from standard input, and the output
goes back to the server. Only the commands and options that `remote_access` lists are allowed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import IO, Any

import click
import msgspec
from click.core import ParameterSource

from ..runs.known_repositories import KnownRepositories, describe_unknown_repository
from ..setup.settings import Settings
from ..system.locations import find_repo
from ..values.errors import Mistake
from ..web.remote_command import CallerTerminal, RemoteCommand
from .remote_access import find_access, is_changing
from .root import RootCommandGroup
from .terminal.terminal_input import REMOTE_KEY

WIDEST = 1000


class CallerStream(TextIOWrapper):
    """An output stream to the client. `isatty` returns whether the client's own stream is a terminal."""

    def __init__(self, buffer: IO[bytes], *, is_terminal: bool, encoding: str) -> None:
        super().__init__(buffer, encoding=encoding, line_buffering=True)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


class RemoteCommandGroup(RootCommandGroup):
    """The commands that a client can call. The client's scopes and options are checked before a command runs."""

    def __init__(self, command: RemoteCommand) -> None:
        super().__init__("podium", context_settings={"help_option_names": ["-h", "--help"]})
        self._command = command

    def invoke(self, ctx: click.Context) -> Any:
        ctx.meta[REMOTE_KEY] = True
        return super().invoke(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        return found and self._guard_command(found, cmd_name)

    def _guard_command(self, command: click.Command, path: str) -> click.Command:
        """Wrap a command so that its options are checked before it runs.

        Raise Mistake if the client does not have the scope that the command requires. The command is modified in place.
        This is safe, because this process runs only one command.
        """
        access, call = find_access(path), command.callback
        if access.scope not in self._command.scopes:
            has = ", ".join(self._command.scopes) or "none"
            raise Mistake(f"podium {path} needs a token with the scope {access.scope}; yours has {has}")

        may_approve = "approve" in self._command.scopes
        if not may_approve:
            for param in command.params:
                if isinstance(param.type, click.Path):
                    param.type = KnownFolder()

        def call_with_access(*arguments: Any, **options: Any) -> Any:
            ctx = click.get_current_context()
            require_options(ctx, path, access.options)
            if not may_approve:
                require_no_options(ctx, path, access.approve_options)
            return call(*arguments, **options) if call is not None else None

        command.callback = call_with_access
        if isinstance(command, click.Group):
            self._guard_subcommands(command, path)
        return command

    def _guard_subcommands(self, group: click.Group, path: str) -> None:
        find_command = group.get_command

        def find_guarded(ctx: click.Context, cmd_name: str) -> click.Command | None:
            found = find_command(ctx, cmd_name)
            return found and self._guard_command(found, f"{path} {cmd_name}")

        group.get_command = find_guarded  # type: ignore[method-assign]  # click offers no other place for this


class KnownFolder(click.ParamType[Path]):
    """A folder on the server's machine that a client without the scope `approve` may name: in a known repository."""

    name = "directory"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        folder, own = str(Path(str(value)).absolute()), find_repo(Path())
        if (found := KnownRepositories(Settings.load(repo=own).store, own).find(folder)) is None:
            raise Mistake(describe_unknown_repository(str(value)))
        return found


def require_options(ctx: click.Context, path: str, allowed: tuple[str, ...]) -> None:
    """Raise Mistake if the client gave an option that does not work with --server."""
    for option in _iter_given_options(ctx):
        if not set(option.opts) & set(allowed):
            raise Mistake(
                f"podium {path} {option.opts[-1]} does not work with --server; run it on the server's machine"
            )


def require_no_options(ctx: click.Context, path: str, refused: tuple[str, ...]) -> None:
    """Raise Mistake if the client, whose token lacks the scope `approve`, gave an option that needs it."""
    for option in _iter_given_options(ctx):
        if set(option.opts) & set(refused):
            raise Mistake(f"podium {path} {option.opts[-1]} needs a token with the scope approve")


def _iter_given_options(ctx: click.Context) -> Iterator[click.Option]:
    for param in ctx.command.params:
        is_given = ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        if is_given and isinstance(param, click.Option):
            yield param


def apply_terminal(terminal: CallerTerminal, *, has_time_zone: bool) -> None:
    """Set up this process to write to the client's terminal.

    If `has_time_zone` is true, the process also uses the client's time zone. Commands that modify state keep the time
    zone of this machine, because they may start processes for agents.
    """
    columns, lines = (min(max(size, 1), WIDEST) for size in (terminal.columns, terminal.lines))
    os.environ |= {"COLUMNS": str(columns), "LINES": str(lines), "TERM": terminal.name[:60].replace("\0", "") or "dumb"}
    os.environ.pop("NO_COLOR", None)
    if not terminal.has_colours:
        os.environ["NO_COLOR"] = "1"
    encoding = "utf-8" if terminal.is_unicode else "ascii"
    sys.stdout = CallerStream(sys.stdout.buffer, is_terminal=terminal.has_stdout, encoding=encoding)
    sys.stderr = CallerStream(sys.stderr.buffer, is_terminal=terminal.has_stderr, encoding=encoding)
    if has_time_zone:
        hours, seconds = divmod(abs(terminal.utc_offset) % 86400, 3600)
        # In the TZ variable, UTC offsets east of Greenwich are negative.
        os.environ["TZ"] = f"<local>{'-' if terminal.utc_offset >= 0 else '+'}{hours:02}:{seconds // 60:02}"
        time.tzset()


def main() -> int:
    """Run the command that is described on standard input, and return its exit code."""
    command = msgspec.json.decode(sys.stdin.buffer.read(), type=RemoteCommand)
    sys.stdin = TextIOWrapper(BytesIO(command.input), encoding="utf-8")
    apply_terminal(command.terminal, has_time_zone=not is_changing(command.arguments))
    return RemoteCommandGroup(command).run_command_line(list(command.arguments))


if __name__ == "__main__":
    sys.exit(main())
