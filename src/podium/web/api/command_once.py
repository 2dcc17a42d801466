"""Run a command once for each idempotency key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import TypeVar, cast

import msgspec
from anyio import to_thread

from ...store.answering_clients import claim_command_key, store_command_reply
from ...values.store_address import StoreAddress

Reply = TypeVar("Reply")


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
