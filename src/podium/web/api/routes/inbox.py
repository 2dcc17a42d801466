"""Requests that wait for a person: list them, show one in full, and answer it."""

from __future__ import annotations

import time

from litestar import get, post
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Struct, structs

from ....runs.answers import NewAnswer, answer_request, resolve_choice
from ....runs.queries.request_details import AnyRequestDetails, describe_in_full
from ....store.request_list import find_open_request
from ....values.column import Document
from ....values.event import QuestionAsked
from ..route_parameters import CurrentActor, Server
from ..scopes import may, may_read


class RequestList(Document, frozen=True, kw_only=True):
    """Open requests, oldest first."""

    requests: list[AnyRequestDetails]


class GivenAnswer(Struct, frozen=True, kw_only=True):
    """The answer to a request. `saved_rule` is the rule that was saved with it, if any."""

    id: str
    run: str
    saved_rule: str


@get("/api/requests", guards=[may_read], sync_to_thread=True)
def list_requests(server: Server) -> RequestList:
    """List the open requests of all runs, oldest first, each in full."""
    found = server.overview.load(now=time.time()).waiting
    return RequestList(requests=[describe_in_full(one) for one in found])


@get("/api/requests/{request_id:str}", guards=[may_read], sync_to_thread=True)
def read_request(request_id: FromPath[str], server: Server) -> AnyRequestDetails:
    """Return one open request in full."""
    return describe_in_full(find_open_request(server.store, request_id))


@post("/api/requests/{request_id:str}/answer", guards=[may(answer_request)], status_code=200, sync_to_thread=True)
def answer(request_id: FromPath[str], data: JSONBody[NewAnswer], actor: CurrentActor, server: Server) -> GivenAnswer:
    """Answer a request. The first answer counts; a later one gets 409 with the answer that was given."""
    one = find_open_request(server.store, request_id)
    run, asked = one.summary.id, one.asked
    if isinstance(asked, QuestionAsked) and data.text is not UNSET:
        data = structs.replace(data, text=resolve_choice(asked, data.text))
    given = answer_request(server.store, run, asked, data, by=actor, home=server.settings.home)
    return GivenAnswer(id=asked.id, run=run, saved_rule="" if given.saved is None else given.saved.rule)


ROUTES = (list_requests, read_request, answer)
