"""Call a local model: start its engine when it is needed, and call it through OpenAI's API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import aiohttp

from ...values.errors import DependencyMissing, Mistake, OutsideFailed
from ..model.model_wire import ModelCall, ReplyPart
from ..model.openai_wire import OpenAIWire
from ..model.providers import LOCAL
from .engine_process import LocalEngine


class LocalWire:
    """Calls one local model. An engine that has ended, for whatever reason, is started again by the next call."""

    def __init__(self, client: Callable[[], aiohttp.ClientSession], engine: LocalEngine) -> None:
        self._client = client
        self._engine = engine

    async def stream(self, call: ModelCall) -> AsyncGenerator[ReplyPart, None]:
        has_begun = False
        for is_last in (False, True):
            wire = await self._connect()
            try:
                async with aclosing(wire.stream(call)) as parts:
                    async for part in parts:
                        has_begun = True
                        yield part
                return
            except OutsideFailed:
                # An engine that exited between two calls is started again. One that fails during a reply is not.
                if is_last or has_begun or self._engine.find_running() is not None:
                    raise

    async def _connect(self) -> OpenAIWire:
        try:
            state = await self._engine.ensure_running()
        except (DependencyMissing, Mistake) as error:
            raise OutsideFailed(str(error)) from error
        return OpenAIWire(
            self._client,
            state.url,
            state.token,
            key_name="the token of the local engine",
            provider=LOCAL,
            limit_name="max_tokens",
        )
