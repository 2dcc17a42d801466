"""Run a command on another machine, for `podium --server`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
import msgspec

from ..system.locations import find_home_folder
from ..values.errors import OutsideFailed
from ..web.client.known_servers import find_server
from ..web.client.remote_call import RemoteCall, write_to_stream
from ..web.client.server_client import LostConnection, ServerClient
from ..web.remote_command import STDERR, STDOUT
from .remote_access import OUTPUT_OPTIONS, find_access, is_changing
from .terminal import exit_codes
from .terminal.text import print_to_stderr

NOT_FOLLOWED = ("--detach", "--dry-run", "--help", "-h")
"""If `podium run` is called with one of these options, there is no run to follow."""


class ServerCommand(click.Command):
    """A command that runs on a server. Its arguments are parsed there."""

    def __init__(self, name: str, server: str) -> None:
        super().__init__(name)
        self._server = server

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.args = args
        return args

    def invoke(self, ctx: click.Context) -> int:
        assert self.name is not None
        return call_on_server(self._server, [self.name, *ctx.args])


def call_on_server(server: str, arguments: Sequence[str]) -> int:
    """Run a command on a server and return its exit code."""
    find_access(arguments[0])
    client = ServerClient(find_server(find_home_folder(), server))
    if arguments[0] == "run" and not set(arguments) & set(NOT_FOLLOWED):
        return run_and_follow(client, arguments)
    try:
        return make_call(client, arguments).run(write_to_stream)
    except KeyboardInterrupt:
        if is_changing(arguments):
            print_to_stderr("the command keeps running on the server")
        raise


def make_call(client: ServerClient, arguments: Sequence[str]) -> RemoteCall:
    """Return a call that runs a command on the server. If an argument is `-`, the call includes standard input."""
    input = sys.stdin.buffer.read() if "-" in arguments else b""
    return RemoteCall(client, arguments, input=input, is_changing=is_changing(arguments))


def run_and_follow(client: ServerClient, arguments: Sequence[str]) -> int:
    """Start a background run on the server, and follow it until it ends. The run continues if this process exits."""
    output, others = split_output_options(arguments)
    collected = {STDOUT: bytearray(), STDERR: bytearray()}
    start = make_call(client, [*others[:1], "--detach", "--json", *others[1:]])
    code = start.run(lambda stream, data: collected[stream].extend(data))
    if code != exit_codes.GOAL_MET:
        write_to_stream(STDERR, bytes(collected[STDERR]))
        return code
    run: str = msgspec.json.decode(collected[STDOUT])["id"]
    how = f"run {run} continues on the server; follow it with: podium --server {client.address} follow {run}"
    try:
        return make_call(client, ["follow", run, *output]).run(write_to_stream)
    except LostConnection as error:
        raise OutsideFailed(f"the connection to {client.address} was lost; {how}") from error
    except KeyboardInterrupt:
        print_to_stderr(how)
        raise


def split_output_options(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options that control what `podium run` prints, and all other arguments."""
    from .commands.run import run_command  # imported here for start-up time

    with_value = {name for one in run_command.params if not getattr(one, "is_flag", True) for name in one.opts}
    output: list[str] = []
    others: list[str] = []
    rest = iter(arguments)
    for word in rest:
        if word == "--":
            others += [word, *rest]
        elif word in OUTPUT_OPTIONS:
            output.append(word)
        else:
            others.append(word)
            if word in with_value:
                others += [value for value in [next(rest, None)] if value is not None]
    return output, others
