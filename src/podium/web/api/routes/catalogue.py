"""The results of `podium doctor`, and the available models."""

from __future__ import annotations

import os
from contextvars import Context
from typing import Any

import msgspec
from litestar import get

from ....runs.health_checks import collect_facts
from ....runs.model_listing import encode_models, list_model_columns, load_models
from ....setup.settings import Settings
from ....values.event import SCHEMA
from ..route_parameters import RepoFolder, Server
from ..scopes import ApiRequest, get_token, may_read


@get("/api/doctor", guards=[may_read], sync_to_thread=True)
def read_doctor(server: Server) -> dict[str, Any]:
    """Check the server's machine and its repository."""
    # The checks run their own event loops. This is not allowed in the context of the server's loop, so use an empty
    # context.
    facts = Context().run(lambda: list(collect_facts(os.environ, server.repo)))
    return {"schema": SCHEMA, "facts": [fact._asdict() for fact in facts]}


@get("/api/models", guards=[may_read], sync_to_thread=True)
def read_models(request: ApiRequest, server: Server, repo: RepoFolder = "") -> dict[str, Any]:
    """List the available models. This does not search for model servers on this machine."""
    place = server.find_place(repo, by=get_token(request))
    settings = Settings.load(repo=place, store=server.store, home=server.settings.home)
    found = encode_models(load_models(settings, os.environ, ()))
    fields: dict[str, Any] = msgspec.to_builtins({**found, "columns": list_model_columns()})
    return fields


ROUTES = (
    read_doctor,
    read_models,
)
