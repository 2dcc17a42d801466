"""The parameters that many routes have in common. A command with an idempotency key runs only once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Annotated, TypeVar, cast

import msgspec
from anyio import to_thread
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, HeaderParameter

from ...store.store_clients import claim_command_key, store_command_reply
from ...values.actor import Actor
from ...values.store_address import StoreAddress
from .server_context import ServerContext

Reply = TypeVar("Reply")


Server = NamedDependency[ServerContext]
"""The server that answers the request."""
CurrentActor = NamedDependency[Actor]
"""Who sends the request."""
RunPrefix = FromPath[str]
"""A run: its id, a prefix of it, or a name of a worker in the server's repository. See `find.resolve`."""
RepoFolder = FromQuery[str]
"""A folder on the server's machine. An empty value means the server's own repository."""
IdempotencyKey = Annotated[str | None, HeaderParameter(name="Idempotency-Key")]


async def run_once(
    store: StoreAddress, key: str | None, arguments: object, command: Callable[[str], Awaitable[Reply]]
) -> Reply:
    """Run a command and return its result, or return the stored result if the command has already run with this key.

    The command receives an id for the object that it creates. If the command is repeated after a crash, it receives
    the same id. Without a key, the id is empty and the command always runs. Raise Mistake if the key was used with
    different arguments.
    """
    if key is None:
        return await command("")
    digest = sha256(msgspec.json.encode(arguments)).hexdigest()
    claimed = await to_thread.run_sync(claim_command_key, store, key, digest)
    if claimed.reply is not None:
        return cast(Reply, msgspec.Raw(claimed.reply))  # sent as it is, so it need not be decoded
    reply = await command(claimed.id)
    await to_thread.run_sync(store_command_reply, store, key, msgspec.json.encode(reply))
    return reply
