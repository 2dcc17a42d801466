"""The results of `podium doctor`, and the available models."""

from __future__ import annotations

import os
from contextvars import Context

from litestar import get

from ....files.settings import Settings
from ....runs.queries.health_checks import Fact, collect_facts
from ....runs.queries.model_listing import ModelLists, encode_models, load_models
from ....values.column import Document
from ..route_parameters import RepoFolder, Server
from ..scopes import ApiRequest, get_token, may_read


class DoctorReport(Document, frozen=True, kw_only=True):
    """The results of all checks."""

    facts: list[Fact]


@get("/api/doctor", guards=[may_read], sync_to_thread=True)
def read_doctor(server: Server) -> DoctorReport:
    """Check the server's machine and its repository."""
    # The checks run their own event loops. This is not allowed in the context of the server's loop, so use an empty
    # context.
    return DoctorReport(facts=Context().run(lambda: list(collect_facts(os.environ, server.repo))))


@get("/api/models", guards=[may_read], sync_to_thread=True)
def read_models(request: ApiRequest, server: Server, repo: RepoFolder = "") -> ModelLists:
    """List the available models. This does not search for model servers on this machine."""
    place = server.find_place(repo, by=get_token(request))
    settings = Settings.load(repo=place, store=server.store, home=server.settings.home)
    return encode_models(load_models(settings, os.environ, ()), has_columns=True)


ROUTES = (
    read_doctor,
    read_models,
)
