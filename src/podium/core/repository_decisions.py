"""Define how a run reads the decisions that are in force in its repository."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

NO_REPOSITORY = "There is no repository, so no decisions are in force."


async def _read_nothing(id: str) -> str:
    return NO_REPOSITORY


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryDecisions:
    """The decisions that apply in a run's repository. Without a repository, there are none."""

    in_force: str = ""
    """The decisions in force when the run started, as text for the system prompts, or an empty string."""
    find_repo: Callable[[], str] = str
    """Returns the path of the repository that the run's decisions apply to, or an empty string if there is none."""
    read: Callable[[str], Awaitable[str]] = _read_nothing
    """Returns all decisions in force, or the one with this id in full. Raises Mistake if there is no such decision."""

    def add_to_prompt(self, system: str) -> str:
        """Append the decisions in force to a system prompt."""
        return f"{system}\n\n{self.in_force}".lstrip() if self.in_force else system


NO_DECISIONS = RepositoryDecisions()
