"""Run a model server in its own event loop, so that synchronous tests can use it too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

from ..engines.model.providers import PROVIDERS
from ..engines.script import Move
from .model_server import ModelServer, Received
from .script_queue import MutableScriptSet

KEY = "played"


class ServedModel:
    """A scripted model on its own port. Without a script it echoes the request."""

    def __init__(self, portal: BlockingPortal, server: ModelServer, scripts: MutableScriptSet) -> None:
        self._portal = portal
        self._server = server
        self._scripts = scripts

    def says(self, *moves: Move | str | Mapping[str, Any], model: str | None = None) -> None:
        """Set the scripted replies for all conversations or, if `model` is given, for conversations with that model.

        Every conversation starts at the first reply.
        """
        if model is None:
            self._scripts.set_default_script(moves)
        else:
            self._scripts.set_script(model, moves)

    @property
    def url(self) -> str:
        """The base URL for OpenAI clients; Anthropic clients need it without the `/v1`."""
        return self._server.url

    @property
    def calls(self) -> list[Received]:
        """All calls that the server received, in order."""
        return list(self._server.calls)

    @property
    def heard(self) -> list[str]:
        """The text of the last message in each call that the server received."""
        return [received.call.messages[-1].text for received in self.calls]

    def wait_calls(self, count: int, *, seconds: float = 10.0) -> None:
        """Block until `count` calls have arrived since the start. Raise TimeoutError after `seconds`."""
        waiting = self._portal.start_task_soon(self._server.wait_calls, count)
        try:
            waiting.result(seconds)
        except TimeoutError:
            waiting.cancel()
            raise TimeoutError(f"{len(self.calls)} of {count} calls arrived within {seconds:g} s") from None

    def environment(self) -> dict[str, str]:
        """Return environment variables that point every provider to this server."""
        said = {}
        for provider in PROVIDERS.values():
            said[provider.url_name] = self.url if provider.wire == "openai" else self.url.removesuffix("/v1")
            if provider.key_name is not None:
                said[provider.key_name] = KEY
        return said


@contextmanager
def serve_model() -> Iterator[ServedModel]:
    """Serve a model for the duration of the block."""
    scripts = MutableScriptSet()
    server = _MutableScriptServer(scripts)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(server):
        yield ServedModel(portal, server, scripts)


class _MutableScriptServer(ModelServer):
    """A model server whose scripts can be changed while it runs."""

    def __init__(self, scripts: MutableScriptSet) -> None:
        super().__init__()
        self._scripts = scripts
