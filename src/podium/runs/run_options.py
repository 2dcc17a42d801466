"""Define the options of a request to an agent, and apply them to the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from msgspec import structs

from ..files.settings import Settings
from ..patterns.registry import OnDiscussion
from ..values.agent import Agent, Budget, as_budget
from ..values.event import DecisionProposed
from ..values.team_modes import Mode


class RunOptions(TypedDict, total=False):
    """The options of a request.

    `repo` is the repository to work in. `agents` contains other agents, built in code, that the first agent refers to,
    and `tools` contains functions that agents can call. `budget` limits the whole run. `is_attended` means that
    somebody follows the run and answers its requests. `mode` overrides the mode of the first agent's team; without a
    team, only `reflect` is possible. `max_iterations` limits the iterations of the mode `reflect`. `on_discussion` is
    called with each discussion when it starts. `after` is an earlier run whose conversation the new run continues.
    `force_model` replaces the models of all agents. With `decision`, the run only makes this decision: the members of
    the first agent's team vote, and the agent itself or a person decides if the vote is inconclusive. `constraints`
    apply to the work of the first agent's collaborating team, in addition to the team's own. With `leaves_no_traces`,
    the run creates no worktrees, branches or decision records, and calls no hooks.
    """

    repo: str | Path | None
    agents: Iterable[Agent]
    tools: Sequence[Callable[..., object]]
    budget: Budget | Mapping[str, float] | None
    is_attended: bool
    mode: Mode | None
    max_iterations: int | None
    on_discussion: OnDiscussion | None
    after: str
    force_model: str
    decision: DecisionProposed | None
    constraints: Sequence[str]
    leaves_no_traces: bool


def require_known_options(options: RunOptions) -> None:
    """Raise TypeError if an option is unknown."""
    if unknown := options.keys() - RunOptions.__annotations__.keys():
        known = ", ".join(RunOptions.__annotations__)
        raise TypeError(f"a run has no option {', '.join(sorted(unknown))}; available: {known}")


def apply_options(options: RunOptions, settings: Settings) -> Settings:
    """Return the settings with the run's budget, if it has one, and without hooks if `leaves_no_traces` is set."""
    if (budget := options.get("budget")) is not None:
        settings = structs.replace(settings, budget=as_budget(budget))
    if options.get("leaves_no_traces", False):
        settings = structs.replace(settings, hooks={})
    return settings
