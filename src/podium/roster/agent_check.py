"""Whether agents fit together: every rule that holds between them, before anything runs.

Plain functions over agents by name; nothing here reads a file. What a single file may say is
checked where it is read. None of this recurses, so that a chain of thousands is only a long answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from ..values.agent import Advisors, Agent, Reference
from ..values.diagnostic import Finding
from ..values.located_yaml import quoted
from .agent_name import joined, there_are
from .schema_fit import misfits
from .workflow_graph import edges, terminal

DEEPEST = 16
MOST_CYCLES = 50
MOST_MISSING = 20

Agents = Mapping[str, Agent]


def findings(agents: Agents, *, known: Collection[str] = (), broken: Collection[str] = ()) -> tuple[Finding, ...]:
    """Everything that is wrong between `agents`.

    `known` are further names that exist, offered where one is missing; `broken` are those whose
    files have errors of their own, which are not missing.
    """
    found = [*missing(agents, known=known, broken=broken), *combinations(agents), *stages(agents)]
    if round_trips := tuple(cycles(agents)):
        return (*found, *round_trips)
    return (*found, *depths(agents))


def missing(agents: Agents, *, known: Collection[str] = (), broken: Collection[str] = ()) -> Iterator[Finding]:
    """An error for every reference to an agent that does not exist, up to a number for each agent."""
    exist = sorted({*agents, *known})
    for agent in agents.values():
        absent = [one for one in _once(agent.references()) if one.name not in agents and one.name not in broken]
        for reference in absent[:MOST_MISSING]:
            hint = there_are(reference.name, exist, but=agent.name)
            yield _error(agent, key_of(agent, reference), f"there is no agent {quoted(reference.name)}; {hint}")
        if len(absent) > MOST_MISSING:
            yield _error(agent, "", f"{len(absent) - MOST_MISSING} more of the agents named here do not exist")


def combinations(agents: Agents) -> Iterator[Finding]:
    """An error for every agent that wants two things which exclude each other, or lacks what it cannot do without."""
    for agent in agents.values():
        if agent.advisors is not None:
            yield from _advisors(agent.advisors, agent)
        if agent.router is not None:
            yield from _router(agent)
        if agent.team is not None:
            yield from _team(agent)


def _advisors(advisors: Advisors, agent: Agent) -> Iterator[Finding]:
    """What cannot be asked of advisors."""
    number, count = advisors.require, len(advisors.agents)
    if isinstance(number, int) and number > count:
        message = f"{number} of {count} advisors cannot succeed; a number up to {count} would be right"
        yield _error(agent, "advisors.require", message)


def _router(agent: Agent) -> Iterator[Finding]:
    """What a router may not be."""
    assert agent.router is not None
    named = agent.router.destinations
    if agent.team is not None:
        yield _error(agent, "router", "an agent is a router or leads a team, not both; take out router or team")
    if named and agent.agents and named != agent.agents:
        yield _error(agent, "router", "both router and agents list destinations; one list would be right")
    if not agent.destinations:
        yield _error(agent, "router", "a router needs at least one destination; list agents, or router.destinations")


def _team(agent: Agent) -> Iterator[Finding]:
    """What a team may not be."""
    assert agent.team is not None
    if agent.handoff is not None:
        message = (
            f"a team's lead gives the answer itself; take out handoff, or let an agent above hand to {agent.handoff}"
        )
        yield _error(agent, "handoff", message)
    if agent.team.evaluator == agent.name:
        yield _error(agent, "team.evaluator", "the lead cannot judge its own work; another agent would be right")
    if not agent.team.members:
        yield _error(agent, "team.members", "a team needs at least one member; members: [NAME] would be right")
    names = Counter(member.name or member.agent for member in agent.team.members)
    if twice := [name for name, count in names.items() if count > 1]:
        message = f"more than one member is called {joined(twice)}; give each a name of its own"
        yield _error(agent, "team.members", message)


def stages(agents: Agents) -> Iterator[Finding]:
    """An error for every handoff whose receiver needs what the sender may not give."""
    for agent in agents.values():
        receiver = agents.get(agent.handoff or "")
        if receiver is None:
            continue
        for sender in _performing(agents, agent):
            if misfit := next(misfits(sender.output, receiver.input), None):
                message = f"the output of {sender.name} does not fit the input of {receiver.name}: {misfit}"
                yield _error(agent, "handoff", message)


def _performing(agents: Agents, agent: Agent) -> list[Agent]:
    """Whose words are handed on when `agent` is done: its own, or those of whom it routes to."""
    if agent.router is None:
        return [agent]
    names = dict.fromkeys(name for start in agent.destinations for name in terminal(agents, start))
    return [agents[name] for name in names]


def cycles(agents: Agents) -> Iterator[Finding]:
    """An error for every way back to an agent that is already at work, with the whole path.

    Found by one walk along all edges, so that each path is told once; past a number of them the
    rest is left for when these are gone.
    """
    for number, path in enumerate(round_trips(agents)):
        if number == MOST_CYCLES:
            yield _error(agents[path[0]], "", f"there are more cycles than these {MOST_CYCLES}; break these first")
            return
        agent, following = agents[path[0]], path[1]
        key = next((key_of(agent, edge) for edge in edges(agent) if edge.name == following), "")
        message = f"an agent may not come back to itself: {' -> '.join(path)}; take one of these steps out"
        yield _error(agent, key, message)


def round_trips(agents: Agents) -> Iterator[list[str]]:
    """Every path that a walk finds to lead back to its beginning, which stands at both ends."""
    done: set[str] = set()
    for start in agents:
        if start in done:
            continue
        path, place = [start], {start: 0}
        ahead = [iter(_next_names(agents, start))]
        while ahead:
            for name in ahead[-1]:
                if name in place:
                    yield [*path[place[name] :], name]
                elif name not in done:
                    place[name] = len(path)
                    path.append(name)
                    ahead.append(iter(_next_names(agents, name)))
                    break
            else:
                ahead.pop()
                done.add(left := path.pop())
                del place[left]


def depths(agents: Agents) -> Iterator[Finding]:
    """An error for every agent, not needed by another, below which agents are nested too deep."""
    needed = {name for agent in agents.values() for name in _next_names(agents, agent.name)}
    levels = _levels(agents)
    for name, agent in agents.items():
        if levels[name] > DEEPEST and name not in needed:
            path = [name]
            while len(path) <= DEEPEST:
                path.append(max(_next_names(agents, path[-1]), key=levels.__getitem__))
            message = f"agents are nested {levels[name]} deep, and {DEEPEST} is the most: {' -> '.join(path)}"
            yield _error(agent, "", message)


def _levels(agents: Agents) -> dict[str, int]:
    """How many levels of agents begin at each, itself included."""
    levels: dict[str, int] = {}
    begun: set[str] = set()
    waiting = list(agents)
    while waiting:
        name = waiting[-1]
        below = [] if name in levels else _next_names(agents, name)
        if name not in begun:
            begun.add(name)
            waiting.extend(other for other in below if other not in begun)
            continue
        waiting.pop()
        if name not in levels:
            levels[name] = 1 + max((levels.get(other, 0) for other in below), default=0)
    return levels


def key_of(agent: Agent, reference: Reference) -> str:
    """The key of the agent's file under which a reference stands."""
    if reference.kind == "tool":
        return "agents" if reference.name in agent.agents else "tools"
    if reference.kind == "member" and agent.team is not None:
        is_member = any(member.agent == reference.name for member in agent.team.members)
        return "team.members" if is_member else "team.evaluator"
    if reference.kind == "route" and agent.router is not None:
        if reference.name in agent.agents:
            return "agents"
        return "router.destinations" if reference.name in agent.router.destinations else "router.fallback"
    return "advisors" if reference.kind == "advice" else "handoff"


def _next_names(agents: Agents, name: str) -> Sequence[str]:
    """Whom the agent needs, each once, of those that exist."""
    return list(dict.fromkeys(edge.name for edge in edges(agents[name]) if edge.name in agents))


def _once(references: Iterator[Reference]) -> Iterator[Reference]:
    """The references without those to an agent that was met before."""
    met: set[str] = set()
    for reference in references:
        if reference.name not in met:
            met.add(reference.name)
            yield reference


def _error(agent: Agent, key: str, message: str) -> Finding:
    return Finding(severity="error", path=agent.path or f"agent {agent.name}", key=key, message=message)
