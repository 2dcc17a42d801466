"""The parameters that many routes have in common."""

from __future__ import annotations

from typing import Annotated

from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, HeaderParameter

from ...values.actor import Actor
from .server_context import ServerContext

Server = NamedDependency[ServerContext]
"""The server that answers the request."""
CurrentActor = NamedDependency[Actor]
"""Who sends the request."""
RunPrefix = FromPath[str]
"""A run: its id, a prefix of it, or a name of a worker in the server's repository. See `find.resolve`."""
RepoFolder = FromQuery[str]
"""A folder on the server's machine. An empty value means the server's own repository."""
IdempotencyKey = Annotated[str | None, HeaderParameter(name="Idempotency-Key")]
