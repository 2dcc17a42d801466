"""Python functions as tools: the name, the docstring and the type hints say all that a model needs to know."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, get_type_hints

import msgspec
from anyio import to_thread
from msgspec import Struct

from ..core.engine import ToolAnswer
from ..core.gate import Acting, Deed, interrupted
from ..values.action import Action
from ..values.errors import Mistake
from ..values.event import ToolUse
from .tool_arguments import read, schema

TIMEOUT = 600.0
MARK = "__podium_repeatable__"

F = TypeVar("F", bound=Callable[..., Any])


def repeatable(function: F) -> F:
    """Mark a function as safe to be called again when nobody knows whether it was called already."""
    setattr(function, MARK, True)
    return function


@lru_cache(maxsize=256)
def function_tool(function: Callable[..., Any]) -> Acting:
    """The function as a tool. Raises Mistake where it has no name, or its parameters cannot be given by name."""
    name = getattr(function, "__name__", "")
    if not name.isidentifier():
        raise Mistake(f"{function!r} cannot be a tool, because it has no name; def a function that calls it")
    return FunctionTool(function)


class FunctionTool:
    """A function that an agent may call. A plain one runs in a thread, which cannot be stopped."""

    timeout = TIMEOUT
    is_parallel = False

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name: str = function.__name__
        self.description = inspect.getdoc(function) or self.name
        self._function = function
        self._arguments = _arguments(function)
        self.parameters = schema(self._arguments)

    async def prepare(self, call: ToolUse) -> Deed:
        asked = read(call, self._arguments)
        given = {name: getattr(asked, name) for name in self._arguments.__struct_fields__}

        async def act() -> ToolAnswer:
            return await self._called(given)

        return Deed(arguments=msgspec.to_builtins(given, enc_hook=repr), act=act, is_repeatable=self._is_repeatable)

    async def recover(self, began: Action) -> ToolAnswer | None:
        return None if self._is_repeatable else interrupted(self.name)

    @property
    def _is_repeatable(self) -> bool:
        return bool(getattr(self._function, MARK, False))

    async def _called(self, given: dict[str, Any]) -> ToolAnswer:
        try:
            if inspect.iscoroutinefunction(self._function):
                result = await self._function(**given)
            else:
                result = await to_thread.run_sync(lambda: self._function(**given), abandon_on_cancel=True)
        except Exception as error:
            # The function is anybody's code: what it trips over is its answer.
            return ToolAnswer(text=f"{self.name} failed: {type(error).__name__}: {error}", is_error=True)
        return ToolAnswer(text=_text(result))


def _text(result: Any) -> str:
    return result if isinstance(result, str) else msgspec.json.encode(result, enc_hook=str).decode()


def _arguments(function: Callable[..., Any]) -> type[Struct]:
    """The parameters as a type."""
    hints = _hints(function)
    fields: list[Any] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise Mistake(
                f"{function.__name__} cannot be a tool with the parameter {parameter}; parameters with names of their "
                "own would work"
            )
        hint = hints.get(name, Any)
        if parameter.default is parameter.empty:
            fields.append((name, hint))
        else:
            fields.append((name, hint, _default(parameter.default)))
    try:
        made = msgspec.defstruct(function.__name__, fields, kw_only=True, forbid_unknown_fields=True)
        schema(made)
    except TypeError as error:
        raise Mistake(f"{function.__name__} cannot be a tool: {error}; types that JSON has would work") from error
    return made


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise Mistake(
            f"{function.__name__} cannot be a tool: its type hints cannot be read ({error}); types that its module "
            "knows would work"
        ) from error


def _default(value: Any) -> Any:
    """The default as msgspec takes it: a list or mapping is copied for every call."""
    if isinstance(value, list | dict | set | bytearray):
        return msgspec.field(default_factory=value.copy)
    return value
