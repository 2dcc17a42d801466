"""Send a call with the JSON schema for its answer, and without the schema if the server refuses it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from msgspec import structs

from ...values.errors import OutsideFailed
from .model_wire import ModelCall, ReplyPart

RefusedSchemas = set[tuple[str, str, bool]]
"""The server, the model and whether other tools were offered, for each kind of call whose schema was refused."""

_REFUSALS = (400, 415, 422, 501)
_ABOUT_SCHEMA = re.compile(r"response_format|json.?schema|grammar|structured|tool_choice", re.IGNORECASE)


class SchemaFallback:
    """Sends calls to one server. Wires share `refused`, so that each kind of call is refused only once.

    If `refused` is None, a call whose schema is refused fails.
    """

    def __init__(self, server: str, refused: RefusedSchemas | None) -> None:
        self._server = server
        self._refused = refused

    async def stream(
        self, call: ModelCall, send: Callable[[ModelCall], AsyncGenerator[ReplyPart, None]]
    ) -> AsyncGenerator[ReplyPart, None]:
        """Yield the reply to the call. If the server rejects the schema, send the call without it."""
        kind = (self._server, call.model, any(tool.name != call.schema_tool for tool in call.tools))
        free = structs.replace(call, schema=None, schema_tool="")
        refused = set() if self._refused is None else self._refused
        is_refused = kind in refused
        if call.schema is not None and not is_refused:
            has_begun = False
            try:
                async with aclosing(send(call)) as parts:
                    async for part in parts:
                        has_begun = True
                        yield part
                return
            except OutsideFailed as error:
                if has_begun or self._refused is None or not _may_refuse_schema(error):
                    raise
                is_refused = True
        async with aclosing(send(free)) as parts:
            async for part in parts:
                if is_refused:
                    refused.add(kind)  # only now: if both calls fail, the schema is not the reason
                yield part


def _may_refuse_schema(error: OutsideFailed) -> bool:
    """Return whether a server may have refused a call because of its schema. Some servers answer with 500."""
    if error.is_too_long or error.is_unknown_model or error.status is None:
        return False
    return error.status in _REFUSALS or (error.status >= 500 and _ABOUT_SCHEMA.search(str(error)) is not None)
