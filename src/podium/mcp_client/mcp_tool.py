"""A tool of an MCP server, as an acting tool for agents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..core.engine import ToolAnswer
from ..core.gate import InvalidCall, PreparedCall, make_interrupted_answer
from ..values.action import Action
from ..values.event import ToolUse
from ..values.plain_text import escape_unprintable, truncate_text
from .shared_server import SharedServer
from .tool_definition import ToolDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTool:
    """A tool of an MCP server. The server's hints are not trusted: no hint exempts a call from permission."""

    name: str
    definition: ToolDefinition
    shared: SharedServer

    @property
    def description(self) -> str:
        return self.definition.description or f"The tool {self.definition.name} of {self.shared.server.name}."

    @property
    def parameters(self) -> dict[str, Any]:
        return {"type": "object", **self.definition.parameters}

    @property
    def timeout(self) -> float:
        return self.shared.limits.call

    @property
    def is_parallel(self) -> bool:
        return False

    async def prepare(self, call: ToolUse) -> PreparedCall:
        """Prepare the call. Raise InvalidCall if the tool may not be called or the arguments do not fit."""
        if (refusal := self.shared.explain_refusal(self.definition.name)) is not None:
            raise InvalidCall(refusal)
        if call.unreadable:
            raise InvalidCall(f"The arguments of {self.name} are not a JSON object.")
        misfits = list(islice(_find_schema_errors(self.definition.parameters, call.arguments), 3))
        if misfits:
            raise InvalidCall(f"The arguments of {self.name} do not fit: {'; '.join(misfits)}.")

        async def call_server() -> ToolAnswer:
            return await self.shared.call_tool(self.definition.name, call.arguments)

        return PreparedCall(arguments=call.arguments, act=call_server)

    async def recover(self, began: Action) -> ToolAnswer | None:
        """Return None to repeat the call, if the server hints that this is harmless and the person added the server."""
        is_harmless = self.definition.is_read_only or self.definition.is_idempotent
        return None if is_harmless and self.shared.server.source == "user" else make_interrupted_answer(self.name)


def _find_schema_errors(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> Iterator[str]:
    # Imported here, because only runs with MCP tools need it.
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    # With an empty registry, no schema can make us fetch another one from the network.
    validator = validator_for(schema, default=Draft202012Validator)(schema, registry=Registry())
    try:
        for error in validator.iter_errors(arguments):
            place = ".".join(str(part) for part in error.absolute_path)
            yield escape_unprintable(truncate_text(f"{place}: {error.message}" if place else error.message, 300))
    except Unresolvable:
        # The server checks schemas that refer to other documents.
        return
