"""The JSON documents that Podium sends: the output of commands with `--json`, and the responses of the API."""

from msgspec import Struct

from .event import SCHEMA


class Document(Struct, frozen=True, kw_only=True):
    """A JSON document, with the version of its format."""

    schema: int = SCHEMA
