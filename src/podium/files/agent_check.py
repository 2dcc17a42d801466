"""Check how agents refer to each other before a run starts.

The functions take a mapping of agents, keyed by name, and do not read files. The content of a single file is
checked when the file is read. No function recurses over agents, so a long chain of agents cannot exceed the
recursion limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from ..values.agent import Advisors, Agent, Reference
from ..values.errors import Diagnostic
from ..values.json import JsonSchema
from ..values.located_yaml import quote_text
from ..values.plain_text import join_words
from .agent_name import suggest_names
from .workflow_graph import find_terminal_agents, iter_edges

MAX_DEPTH = 16
MAX_CYCLES = 50
MAX_MISSING = 20
MAX_HINTS = 100
"""Existing names are suggested for this many missing agents; comparing names is slow."""

Agents = Mapping[str, Agent]


def check_agents(
    agents: Agents, *, known: Collection[str] = (), broken: Collection[str] = ()
) -> tuple[Diagnostic, ...]:
    """Return the problems in how `agents` refer to each other. The depth is checked only if there is no cycle.

    `known` contains the names of other existing agents, which can be suggested if a name is not found. `broken`
    contains the names of agents whose files have errors; these agents do not count as missing.
    """
    found = [
        *_check_references(agents, known=known, broken=broken),
        *_check_combinations(agents),
        *_check_handoffs(agents),
    ]
    if round_trips := tuple(_check_cycles(agents)):
        return (*found, *round_trips)
    return (*found, *_check_depth(agents))


def _check_references(
    agents: Agents, *, known: Collection[str] = (), broken: Collection[str] = ()
) -> Iterator[Diagnostic]:
    """Yield an error for each missing agent that an agent refers to.

    After MAX_MISSING such errors for one agent, one more error says how many other agents are missing.
    """
    exist = sorted({*agents, *known})
    hints = 0
    for agent in agents.values():
        absent = [
            one
            for one in _deduplicate_references(agent.references())
            if one.name not in agents and one.name not in broken
        ]
        for reference in absent[:MAX_MISSING]:
            hint = f"; {suggest_names(reference.name, exist, but=agent.name)}" if hints < MAX_HINTS else ""
            hints += 1
            key = _find_reference_key(agent, reference)
            yield _make_error(agent, key, f"agent {quote_text(reference.name)} not found{hint}")
        if len(absent) > MAX_MISSING:
            yield _make_error(agent, "", f"{len(absent) - MAX_MISSING} more agents listed here were not found")


def _check_combinations(agents: Agents) -> Iterator[Diagnostic]:
    """Yield an error for each conflict between the keys of an agent, and for each required key that is missing."""
    for agent in agents.values():
        if agent.advisors is not None:
            yield from _check_advisors(agent.advisors, agent)
        if agent.router is not None:
            yield from _check_router(agent)
        if agent.team is not None:
            yield from _check_team(agent)


def _check_advisors(advisors: Advisors, agent: Agent) -> Iterator[Diagnostic]:
    """Yield an error if the agent requires more advisors to succeed than it has."""
    number, count = advisors.require, len(advisors.agents)
    if isinstance(number, int) and number > count:
        message = f"requires {number} of {count} advisors to succeed; set require to {count} or less"
        yield _make_error(agent, "advisors.require", message)


def _check_router(agent: Agent) -> Iterator[Diagnostic]:
    """Yield an error for each invalid setting of a router."""
    assert agent.router is not None
    named = agent.router.destinations
    if agent.team is not None:
        yield _make_error(agent, "router", "an agent cannot be a router and lead a team; remove router or team")
    if named and agent.agents and named != agent.agents:
        yield _make_error(agent, "router", "both router and agents list destinations; remove one of the lists")
    if not agent.destinations:
        yield _make_error(agent, "router", "a router needs at least one destination; set agents or router.destinations")


def _check_team(agent: Agent) -> Iterator[Diagnostic]:
    """Yield an error for each invalid setting of a team."""
    assert agent.team is not None
    if agent.handoff is not None:
        message = (
            f"a team lead cannot hand off, because it gives the team's answer; remove handoff, "
            f"or let an agent that calls this team hand off to {agent.handoff}"
        )
        yield _make_error(agent, "handoff", message)
    if agent.team.evaluator == agent.name:
        yield _make_error(agent, "team.evaluator", "the lead cannot evaluate its own work; specify another agent")
    if not agent.team.members:
        yield _make_error(agent, "team.members", "a team needs at least one member; add members: [NAME]")
    names = Counter(member.name or member.agent for member in agent.team.members)
    if twice := [name for name, count in names.items() if count > 1]:
        message = f"duplicate member names: {join_words(twice)}; give each member a unique name"
        yield _make_error(agent, "team.members", message)


def _check_handoffs(agents: Agents) -> Iterator[Diagnostic]:
    """Yield an error for each handoff where the output might not match the input of the receiving agent."""
    for agent in agents.values():
        receiver = agents.get(agent.handoff or "")
        if receiver is None or not isinstance(receiver.input, dict):
            continue
        for sender in _find_output_agents(agents, agent):
            if misfit := next(find_schema_mismatches(sender.output, receiver.input), None):
                message = f"the output of {sender.name} does not match the input of {receiver.name}: {misfit}"
                yield _make_error(agent, "handoff", message)


def _find_output_agents(agents: Agents, agent: Agent) -> list[Agent]:
    """Return the agents whose output `agent` can hand off: itself or, for a router, the agents that answer for it."""
    if agent.router is None:
        return [agent]
    names = dict.fromkeys(name for start in agent.destinations for name in find_terminal_agents(agents, start))
    return [agents[name] for name in names]


def _check_cycles(agents: Agents) -> Iterator[Diagnostic]:
    """Yield an error for each cycle that `_find_cycles` finds, with the whole path.

    After MAX_CYCLES cycles, one more error says that there are others.
    """
    for number, path in enumerate(_find_cycles(agents)):
        if number == MAX_CYCLES:
            yield _make_error(agents[path[0]], "", f"more than {MAX_CYCLES} cycles; break the reported ones first")
            return
        agent, following = agents[path[0]], path[1]
        key = next((_find_reference_key(agent, edge) for edge in iter_edges(agent) if edge.name == following), "")
        message = f"agents form a cycle: {' -> '.join(path)}; remove one of these references"
        yield _make_error(agent, key, message)


def _find_cycles(agents: Agents) -> Iterator[list[str]]:
    """Yield cycles, each as a path that starts and ends with the same agent.

    Each edge is followed only once, so if several cycles share edges, some of them may not be found.
    """
    done: set[str] = set()
    for start in agents:
        if start in done:
            continue
        path, place = [start], {start: 0}
        ahead = [iter(_list_dependencies(agents, start))]
        while ahead:
            for name in ahead[-1]:
                if name in place:
                    yield [*path[place[name] :], name]
                elif name not in done:
                    place[name] = len(path)
                    path.append(name)
                    ahead.append(iter(_list_dependencies(agents, name)))
                    break
            else:
                ahead.pop()
                done.add(left := path.pop())
                del place[left]


def _check_depth(agents: Agents) -> Iterator[Diagnostic]:
    """Yield an error for each top-level agent whose tree of agents is too deep."""
    needed = {name for agent in agents.values() for name in _list_dependencies(agents, agent.name)}
    levels = _count_levels(agents)
    for name, agent in agents.items():
        if levels[name] > MAX_DEPTH and name not in needed:
            path = [name]
            while len(path) <= MAX_DEPTH:
                path.append(max(_list_dependencies(agents, path[-1]), key=levels.__getitem__))
            shown = " -> ".join(path)
            message = f"agents are nested {levels[name]} levels deep, but the maximum is {MAX_DEPTH}: {shown}"
            yield _make_error(agent, "", message)


def _count_levels(agents: Agents) -> dict[str, int]:
    """Return how deep each agent's tree of required agents is. An agent that needs no other agents has depth 1."""
    levels: dict[str, int] = {}
    begun: set[str] = set()
    waiting = list(agents)
    while waiting:
        name = waiting[-1]
        below = [] if name in levels else _list_dependencies(agents, name)
        if name not in begun:
            begun.add(name)
            waiting.extend(other for other in below if other not in begun)
            continue
        waiting.pop()
        if name not in levels:
            levels[name] = 1 + max((levels.get(other, 0) for other in below), default=0)
    return levels


