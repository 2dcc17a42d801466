"""Metrics in the Prometheus text format: runs by state, open requests, usage, and the server's streams."""

from __future__ import annotations

import time
from collections import Counter

from litestar import get
from litestar.response import Response

from ...store.reader import StoreReader
from .route_parameters import Server
from .scopes import may_read
from .server_context import ServerContext


@get("/metrics", guards=[may_read], sync_to_thread=True, media_type="text/plain")
def read_metrics(server: Server) -> Response[str]:
    """Return the metrics of the store and of this server."""
    return Response("".join(_iter_lines(server)), media_type="text/plain; version=0.0.4")


def _iter_lines(server: ServerContext) -> list[str]:
    states: Counter[str] = Counter()
    if server.store.exists():
        with StoreReader(server.store) as reader:
            states = Counter(one.phase for one in reader.read_run_list().readable)
    overview = server.overview.load(now=time.time())
    waits, active = [time.time() - one.entry.at for one in overview.waiting], overview.usage
    return [
        _describe("podium_runs", "gauge", "Runs in the store, by state."),
        *(f'podium_runs{{state="{state}"}} {count}\n' for state, count in sorted(states.items())),
        _describe("podium_open_requests", "gauge", "Requests that are waiting for a person."),
        f"podium_open_requests {len(waits)}\n",
        _describe("podium_open_request_oldest_seconds", "gauge", "How long the oldest open request has been waiting."),
        f"podium_open_request_oldest_seconds {max(waits, default=0.0):.3f}\n",
        _describe("podium_active_usd", "gauge", "The cost of the runs that have not ended, in USD."),
        f"podium_active_usd {active.usd:.6f}\n",
        _describe("podium_active_tokens", "gauge", "The number of tokens used by the runs that have not ended."),
        f"podium_active_tokens {active.tokens}\n",
        _describe("podium_streams", "gauge", "Clients that follow the stream of entries."),
        f"podium_streams {server.hub.streams}\n",
    ]


def _describe(name: str, kind: str, text: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
