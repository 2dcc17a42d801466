"""The stream of entries, and the overview that the first screen shows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Annotated

from litestar import get
from litestar.params import FromQuery, HeaderParameter
from litestar.response import Stream
from msgspec import structs

from ....runs.queries.context_window import add_context_windows
from ....runs.queries.overview import OverviewDocument, OverviewRow, build_overview_document
from ..event_stream import find_position, stream_entries
from ..route_parameters import Server
from ..scopes import ApiRequest, get_token, may_read


@get("/api/events", guards=[may_read], media_type="text/event-stream")
async def follow_events(
    request: ApiRequest,
    server: Server,
    after: FromQuery[str | None] = None,
    runs: FromQuery[str | None] = None,
    client: FromQuery[bool] = False,
    last_event_id: Annotated[str | None, HeaderParameter(name="Last-Event-ID")] = None,
) -> Stream:
    """Stream the entries of all runs as server-sent events, from a cursor or, without one, from now on.

    `after` or the header Last-Event-ID is the cursor; an empty cursor means the beginning of the store. `runs` is a
    comma-separated list of run ids. If it is given, only the entries of these runs are sent; for other runs, the stream
    only reports that they have changed. `client` is true if a person can answer requests through this client; it has
    no effect for a token without the scope `approve`, which cannot answer.
    """
    cursor = last_event_id if last_event_id is not None else after
    position = await find_position(server.store, server.hub, cursor)
    chosen = None if runs is None else frozenset(filter(None, runs.split(",")))
    token = get_token(request)
    can_answer = client and "approve" in token.scopes
    events = stream_entries(
        server.hub,
        position,
        runs=chosen,
        client=server.clients.connect(token.id) if can_answer else nullcontext(),
        may_go_on=lambda: server.is_valid_token(token.id),
    )
    return Stream(events, media_type="text/event-stream", headers={"cache-control": "no-store"})


@get("/api/overview", guards=[may_read], sync_to_thread=True)
def read_overview(server: Server) -> OverviewDocument:
    """Return the items that need the user's attention, the active runs and the most recently ended runs."""

    def add_windows(rows: Sequence[OverviewRow]) -> list[OverviewRow]:
        contexts = add_context_windows([row.context for row in rows], server.settings)
        return [structs.replace(row, context=context) for row, context in zip(rows, contexts, strict=True)]

    now = time.time()
    overview = server.overview.load(now=now)
    active, ended = add_windows(overview.active), add_windows(overview.ended)
    return build_overview_document(overview, active=active, ended=ended, now=now)


ROUTES = (follow_events, read_overview)
