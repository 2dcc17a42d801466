"""Run a `podium` command on the server's machine, for `podium --server`."""

from __future__ import annotations

from litestar import post
from litestar.params import JSONBody
from litestar.response import Stream
from msgspec import Struct

from ...remote_command import CallerTerminal, RemoteCommand
from ..route_parameters import IdempotencyKey, Server
from ..scopes import ApiRequest, get_token, may_read


class NewCommand(Struct, forbid_unknown_fields=True):
    """The arguments of a command, such as `["show", "3f2a"]`, and the terminal that shows its output.

    `input` is the command's standard input, encoded in Base64.
    """

    arguments: tuple[str, ...]
    input: bytes = b""
    terminal: CallerTerminal = CallerTerminal()


@post("/api/commands", guards=[may_read], status_code=200, media_type="application/octet-stream")
async def run_command(
    data: JSONBody[NewCommand], request: ApiRequest, server: Server, idempotency_key: IdempotencyKey = None
) -> Stream:
    """Run a command in the server's repository, and stream its output in frames.

    `docs/dashboard.md` lists the commands and the scope that each needs. With an idempotency key, the command runs
    once, and to completion even if the client disconnects.
    """
    token = get_token(request)
    command = RemoteCommand(arguments=data.arguments, scopes=token.scopes, input=data.input, terminal=data.terminal)
    if idempotency_key is None:
        frames = server.served_commands.run_until_disconnect(command, lambda: server.is_valid_token(token.id))
    else:
        frames = await server.served_commands.run_once(command, idempotency_key)
    return Stream(frames, media_type="application/octet-stream", headers={"cache-control": "no-store"})


ROUTES = (run_command,)
