"""Send a call with the JSON schema for its answer. If the server refuses the schema, send the call again without it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from msgspec import structs

from ...values.errors import OutsideFailed
from .model_wire import ModelCall, ReplyPart

RefusedSchemas = set[tuple[str, str, bool]]
"""The kinds of calls whose schema was refused.

A kind of call is identified by the server, the model, and whether other tools were offered.
"""

_REFUSALS = (400, 415, 422, 501)
_ABOUT_SCHEMA = re.compile(r"response_format|json.?schema|grammar|structured|tool_choice", re.IGNORECASE)


class SchemaFallback:
    """Sends calls to one server. If the server refuses a call's schema, the call is sent again without it.

    Several instances can share `refused`, so that the server refuses each kind of call only once. If `refused` is None,
    a call whose schema is refused fails.
    """

    def __init__(self, server: str, refused: RefusedSchemas | None) -> None:
        self._server = server
        self._refused = refused

    async def stream(
        self, call: ModelCall, send: Callable[[ModelCall], AsyncGenerator[ReplyPart, None]]
    ) -> AsyncGenerator[ReplyPart, None]:
        """Yield the reply to the call. If the server refuses the schema, send the call again without it."""
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
                    # Recorded only when this call succeeds: if both calls fail, the schema is not the cause.
                    refused.add(kind)
                yield part


def _may_refuse_schema(error: OutsideFailed) -> bool:
    """Return whether a server may have refused a call because of its schema. Some servers answer with 500."""
    if error.is_too_long or error.is_unknown_model or error.status is None:
        return False
    return error.status in _REFUSALS or (error.status >= 500 and _ABOUT_SCHEMA.search(str(error)) is not None)
