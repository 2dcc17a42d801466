"""Describe what a model can do on one server, as determined by tests."""

from __future__ import annotations

from msgspec import Struct


class ModelAbilities(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a model can do on the server that offers it. None means that it was not tested.

    `native_calls` means that it calls tools through the API's tool interface, and `written_calls` that it writes
    tool calls in the text of a reply. `json_schema` means that the server can make a reply follow a schema. `window`
    is the context window in tokens, `first_token_seconds` is the time until a short reply begins, and `concurrent`
    is the number of calls that the server answers at the same time.
    """

    streaming: bool | None = None
    native_calls: bool | None = None
    written_calls: bool | None = None
    json_schema: bool | None = None
    system_prompt: bool | None = None
    window: int | None = None
    tokens_per_second: float | None = None
    first_token_seconds: float | None = None
    concurrent: int | None = None


UNTESTED = ModelAbilities()
