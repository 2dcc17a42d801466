"""Start a run that only makes a decision: a person decides, or a team votes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from anyio import to_thread

from ..files.discovery import load_roster
from ..files.settings import Settings
from ..patterns.member_tasks import read_team_options, validate_team_options
from ..values.actor import Actor, act
from ..values.agent import Agent
from ..values.errors import Mistake
from ..values.event import DecisionProposed
from .queries.repository_decisions import find_decision, find_decision_repo
from .run_handle import Run
from .run_start import start_run
from .runs import Runs

PERSON: Literal["person"] = "person"
PERSON_DECIDES = Agent(
    name="decision",
    description="A decision that a person makes; no model is called.",
    engine="scripted",  # no model is called, so any engine that needs no key will do
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDecision:
    """A decision to make. `decides` is `person`, or the name of a team that votes.

    The team's own settings apply to a `rule`, a `window` or a `decide_by` that is not given. `supersedes` is the id of
    the decision that this one replaces.
    """

    topic: str
    options: tuple[str, ...]
    evidence: str = ""
    decides: str = PERSON
    rule: str | None = None
    window: float | None = None
    decide_by: Literal["lead", "person"] | None = None
    supersedes: str | None = None


@act("act")
@asynccontextmanager
async def start_decision(
    runs: Runs, new: NewDecision, *, place: Path, by: Actor, is_attended: bool = False
) -> AsyncIterator[Run]:
    """Start a run that makes a decision for the repository in `place`, and yield it, as `start_run` does.

    Raise Mistake if no team has the name, if it cannot vote, or if the decision to supersede is not in force.
    """
    proposal = await to_thread.run_sync(partial(_make_proposal, runs.settings, new, place))
    agent = PERSON_DECIDES if new.decides == PERSON else new.decides
    async with start_run(
        runs, agent, new.topic, {"repo": place, "is_attended": is_attended, "decision": proposal}, by=by
    ) as run:
        yield run


def _make_proposal(settings: Settings, new: NewDecision, place: Path) -> DecisionProposed:
    agent = PERSON_DECIDES if new.decides == PERSON else _find_team(settings, place, new.decides)
    if agent is PERSON_DECIDES and new.decide_by == "lead":
        raise Mistake("--decide-by lead needs a team that votes; add --by TEAM")
    team = read_team_options(agent)
    return DecisionProposed(
        id="",
        topic=new.topic,
        options=new.options,
        evidence=new.evidence,
        rule=team.vote if new.rule is None else new.rule,
        decide_by=PERSON if agent is PERSON_DECIDES else new.decide_by or team.decide_by,
        window=team.vote_window if new.window is None else new.window,
        supersedes=_find_superseded(settings, place, new.supersedes),
    )


def _find_team(settings: Settings, place: Path, name: str) -> Agent:
    """Return the agent with that name. Raise Mistake if it does not lead a team that can vote."""
    agent = load_roster(place, settings.home).get(name)
    if agent.team is None:
        raise Mistake(f"{name} does not lead a team; use --by person or --by TEAM (run podium teams to list the teams)")
    validate_team_options(agent)
    return agent


def _find_superseded(settings: Settings, place: Path, id: str | None) -> str:
    """Return the full id of the decision to supersede, or an empty string. Raise Mistake if it is not in force."""
    if id is None:
        return ""
    record = find_decision(settings.store, find_decision_repo(place), id)
    if record.status != "accepted":
        by = f" by {record.superseded_by}" if record.superseded_by else ""
        raise Mistake(f"decision {record.id} is {record.status}{by}; only a decision in force can be superseded")
    return record.id
