"""Offer a tool for several checkouts: each call goes to the checkout that its path or its `directory` refers to.

Within one checkout, the tool works as it does for a task with a single repository: paths are relative to the checkout,
rules apply to these paths, and nothing outside the checkout is opened. The action records the checkout.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from ..core.engine import ToolAnswer
from ..core.gate import ActingTool, InvalidCall, PreparedCall
from ..values.action import Action
from ..values.event import ToolUse
from ..values.json import JsonSchema

PATH = "path"
DIRECTORY = "directory"


class SeveralCheckouts:
    """One tool for several checkouts; the first checkout is the primary one."""

    def __init__(self, tools: Mapping[Path, ActingTool]) -> None:
        self._tools = dict(tools)
        self._primary = next(iter(self._tools))
        first = self._tools[self._primary]
        self.name: str = first.name
        self.description: str = first.description
        self.timeout: float = max(tool.timeout for tool in self._tools.values())
        self.is_parallel: bool = first.is_parallel
        self._has_path = PATH in first.parameters["properties"]
        self.parameters: JsonSchema = first.parameters if self._has_path else _add_directory(first.parameters)

    async def prepare(self, call: ToolUse) -> PreparedCall:
        checkout, inner = self._route_call(call)
        prepared = await self._tools[checkout].prepare(inner)
        if checkout == self._primary:
            return prepared

        async def act_in_checkout() -> ToolAnswer:
            return _name_checkout(await prepared.act(), checkout)

        return replace(prepared, directory=str(checkout), act=act_in_checkout)

    async def recover(self, began: Action) -> ToolAnswer | None:
        checkout = next((one for one in self._tools if str(one) == began.directory), self._primary)
        answer = await self._tools[checkout].recover(began)
        return answer if answer is None or checkout == self._primary else _name_checkout(answer, checkout)

    def _route_call(self, call: ToolUse) -> tuple[Path, ToolUse]:
        """Return the checkout for a call, and the call to pass to that checkout's tool.

        `directory` is removed from the call, and a path in a checkout other than the primary one is made absolute.
        """
        key = PATH if self._has_path else DIRECTORY
        given = call.arguments.get(key)
        if not isinstance(given, str):
            return self._primary, call  # the argument is missing, or the tool reports that it is invalid
        # Resolve the path only as text: the tool itself follows links, and rejects links that lead out of its checkout.
        whole = os.path.normpath(self._primary / given)
        found = next((one for one in self._tools if _contains(one, whole)), None)
        if self._has_path:
            if found is None or found == self._primary:
                return self._primary, call
            return found, structs.replace(call, arguments={**call.arguments, PATH: whole})
        if found is None or whole not in _name_folder(found):
            known = ", ".join(map(str, self._tools))
            raise InvalidCall(f"`directory` must be one of this task's checkouts: {known}.")
        rest = {name: value for name, value in call.arguments.items() if name != DIRECTORY}
        return found, structs.replace(call, arguments=rest)


def _contains(checkout: Path, path: str) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in _name_folder(checkout))


def _name_folder(checkout: Path) -> tuple[str, str]:
    return str(checkout), os.path.realpath(checkout)


def _name_checkout(answer: ToolAnswer, checkout: Path) -> ToolAnswer:
    """Return the answer with the checkout named in its first line, because paths in the answer are relative to it."""
    return replace(answer, text=f"[in {checkout}]\n{answer.text}")


def _add_directory(parameters: JsonSchema) -> JsonSchema:
    extra = {"type": "string", "description": "Checkout to run in; default: the primary one."}
    return {**parameters, "properties": {**parameters["properties"], DIRECTORY: extra}}
