"""Requests that wait for a person: list them, show one in full, and answer it."""

from __future__ import annotations

import time
from typing import Any

from litestar import get, post
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Struct, UnsetType

from ....core.open_requests import Answered
from ....runs.always_answer import save_always_answer
from ....runs.inbox import resolve_choice
from ....runs.request_fields import whole_request_fields
from ....store.closed_requests import as_answered_error
from ....store.open_requests import OpenRequest, answer_request, find_open_request
from ....values.errors import Mistake
from ....values.event import (
    SCHEMA,
    Channel,
    Decision,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
)
from ....values.request import replace_surrogates
from ..route_parameters import Server
from ..scopes import ApiRequest, get_token, may_approve, may_read


class Answer(Struct, forbid_unknown_fields=True):
    """An answer to a request.

    For a permission request, `decision` is required, and `shown` is the `action_id` of the action that the person saw.
    For a question, `text` is required, and `shown` is the `digest` of the text that the person saw, if it has one.
    With the decision `always`, `everywhere` saves the rule for all repositories.
    """

    shown: str
    decision: Decision | UnsetType = UNSET
    text: str | UnsetType = UNSET
    comment: str = ""
    everywhere: bool = False


@get("/api/requests", guards=[may_read], sync_to_thread=True)
def list_requests(server: Server) -> dict[str, Any]:
    """List the open requests of all runs, oldest first, each in full."""
    found = server.overview.load(now=time.time()).waiting
    return {"schema": SCHEMA, "requests": [whole_request_fields(one) for one in found]}


@get("/api/requests/{request_id:str}", guards=[may_read], sync_to_thread=True)
def read_request(request_id: FromPath[str], server: Server) -> dict[str, Any]:
    """Return one open request in full."""
    return whole_request_fields(find_open_request(server.store, request_id))


@post("/api/requests/{request_id:str}/answer", guards=[may_approve], status_code=200, sync_to_thread=True)
def answer(request_id: FromPath[str], data: JSONBody[Answer], request: ApiRequest, server: Server) -> dict[str, Any]:
    """Answer a request. The first answer counts; a later one gets 409 with the answer that was given."""
    one = find_open_request(server.store, request_id)
    channel = get_token(request).channel
    given = (
        _as_permission_answer(one, data, by=server.user, channel=channel)
        if isinstance(one.asked, PermissionAsked)
        else None
    )
    submitted: Answered = given or _as_question_answer(one, data, by=server.user, channel=channel)
    counts = answer_request(server.store, one, submitted)
    if counts != submitted:
        raise as_answered_error(counts)
    rule = ""
    if given is not None and given.rule:
        saved = save_always_answer(
            server.settings.home,
            server.store,
            rule=given.rule,
            run=one.summary.id,
            by=given.by,
            is_everywhere=data.everywhere,
        )
        rule = "" if saved is None else saved.rule
    return {"id": one.asked.id, "run": one.summary.id, "saved_rule": rule}


def _as_permission_answer(one: OpenRequest, data: Answer, *, by: str, channel: Channel) -> PermissionAnswered:
    asked = one.asked
    assert isinstance(asked, PermissionAsked)
    if data.decision is UNSET:
        raise Mistake(f"{asked.id} is a permission request; give a decision")
    if data.shown != asked.action.id:
        raise Mistake(f"{asked.id} is for a different action than the one that was shown; read the request again")
    if data.decision == "always" and not asked.always:
        raise Mistake(
            f'{asked.id} cannot be answered with "always", because no safe rule covers it; '
            "approve it once or for the run"
        )
    return PermissionAnswered(
        id=asked.id,
        decision=data.decision,
        by=by,
        comment=replace_surrogates(data.comment),
        rule=asked.always if data.decision == "always" else "",
        at=time.time(),
        channel=channel,
    )


def _as_question_answer(one: OpenRequest, data: Answer, *, by: str, channel: Channel) -> QuestionAnswered:
    asked = one.asked
    assert isinstance(asked, QuestionAsked)
    if data.text is UNSET:
        raise Mistake(f"{asked.id} is a question; set text to the answer")
    if data.shown != asked.digest:
        raise Mistake(f"{asked.id} has changed since it was shown; read the request again")
    text = resolve_choice(asked, replace_surrogates(data.text))
    return QuestionAnswered(id=asked.id, text=text, by=by, digest=asked.digest, channel=channel)


ROUTES = (list_requests, read_request, answer)
