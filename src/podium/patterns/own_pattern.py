"""Find and run patterns that are not part of Podium: functions from a program or a plug-in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ..core.operation import Operation
from ..system.installed_plugins import find_plugin_part
from ..values.agent import Agent
from ..values.errors import Mistake, PodiumError, find_first_error
from ..values.event import StepEnded
from ..values.request import Answer, Request
from ..values.team_modes import MODES
from .registry import OwnPatterns, Pattern


def find_own_pattern(agent: Agent, own: OwnPatterns) -> Pattern:
    """Return the custom pattern that an agent or its team names. Raise Mistake if no pattern has that name."""
    if agent.pattern and (agent.team is not None or agent.router is not None):
        raise Mistake(
            f"{agent.name} has both a pattern and a {'team' if agent.team else 'router'}; for a team, set the pattern "
            "as its mode; a router cannot have a pattern"
        )
    name = agent.pattern or ("" if agent.team is None else agent.team.mode)
    pattern = own.get(name) or find_plugin_part("patterns", name)
    if pattern is None:
        what = f"uses the pattern {name!r}" if agent.pattern else f"leads a team in the mode {name!r}"
        known = ", ".join((*own, *(() if agent.pattern else MODES))) or "none"
        raise Mistake(
            f"{agent.name} {what}, which does not exist here; available: {known}; to resume a run that was "
            "started with a pattern from code, pass the pattern again: App.resume(run, patterns=[FUNCTION])"
        )
    return _guard_pattern(name, pattern)


def _guard_pattern(name: str, pattern: Callable[..., Any]) -> Pattern:
    """Wrap a custom pattern so that unexpected exceptions and invalid results are reported as failures of the agent.

    A custom pattern is not part of Podium, so it can raise or return anything.
    """

    async def run_own_pattern(op: Operation, request: Request) -> Answer:
        try:
            answer = await pattern(op, request)
        except Exception as error:
            first = find_first_error(error)
            if isinstance(first, PodiumError):
                raise first from error
            raise op.make_error("failed", f"its pattern {name} failed: {type(first).__name__}: {first}") from error
        if not isinstance(answer, Answer):
            given = type(answer).__name__
            raise op.make_error("failed", f"its pattern {name} returned {given}, not podium.patterns.Answer")
        return answer

    return run_own_pattern


async def run_step(op: Operation, name: str, act: Callable[[], Awaitable[Any]]) -> Any:
    """Return the result of an action that must not happen twice. A resumed run gets it from the timeline.

    The result must be plain JSON data. An action that was running when the process died is executed again.
    """

    async def end_step() -> StepEnded:
        return StepEnded(name=name, result=await act())

    return (await op.scope.next_child(f"step:{name}").step(end_step, StepEnded)).result
