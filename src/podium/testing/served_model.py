"""A model server with an event loop of its own, so that tests which wait for nothing can use it too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

from ..engines.model.providers import PROVIDERS
from .model_server import ModelServer, Received
from .script_queue import MutableScriptSet

KEY = "played"


class ServedModel:
    """A model on a port of its own that says what it is told to, and echoes until then."""

    def __init__(self, portal: BlockingPortal, server: ModelServer, scripts: MutableScriptSet) -> None:
        self._portal = portal
        self._server = server
        self._scripts = scripts

    def says(self, *moves: Any, model: str | None = None) -> None:
        """What it says in every conversation from its beginning, or in those that ask for this model."""
        if model is None:
            self._scripts.set_default_script(moves)
        else:
            self._scripts.set_script(model, moves)

    @property
    def url(self) -> str:
        """The base address, as clients of OpenAI's API want it; those of Anthropic's want it without the `/v1`."""
        return self._server.url

    @property
    def calls(self) -> list[Received]:
        """Every call as it came."""
        return list(self._server.calls)

    @property
    def heard(self) -> list[str]:
        """What it was told last, call by call."""
        return [received.call.messages[-1].text for received in self.calls]

    def wait_calls(self, count: int, *, seconds: float = 10.0) -> None:
        """Wait until so many calls have come, from the start on; raises TimeoutError. It blocks whoever asks."""
        waiting = self._portal.start_task_soon(self._server.wait_calls, count)
        try:
            waiting.result(seconds)
        except TimeoutError:
            waiting.cancel()
            raise TimeoutError(f"{len(self.calls)} of {count} calls came within {seconds:g} s") from None

    def environment(self) -> dict[str, str]:
        """What an environment says in which every provider is this server."""
        said = {}
        for provider in PROVIDERS.values():
            said[provider.url_name] = self.url if provider.wire == "openai" else self.url.removesuffix("/v1")
            if provider.key_name is not None:
                said[provider.key_name] = KEY
        return said


@contextmanager
def serve_model() -> Iterator[ServedModel]:
    """A model that is served while the block lasts."""
    scripts = MutableScriptSet()
    server = _MutableScriptServer(scripts)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(server):
        yield ServedModel(portal, server, scripts)


class _MutableScriptServer(ModelServer):
    """A server whose scripts are handed out while it serves."""

    def __init__(self, scripts: MutableScriptSet) -> None:
        super().__init__()
        self._scripts = scripts
