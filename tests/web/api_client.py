"""A client of the API in tests, with a token of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import httpx

from podium.values.actor import AccessScope
from podium.web.api.access_tokens import SCOPES

from .conftest import Site


class ApiClient(httpx.Client):
    """An HTTP client that signs in with a token of some scopes."""

    def __init__(
        self, site: Site, *, scopes: tuple[AccessScope, ...] = SCOPES, channel: Literal["page", "api"] = "api"
    ) -> None:
        tokens = site.server.context.tokens
        self.secret, self.token = tokens.create_token("test", scopes, channel=channel)
        super().__init__(base_url=site.address, headers={"Authorization": f"Bearer {self.secret}"}, timeout=20)

    def read(self, path: str, **query: str | int) -> Any:
        """Return the JSON at a path, which must be there."""
        response = self.get(path, params=query)
        assert response.status_code == 200, response.text
        return response.json()

    def command(self, path: str, body: object, *, key: str = "", status: int | None = None) -> Any:
        """Send a command and return the JSON of the reply."""
        headers = {"Idempotency-Key": key} if key else {}
        response = self.post(path, json=body, headers=headers)
        assert response.status_code in ((200, 201) if status is None else (status,)), response.text
        return response.json()

    @contextmanager
    def follow(self, cursor: str | None = None, **query: str) -> Iterator[Iterator[StreamEvent]]:
        """Follow the stream of entries."""
        headers = {} if cursor is None else {"Last-Event-ID": cursor}
        with self.stream("GET", "/api/events", params=query, headers=headers) as response:
            assert response.status_code == 200
            yield parse_stream(response)


class StreamEvent:
    """One server-sent event."""

    def __init__(self, block: str) -> None:
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        self.name, self.cursor = fields.get("event", "comment"), fields.get("id", "")
        self.data: Any = json.loads(fields["data"]) if "data" in fields else None


def parse_stream(response: httpx.Response) -> Iterator[StreamEvent]:
    """Yield the events of a stream, without comments."""
    text = ""
    for piece in response.iter_text():
        text += piece
        while "\n\n" in text:
            block, _, text = text.partition("\n\n")
            if (event := StreamEvent(block)).name != "comment":
                yield event
