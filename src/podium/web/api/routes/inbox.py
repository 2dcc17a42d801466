"""Requests that wait for a person: list them, show one in full, and answer it."""

from __future__ import annotations

import time
from typing import Any

from litestar import get, post
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, structs

from ....runs.answers import NewAnswer, answer_request, resolve_choice
from ....runs.request_fields import whole_request_fields
from ....store.open_requests import find_open_request
from ....values.event import SCHEMA, QuestionAsked
from ..route_parameters import CurrentActor, Server
from ..scopes import may, may_read


@get("/api/requests", guards=[may_read], sync_to_thread=True)
def list_requests(server: Server) -> dict[str, Any]:
    """List the open requests of all runs, oldest first, each in full."""
    found = server.overview.load(now=time.time()).waiting
    return {"schema": SCHEMA, "requests": [whole_request_fields(one) for one in found]}


@get("/api/requests/{request_id:str}", guards=[may_read], sync_to_thread=True)
def read_request(request_id: FromPath[str], server: Server) -> dict[str, Any]:
    """Return one open request in full."""
    return whole_request_fields(find_open_request(server.store, request_id))


@post("/api/requests/{request_id:str}/answer", guards=[may(answer_request)], status_code=200, sync_to_thread=True)
def answer(request_id: FromPath[str], data: JSONBody[NewAnswer], actor: CurrentActor, server: Server) -> dict[str, Any]:
    """Answer a request. The first answer counts; a later one gets 409 with the answer that was given."""
    one = find_open_request(server.store, request_id)
    run, asked = one.summary.id, one.asked
    if isinstance(asked, QuestionAsked) and data.text is not UNSET:
        data = structs.replace(data, text=resolve_choice(asked, data.text))
    given = answer_request(server.store, run, asked, data, by=actor, home=server.settings.home)
    return {"id": asked.id, "run": run, "saved_rule": "" if given.saved is None else given.saved.rule}


ROUTES = (list_requests, read_request, answer)
