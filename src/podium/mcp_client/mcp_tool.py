"""A tool of an MCP server, in the shape of a tool that acts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..core.engine import ToolAnswer
from ..core.gate import Deed, Unfit, interrupted
from ..values.action import Action
from ..values.event import ToolUse
from .plain import cut, plain
from .shared_server import Shared
from .tool_definition import Definition


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTool:
    """What the server does when it is called is its own affair: nothing that it claims makes a call harmless."""

    name: str
    definition: Definition
    shared: Shared

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

    async def prepare(self, call: ToolUse) -> Deed:
        """The call made ready. Raises Unfit."""
        if (refusal := self.shared.refusal(self.definition.name)) is not None:
            raise Unfit(refusal)
        if call.unreadable:
            raise Unfit(f"The arguments of {self.name} are not a JSON object.")
        misfits = list(islice(_misfits(self.definition.parameters, call.arguments), 3))
        if misfits:
            raise Unfit(f"The arguments of {self.name} do not fit: {'; '.join(misfits)}.")

        async def act() -> ToolAnswer:
            return await self.shared.call(self.definition.name, call.arguments)

        return Deed(arguments=call.arguments, act=act)

    async def recover(self, began: Action) -> ToolAnswer | None:
        """A call is made again only where the server says that this is harmless, and the person chose the server."""
        is_harmless = self.definition.is_read_only or self.definition.is_idempotent
        return None if is_harmless and self.shared.server.source == "user" else interrupted(self.name)


def _misfits(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> Iterator[str]:
    # Only runs with MCP tools pay for it.
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    # With the empty registry no schema makes us fetch another from the network.
    validator = validator_for(schema, default=Draft202012Validator)(schema, registry=Registry())
    try:
        for error in validator.iter_errors(arguments):
            place = ".".join(str(part) for part in error.absolute_path)
            yield plain(cut(f"{place}: {error.message}" if place else error.message, 300))
    except Unresolvable:
        # A schema that points elsewhere is for the server to check.
        return
