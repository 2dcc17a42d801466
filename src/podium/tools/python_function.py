"""Turn Python functions into tools. The name, docstring and type hints become the description for the model."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, get_type_hints

import msgspec
from anyio import to_thread
from msgspec import Struct

from ..core.engine import ToolAnswer
from ..core.gate import ActingTool, PreparedCall, make_interrupted_answer
from ..core.tool_call import build_schema, parse_arguments
from ..values.action import Action
from ..values.errors import Mistake
from ..values.event import ToolUse

TIMEOUT = 600.0
MARK = "__podium_repeatable__"

F = TypeVar("F", bound=Callable[..., Any])


def repeatable(function: F) -> F:
    """Mark a function as safe to call again if it is unknown whether an earlier call completed."""
    setattr(function, MARK, True)
    return function


@lru_cache(maxsize=256)
def function_tool(function: Callable[..., Any]) -> ActingTool:
    """Return a tool that calls the function. Raise Mistake if its name, parameters or type hints are not suitable."""
    name = getattr(function, "__name__", "")
    if not name.isidentifier():
        raise Mistake(f"{function!r} cannot be a tool, because it has no name; wrap it in a function defined with def")
    return FunctionTool(function)


class FunctionTool:
    """A tool that calls a function. A function that is not async runs in a thread, which cannot be stopped."""

    timeout = TIMEOUT
    is_parallel = False

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name: str = function.__name__
        self.description = inspect.getdoc(function) or self.name
        self._function = function
        self._arguments = _build_arguments_type(function)
        self.parameters = build_schema(self._arguments)

    async def prepare(self, call: ToolUse) -> PreparedCall:
        asked = parse_arguments(call, self._arguments)
        given = {name: getattr(asked, name) for name in self._arguments.__struct_fields__}

        async def call_function() -> ToolAnswer:
            return await self._call_function(given)

        return PreparedCall(
            arguments=msgspec.to_builtins(given, enc_hook=repr), act=call_function, is_repeatable=self._is_repeatable
        )

    async def recover(self, began: Action) -> ToolAnswer | None:
        return None if self._is_repeatable else make_interrupted_answer(self.name)

    @property
    def _is_repeatable(self) -> bool:
        return bool(getattr(self._function, MARK, False))

    async def _call_function(self, given: dict[str, Any]) -> ToolAnswer:
        try:
            if inspect.iscoroutinefunction(self._function):
                result = await self._function(**given)
            else:
                result = await to_thread.run_sync(lambda: self._function(**given), abandon_on_cancel=True)
        except Exception as error:
            # The function is third-party code: its exception becomes the answer.
            return ToolAnswer(text=f"{self.name} failed: {type(error).__name__}: {error}", is_error=True)
        return ToolAnswer(text=_format_result(result))


def _format_result(result: Any) -> str:
    return result if isinstance(result, str) else msgspec.json.encode(result, enc_hook=str).decode()


def _build_arguments_type(function: Callable[..., Any]) -> type[Struct]:
    """Build a struct type from the function's parameters."""
    hints = _read_type_hints(function)
    fields: list[Any] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise Mistake(
                f"{function.__name__} cannot be a tool, because its parameter {parameter} cannot be passed by name; "
                "use ordinary or keyword-only parameters"
            )
        hint = hints.get(name, Any)
        if parameter.default is parameter.empty:
            fields.append((name, hint))
        else:
            fields.append((name, hint, _convert_default(parameter.default)))
    try:
        made = msgspec.defstruct(function.__name__, fields, kw_only=True, forbid_unknown_fields=True)
        build_schema(made)
    except TypeError as error:
        raise Mistake(f"{function.__name__} cannot be a tool: {error}; use types that JSON can represent") from error
    return made


def _read_type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise Mistake(
            f"{function.__name__} cannot be a tool: its type hints cannot be resolved ({error}); use types that its "
            "module defines or imports"
        ) from error


def _convert_default(value: Any) -> Any:
    """Return the default value in a form that msgspec accepts. A mutable default value is copied for every call."""
    if isinstance(value, list | dict | set | bytearray):
        return msgspec.field(default_factory=value.copy)
    return value
