"""Check the request, limits and agents of a run before it starts or resumes, and apply its options to the agents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from pathlib import Path

from msgspec import structs

from ...core.engine import Engine
from ...engines.model.tool_loop import ModelEngine
from ...values.agent import MAX_LIMIT, Agent, Budget, Team
from ...values.errors import Mistake, RunOver
from ...values.event import DecisionProposed, Entry, RunEnded
from ...values.team_modes import MODES, Mode, TeamOptions

MAX_REQUEST_BYTES = 2**20


def validate_request(request: str) -> None:
    """Raise Mistake if a request is empty, not valid text or too long."""
    if not request.strip():
        raise Mistake("the request is empty; describe what the agent should do")
    try:
        size = len(request.encode())
    except UnicodeEncodeError as error:
        position = error.start + 1
        raise Mistake(f"the request is not valid text: character {position} cannot be encoded as UTF-8") from None
    if size > MAX_REQUEST_BYTES:
        raise Mistake(f"the request has {size:,} bytes; the maximum is {MAX_REQUEST_BYTES:,}; refer to a file instead")


def validate_budget(budget: Budget) -> None:
    """Raise Mistake if a limit is not valid."""
    for name in budget.__struct_fields__:
        limit = getattr(budget, name)
        # A budget of 0 changed files means that the agent may only read.
        may_be_zero = name == "files_changed"
        if limit is not None and not (isfinite(limit) and (limit > 0 or (may_be_zero and limit == 0))):
            least = "of at least zero" if may_be_zero else "above zero"
            raise Mistake(f"budget {name} must be a finite number {least}, got {limit}")
        if limit is not None and limit > MAX_LIMIT:
            raise Mistake(f"budget {name} must be at most {MAX_LIMIT}, got {limit}; omit it for no limit")


def require_repository(team: Iterable[Agent], repo: Path | None) -> None:
    """Raise Mistake if a team has checks or separate worktrees, but there is no git repository."""
    for agent in team:
        options = {} if agent.team is None else agent.team.options
        if options.get("checks"):
            what = f"{agent.name} has checks, which run on a clean checkout of the work"
        elif options.get("worktrees", "shared") != "shared":
            option = f"worktrees: {options['worktrees']}"
            what = f"{agent.name} has the option {option}, which requires checkouts of the repository"
        else:
            continue
        if not _is_in_git(repo):
            raise Mistake(f"{what}, but {repo or 'this run'} is not in a git repository; create one with git init")


def _is_in_git(repo: Path | None) -> bool:
    return repo is not None and any((folder / ".git").exists() for folder in (repo, *repo.parents))


def apply_run_mode(agent: Agent, mode: Mode | None, max_iterations: int | None) -> Agent:
    """Return a run's first agent with the mode for this run. Raise Mistake if the agent does not support the mode."""
    team = agent.team
    if team is None and mode != "reflect":
        what = "has no team" if mode is None else f"has no team for {mode} mode"
        raise Mistake(
            f"{agent.name} {what}; an agent without a team supports only reflect mode: "
            'use --reflect, or mode="reflect" in Python'
        )
    if team is None and (agent.router is not None or agent.handoff is not None):
        raise Mistake(
            f"{agent.name} cannot reflect, because another agent gives its final answer; "
            "run that agent in reflect mode instead"
        )
    if max_iterations is not None and max_iterations < 1:
        raise Mistake(f"max_iterations must be at least 1, got {max_iterations}")
    team = team or Team(mode="reflect", members=())
    if max_iterations is not None and (mode or team.mode) != "reflect":
        what = f"works in {mode or team.mode} mode, which has no iterations"
        raise Mistake(f"{agent.name} {what}; max_iterations requires reflect mode")
    most = {} if max_iterations is None else {"max_iterations": max_iterations}
    return structs.replace(agent, team=structs.replace(team, mode=mode or team.mode, options=team.options | most))


def add_constraints(agent: Agent, constraints: Iterable[str]) -> Agent:
    """Return a run's first agent with constraints added to its team. Raise Mistake if they would have no effect."""
    team = agent.team
    if team is None or team.mode != "collaborate":
        what = "has no team" if team is None else f"leads a team in {team.mode} mode"
        raise Mistake(f"{agent.name} {what}, so constraints have no effect; put them in the request instead")
    if not all(text.strip() for text in constraints):
        raise Mistake("a constraint is empty; describe a rule that the team must follow")
    both = [*team.options.get("constraints", ()), *constraints]
    return structs.replace(agent, team=structs.replace(team, options=team.options | {"constraints": both}))


def without_traces(agent: Agent) -> Agent:
    """Return the agent without its hooks, and without options that make a run create worktrees, branches or records."""
    team = agent.team
    if team is not None:
        kept = {key: value for key, value in team.options.items() if key not in ("worktrees", "adr", "choose", "keep")}
        team = structs.replace(team, options=kept)
    other = {key: value for key, value in agent.other.items() if key != "hooks"}
    return structs.replace(agent, isolation="shared", team=team, other=other)


def apply_team_defaults(agent: Agent) -> Agent:
    """Return an agent for a new run, with the current defaults set explicitly in its team's options.

    In the stored teams of old runs, unset options have the defaults of `TeamOptions`, so old runs resume unchanged.
    """
    if agent.team is None:
        return agent
    defaults = MODES.get(agent.team.mode, TeamOptions).choose_new_defaults(agent.team.options)
    if not defaults.keys() - agent.team.options.keys():
        return agent
    return structs.replace(agent, team=structs.replace(agent.team, options=defaults | agent.team.options))


def validate_decision(decision: DecisionProposed, team: Sequence[Agent]) -> None:
    """Raise Mistake if the decision is invalid. The voters are the members of the first agent's team, if it has one."""
    # Imported here to keep start-up fast: few runs make decisions.
    from ...core.decision_state import find_proposal_problem
    from ...patterns.member_tasks import list_members

    lead = team[0]
    voters = () if lead.team is None else tuple(list_members(lead, {agent.name: agent for agent in team}))
    if problem := find_proposal_problem(structs.replace(decision, eligible=voters)):
        raise Mistake(problem)


def require_not_ended(run: str, last: Entry) -> None:
    """Raise RunOver if a run has ended."""
    if isinstance(last.event, RunEnded):
        failure = last.event.failure
        is_spent = failure is not None and failure.kind == "budget"
        raise RunOver(
            f"run {run} has ended ({last.event.outcome}) and cannot be changed; start a new run with podium run"
            + (" and a higher --budget" if is_spent else "")
        )


def collect_reachable_agents(agent: Agent, team: Iterable[Agent]) -> list[Agent]:
    """Return an agent and all agents that can work for it."""
    by_name = {one.name: one for one in team}
    found = {agent.name: agent}
    for one in (open := [agent]):
        for reference in one.references():
            if reference.name in by_name and reference.name not in found:
                found[reference.name] = by_name[reference.name]
                open.append(by_name[reference.name])
    return list(found.values())


def require_prices(agents: Iterable[Agent], engine_for: Callable[[Agent], Engine]) -> None:
    """Raise Mistake if the price of any agent's model is unknown, because a cost limit could not be enforced."""
    for agent in agents:
        engine = engine_for(agent)
        is_priced = getattr(engine, "is_priced", True)  # a coding agent's engine is loaded only if it is used
        if not is_priced or (isinstance(engine, ModelEngine) and not engine.has_prices):
            raise Mistake(
                f"{agent.name} uses {engine.name}, whose price is not known, so a budget in usd cannot be "
                "enforced; limit tokens instead"
            )
