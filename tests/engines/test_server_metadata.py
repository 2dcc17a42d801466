"""The context window of a model, from what different servers say about themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest
from aiohttp import ClientSession
from anyio.abc import SocketAttribute, SocketStream

from podium.engines.model_probes import ServerReport
from podium.engines.server_metadata import (
    fetch_context_window,
    read_listed_window,
    read_props_window,
    read_running_window,
    read_show_window,
)


@pytest.mark.parametrize(
    ("entry", "window"),
    [
        ({"max_model_len": 32768}, 32768),
        ({"context_length": 200000}, 200000),
        ({"context_window": 131072}, 131072),
        ({"loaded_context_length": 4096, "max_context_length": 131072}, 4096),
        ({"meta": {"n_ctx_train": 8192}}, 8192),
        ({"meta": {"n_ctx": 2048, "n_ctx_train": 8192}}, 2048),
        ({"context_length": 0}, None),
        ({"context_length": True}, None),
        ({"context_length": "many"}, None),
        ({"meta": 7}, None),
        ({}, None),
    ],
)
def test_a_list_of_models(entry: dict[str, Any], window: int | None) -> None:
    document = {"data": [{"id": "other", "max_model_len": 1}, 7, {"id": "m", **entry}]}

    assert read_listed_window(document, "m") == window


def test_the_documents_of_llama_cpp_and_ollama() -> None:
    running = {"models": [{"name": "m:latest", "model": "m:latest", "context_length": 4096}]}
    shown = {"model_info": {"qwen2.block_count": 28, "qwen2.context_length": 32768}}

    assert read_props_window({"default_generation_settings": {"n_ctx": 8192}}, "m") == 8192
    assert read_running_window(running, "m") == 4096
    assert read_running_window(running, "other") is None
    assert read_show_window(shown, "m") == 32768
    assert read_show_window({**shown, "parameters": 'stop "x"\nnum_ctx                 16384'}, "m") == 16384


@pytest.mark.parametrize("document", [None, [], 7, "x", {}, {"data": 7, "models": {}, "model_info": []}])
def test_a_document_of_another_shape_says_nothing(document: Any) -> None:
    readers = (read_listed_window, read_props_window, read_running_window, read_show_window)

    assert [read(document, "m") for read in readers] == [None] * 4


@asynccontextmanager
async def serve_documents(documents: Mapping[str, Any], seen: list[str]) -> AsyncIterator[str]:
    """Serve a JSON document for each method and path."""

    async def answer(stream: SocketStream) -> None:
        async with stream:
            request = " ".join((await stream.receive()).decode().split(" ", 2)[:2])
            seen.append(request)
            body = msgspec.json.encode(documents[request]) if request in documents else b"<html>"
            status = b"200 OK" if request in documents else b"404 Not Found"
            await stream.send(
                b"HTTP/1.1 %b\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)
            )

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, answer)
        yield f"http://127.0.0.1:{listener.listeners[0].extra(SocketAttribute.local_port)}/v1"
        group.cancel_scope.cancel()


OLLAMA = {
    "POST /api/show": {"model_info": {"llama.context_length": 131072}},
    "GET /v1/models": {"data": [{"id": "m", "owned_by": "library"}]},
}


@pytest.mark.parametrize(
    ("documents", "is_own", "report", "requests"),
    [
        (OLLAMA, True, ServerReport(window=131072, source="the server's /api/show"), 3),
        (
            {"GET /v1/models": {"data": [{"id": "m", "max_model_len": 4096}]}},
            True,
            ServerReport(window=4096, source="the server's /models"),
            4,
        ),
        (OLLAMA, False, None, 1),
        ({}, True, None, 4),
    ],
)
async def test_each_server_is_asked_where_it_may_know(
    documents: Mapping[str, Any], is_own: bool, report: ServerReport | None, requests: int
) -> None:
    seen: list[str] = []
    async with serve_documents(documents, seen) as url, ClientSession() as client:
        found = await fetch_context_window(client, url, "m", headers={}, is_own_server=is_own, proxy=None)

    assert found == report
    assert len(seen) == requests
