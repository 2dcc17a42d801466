"""What is refused or told before a run begins, or goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import isfinite
from pathlib import Path

from msgspec import structs

from ..core.engine import Engine
from ..engines.model.tool_loop import ModelEngine
from ..values.agent import MAX_LIMIT, Agent, Budget, Mode, Team
from ..values.errors import Mistake, RunOver
from ..values.event import Entry, RunEnded

MAX_REQUEST_BYTES = 2**20


def validate_request(request: str) -> None:
    """Refuse what cannot be asked. Raises Mistake."""
    if not request.strip():
        raise Mistake("the request is empty; say what the agent should do")
    try:
        size = len(request.encode())
    except UnicodeEncodeError as error:
        raise Mistake(f"the request is not text: character {error.start + 1} cannot be written as UTF-8") from None
    if size > MAX_REQUEST_BYTES:
        raise Mistake(
            f"the request has {size:,} bytes, and at most {MAX_REQUEST_BYTES:,} can be given; name a file instead"
        )


def validate_budget(budget: Budget) -> None:
    """Refuse limits that are none. Raises Mistake."""
    for name in budget.__struct_fields__:
        limit = getattr(budget, name)
        if limit is not None and not (isfinite(limit) and limit > 0):
            raise Mistake(f"a budget of {limit} {name} is none; a number above zero would be one")
        if limit is not None and limit > MAX_LIMIT:
            raise Mistake(f"a budget of {limit} {name} limits nothing; leave it out, or give {MAX_LIMIT} at most")


def require_repository(team: Iterable[Agent], repo: Path | None) -> None:
    """Refuse checks and checkouts of work where there is no repository to check out. Raises Mistake."""
    for agent in team:
        options = {} if agent.team is None else agent.team.options
        if options.get("checks"):
            what = "checks, which run on a clean checkout of the work"
        elif options.get("worktrees", "shared") != "shared":
            what = f"worktrees: {options['worktrees']}, which is about checkouts of the repository"
        else:
            continue
        if not _is_in_git(repo):
            raise Mistake(
                f"{agent.name} has {what}, and {repo or 'a run without a repository'} is in no git repository; "
                "git init makes one"
            )


def _is_in_git(repo: Path | None) -> bool:
    return repo is not None and any((folder / ".git").exists() for folder in (repo, *repo.parents))


def apply_run_mode(agent: Agent, mode: Mode | None, max_iterations: int | None) -> Agent:
    """The first agent of a run as it is wanted this time. Raises Mistake for what it cannot do."""
    team = agent.team
    if team is None and mode != "reflect":
        what = "has no team" if mode is None else f"has no team that could work in mode {mode}"
        raise Mistake(f'{agent.name} {what}; alone it can only reflect: --reflect, or mode="reflect" in Python')
    if team is None and (agent.router is not None or agent.handoff is not None):
        raise Mistake(f"{agent.name} does not answer itself, and cannot reflect; name the agent that does")
    if max_iterations is not None and max_iterations < 1:
        raise Mistake(f"{max_iterations} iterations are none; 1 or more would be some")
    team = team or Team(mode="reflect", members=())
    if max_iterations is not None and (mode or team.mode) != "reflect":
        what = f"works in mode {mode or team.mode}, which has no iterations"
        raise Mistake(f"{agent.name} {what}; a limit on them goes with the mode reflect")
    most = {} if max_iterations is None else {"max_iterations": max_iterations}
    return structs.replace(agent, team=structs.replace(team, mode=mode or team.mode, options=team.options | most))


def require_not_ended(run: str, last: Entry) -> None:
    """Refuse to go on with a run that is over. Raises RunOver."""
    if isinstance(last.event, RunEnded):
        failure = last.event.failure
        is_spent = failure is not None and failure.kind == "budget"
        raise RunOver(
            f"run {run} has ended ({last.event.outcome}) and stays as it is; podium run begins a new one"
            + (", with another --budget" if is_spent else "")
        )


def collect_reachable_agents(agent: Agent, team: Iterable[Agent]) -> list[Agent]:
    """An agent and all that may work for it."""
    by_name = {one.name: one for one in team}
    found = {agent.name: agent}
    for one in (open := [agent]):
        for reference in one.references():
            if reference.name in by_name and reference.name not in found:
                found[reference.name] = by_name[reference.name]
                open.append(by_name[reference.name])
    return list(found.values())


def require_prices(agents: Iterable[Agent], engine_for: Callable[[Agent], Engine]) -> None:
    """A limit on money needs the price of every model under it. Raises Mistake."""
    for agent in agents:
        engine = engine_for(agent)
        if isinstance(engine, ModelEngine) and not all(model.is_priced for model in engine.models):
            raise Mistake(
                f"{agent.name} thinks with {engine.name}, whose price is not known, so a budget in usd cannot be "
                "kept; limit tokens instead"
            )