def _find_reference_key(agent: Agent, reference: Reference) -> str:
    """Return the key in the agent's file that contains a reference."""
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


def _list_dependencies(agents: Agents, name: str) -> Sequence[str]:
    """Return the names of the agents that an agent refers to directly, without duplicates or missing agents."""
    return list(dict.fromkeys(edge.name for edge in iter_edges(agents[name]) if edge.name in agents))


def _deduplicate_references(references: Iterator[Reference]) -> Iterator[Reference]:
    """Yield the first reference to each agent."""
    met: set[str] = set()
    for reference in references:
        if reference.name not in met:
            met.add(reference.name)
            yield reference


def _make_error(agent: Agent, key: str, message: str) -> Diagnostic:
    return Diagnostic(severity="error", path=agent.path or f"agent {agent.name}", key=key, message=message)


UNSUPPORTED_KEYWORDS = (
    "$ref",
    "$dynamicRef",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "patternProperties",
    "const",
    "enum",
)
MAX_SCHEMA_DEPTH = 16


def find_schema_mismatches(output: object, needed: object, *, place: str = "", depth: int = 0) -> Iterator[str]:
    """Yield a message for each part of the schema `output` that does not satisfy the schema `needed`.

    Parts that use UNSUPPORTED_KEYWORDS, or that are nested too deeply, are not compared.
    """
    if not (isinstance(output, dict) and isinstance(needed, dict)) or depth > MAX_SCHEMA_DEPTH:
        return
    if any(word in schema for schema in (output, needed) for word in UNSUPPORTED_KEYWORDS):
        return
    given, wanted = _list_types(output), _list_types(needed)
    if given and wanted and not given <= wanted:
        what = f"the property {quote_text(place)}" if place else "the output"
        yield f"{what} is {' or '.join(sorted(given))}, but must be {' or '.join(sorted(wanted))}"
        return
    yield from _compare_properties(output, needed, place=place, depth=depth)
    yield from find_schema_mismatches(output.get("items"), needed.get("items"), place=f"{place}[]", depth=depth + 1)


