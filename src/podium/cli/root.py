"""Find and run a `podium` command, and report its errors.

Each command is imported only when it is called. All errors that commands raise are handled here.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from .. import __version__
from ..values.actor import Channel
from ..values.errors import Mistake, PodiumError, explain_full_disk, find_first_error
from .command_table import EXAMPLES, LOOKING_NAMES, LOOKING_SUBCOMMANDS, NAMES, build_help_text, find_command_module
from .output import exit_codes
from .output.command_options import GlobalOptions
from .output.text import discard_stdout, discard_unwritable_stdout, escape_for_terminal, print_to_stderr

INSTEAD_OF_SERVER = (
    "run the command on the other machine with ssh, or use the dashboard or the API of podium serve there"
)


class RootCommandGroup(click.Group):
    """The group of all commands. Each command is imported when it is first needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in NAMES:
            return _find_plugin_command(cmd_name)
        command: click.Command = getattr(
            import_module(f"{__package__}.{find_command_module(cmd_name)}"), f"{cmd_name}_command"
        )
        command.epilog = command.epilog or f"Example: {EXAMPLES[cmd_name]}"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        match args:
            case ["help", *named]:
                return self.resolve_command(ctx, [*named[:1], "--help"])
            case ["login", *_]:
                raise Mistake(f"podium login is no longer supported; {INSTEAD_OF_SERVER}")
            case [name, *_] if name not in NAMES and _find_plugin_command(name) is None:
                raise Mistake(f"unknown command {name!r}; {_suggest_command(name)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
            if sys.stdout is not None:  # stdout is None after `podium ps >&-`
                sys.stdout.flush()
        except BrokenPipeError:
            ctx.exit(discard_stdout())
        return code

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(build_help_text())

    def main(self, args: Sequence[str] | None = None, *_: Any, **__: Any) -> NoReturn:
        """Run the command line and exit the process. Click's test runner calls this method."""
        sys.exit(self.run_command_line(args))

    def run_command_line(self, args: Sequence[str] | None = None, *, channel: Channel = "command") -> int:
        """Run one command, print its error if it fails, and return the exit code.

        `channel` is where the user entered the command.
        """
        options = GlobalOptions(channel=channel)
        for stream in (sys.stdout, sys.stderr):
            # Print characters that the terminal cannot encode as escapes instead of raising an error.
            with contextlib.suppress(AttributeError):
                stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # tests replace the streams
        if sys.platform != "linux":
            # Imported here to keep start-up fast: Linux needs no notice.
            from .output.platform_notice import print_platform_notice

            print_platform_notice(sys.platform)
        try:
            code = super().main(args, prog_name="podium", obj=options, standalone_mode=False)
            return code if isinstance(code, int) else exit_codes.GOAL_MET
        except (click.Abort, KeyboardInterrupt):
            print_to_stderr("interrupted")
            return exit_codes.SIGNALLED + signal.SIGINT
        except click.ClickException as error:
            return _print_error(_format_usage_error(error), error, exit_codes.USAGE, options)
        except Exception as error:
            cause = find_first_error(error)
            if isinstance(cause, OSError):
                discard_unwritable_stdout()
            return _print_error(_format_error(cause), error, exit_codes.error_exit_code(cause), options)


@click.group(cls=RootCommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, envvar="PODIUM_DEBUG")
@click.option("--server", envvar="PODIUM_SERVER", hidden=True)
@click.version_option(__version__, prog_name="podium", message="%(prog)s %(version)s")
@click.pass_obj
def podium(options: GlobalOptions, debug: bool, server: str | None) -> None:
    """Run teams of AI agents."""
    options.is_debug = debug
    if server:
        raise Mistake(f"--server and PODIUM_SERVER are no longer supported; {INSTEAD_OF_SERVER}")


def _find_plugin_command(name: str) -> click.Command | None:
    """Return the plug-in command with this name, or None if there is none."""
    if name.startswith("-"):
        return None
    # Imported here to keep start-up fast: most commands are built in.
    from ..system.installed_plugins import find_plugin_part

    command: click.Command | None = find_plugin_part("commands", name)
    return command


def _print_error(sentence: str, error: BaseException, code: int, options: GlobalOptions) -> int:
    if options.is_debug:
        import traceback  # imported here to keep start-up fast: only --debug prints a traceback

        click.echo(escape_for_terminal("".join(traceback.format_exception(error)).rstrip()), err=True)
    with contextlib.suppress(OSError):  # standard error is on the full disk too
        click.echo(f"podium: {escape_for_terminal(sentence)}", err=True)
    return code


def _format_error(error: BaseException) -> str:
    match error:
        case PodiumError():
            return str(error)
        case ModuleNotFoundError(name=str(name)):
            how = "pip install --upgrade podium"
            if name.endswith("(extra web)"):
                from ..values.fleet_job import format_install_commands  # imported here to keep start-up fast

                how = format_install_commands("web")
            return f"the Python package {name} is not installed; install it with: {how}"
    if full := explain_full_disk(error):
        return full
    what = f"{type(error).__name__}: {error}"
    return f"internal error in Podium: {what}; run podium --debug COMMAND to see the traceback"


def _format_usage_error(error: click.ClickException) -> str:
    """Return a usage error from click as one sentence in the style of Podium's own messages."""
    # Click's own suggestions are left out, because _suggest_similar adds ours.
    text = (error.message if hasattr(error, "possibilities") else error.format_message()).rstrip(".")
    ctx: click.Context | None = getattr(error, "ctx", None)
    command = "podium" if ctx is None else ctx.command_path
    return f"{text[:1].lower()}{text[1:]}; {_suggest_similar(error, ctx)}run {command} --help to see its usage"


def _suggest_similar(error: click.ClickException, ctx: click.Context | None) -> str:
    """Return a suggestion for a mistyped option or subcommand, or an empty string if nothing is similar."""
    if ctx is None:
        return ""
    wrong = getattr(error, "option_name", None) or getattr(error, "command_name", None) or ""
    known = [name for one in ctx.command.params for name in one.opts if name.startswith("-")]
    if isinstance(ctx.command, click.Group) and not wrong.startswith("-"):
        known = [name for name in ctx.command.list_commands(ctx) if name in LOOKING_SUBCOMMANDS]
    close = _find_closest(wrong, known)
    return f"did you mean {close}? " if close else ""


def _suggest_command(name: str) -> str:
    # Commands with side effects are not suggested: a user might enter one without checking it.
    close = _find_closest(name.lower(), LOOKING_NAMES, cutoff=0.7)
    return f"did you mean podium {close}?" if close else "run podium --help to list all commands"


def _find_closest(word: str, known: Sequence[str], *, cutoff: float = 0.6) -> str:
    """Return the known word that is most similar to `word`, or an empty string if none is similar enough."""
    from difflib import get_close_matches  # imported here to keep start-up fast: only misspelled names need it

    # Prefer names with the same letters, because swapped letters are a common typo: --modle means --model, not --mode.
    swapped = [name for name in known if sorted(name) == sorted(word)]
    return next(iter(get_close_matches(word, swapped or known, n=1, cutoff=cutoff)), "")
