"""What is refused or told before a run begins, or goes on."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from .agent import Agent, Budget
from .errors import Mistake
from .event import Entry, RunEnded

LONGEST_REQUEST = 2**20


def must_be_a_request(request: str) -> None:
    """Refuse what cannot be asked. Raises Mistake."""
    if not request.strip():
        raise Mistake("the request is empty; say what the agent should do")
    try:
        size = len(request.encode())
    except UnicodeEncodeError as error:
        raise Mistake(f"the request is not text: character {error.start + 1} cannot be written as UTF-8") from None
    if size > LONGEST_REQUEST:
        raise Mistake(
            f"the request has {size:,} bytes, and at most {LONGEST_REQUEST:,} can be given; name a file instead"
        )


def must_be_a_budget(budget: Budget) -> None:
    """Refuse limits that are none. Raises Mistake."""
    for name in budget.__struct_fields__:
        limit = getattr(budget, name)
        if limit is not None and not (isfinite(limit) and limit > 0):
            raise Mistake(f"a budget of {limit} {name} is none; a number above zero would be one")


def must_not_have_ended(run: str, last: Entry) -> None:
    """Refuse to go on with a run that is over. Raises Mistake."""
    if isinstance(last.event, RunEnded):
        raise Mistake(f"run {run} has ended ({last.event.outcome}) and stays as it is; podium run begins a new one")


def unheeded(agent: Agent) -> list[str]:
    """The keys of an agent that say something which nothing here does yet."""
    return ["isolation"] if agent.isolation != "shared" else []


def below(agent: Agent, team: Iterable[Agent]) -> list[Agent]:
    """An agent and all that may work for it."""
    by_name = {one.name: one for one in team}
    found = {agent.name: agent}
    for one in (open := [agent]):
        for reference in one.references():
            if reference.name in by_name and reference.name not in found:
                found[reference.name] = by_name[reference.name]
                open.append(by_name[reference.name])
    return list(found.values())