def _compare_properties(output: JsonSchema, needed: JsonSchema, *, place: str, depth: int) -> Iterator[str]:
    """Yield a sentence for each required property that may be missing, then for each property that does not match."""
    given, wanted = _as_mapping(output.get("properties")), _as_mapping(needed.get("properties"))
    sure = _as_names(output.get("required"))
    for name in _as_names(needed.get("required")):
        path = f"{place}.{name}" if place else name
        if name not in given and name not in sure:
            yield f"the input requires the property {quote_text(path)}, but the output schema does not declare it"
        elif name not in sure:
            yield (
                f"the input requires the property {quote_text(path)}, but it is optional in the output schema; "
                "make it required in that schema"
            )
    for name, schema in wanted.items():
        path = f"{place}.{name}" if place else name
        yield from find_schema_mismatches(given.get(name), schema, place=path, depth=depth + 1)


def _list_types(schema: JsonSchema) -> frozenset[str]:
    """Return the types that a schema allows, or an empty set if it has no `type`. `number` includes `integer`."""
    named = schema.get("type")
    found = {named} if isinstance(named, str) else set(_as_names(named))
    if "number" in found:
        found.add("integer")
    return frozenset(found)


def _as_mapping(value: object) -> JsonSchema:
    return value if isinstance(value, dict) else {}


def _as_names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list | tuple) else []
