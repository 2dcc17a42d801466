"""The workflow that agents imply: who needs whom, who may give the final answer, and how to draw it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..values.agent import Agent, Reference

Agents = Mapping[str, Agent]

DEEPEST_DRAWN = 40
LEGEND = "* may give the final answer"


def edges(agent: Agent) -> Iterator[Reference]:
    """The agents that run inside or after this one.

    A lead that is listed among its own members, as a discussion's coordinator may be, runs no
    second time; neither does a lead named as its own evaluator, which is refused elsewhere.
    """
    for reference in agent.references():
        is_self = reference.name == agent.name
        if is_self and reference.kind == "member" and agent.team is not None:
            is_evaluator = reference.name == agent.team.evaluator
            if is_evaluator or agent.team.mode == "discuss":
                continue
        yield reference


def terminal(agents: Agents, name: str) -> tuple[str, ...]:
    """Who may own the final answer when `name` is called: the end of its handoffs, or of where it routes to."""
    found: dict[str, None] = {}
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        agent = agents.get(current)
        if agent is None or current in seen:
            continue
        seen.add(current)
        if agent.handoff is not None:
            waiting.append(agent.handoff)
        elif agent.router is not None:
            waiting.extend(reversed(agent.destinations))
        else:
            found[current] = None
    return tuple(found)


def label(agent: Agent, edge: Reference) -> str:
    """What an edge is called in a drawing."""
    if edge.kind == "member" and agent.team is not None and edge.name == agent.team.evaluator:
        return "evaluator"
    if edge.kind == "route" and agent.router is not None and edge.name == agent.router.fallback:
        return "route, fallback"
    return edge.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One line of a tree that is still to be drawn."""

    name: str
    start: str = ""
    indent: str = ""
    depth: int = 0


def tree(agents: Agents, name: str) -> str:
    """The workflow of `name` as text; an agent that appears again is only named."""
    owners = terminal(agents, name)
    lines: list[str] = []
    drawn: set[str] = set()
    waiting = [Branch(name=name)]
    while waiting:
        branch = waiting.pop()
        agent = agents.get(branch.name)
        mark = " *" if branch.name in owners else ""
        if agent is None:
            lines.append(f"{branch.start}{branch.name} (missing)")
        elif branch.name in drawn:
            lines.append(f"{branch.start}{branch.name}{mark} (see above)")
        elif branch.depth == DEEPEST_DRAWN:
            lines.append(f"{branch.start}{branch.name}{mark} ...")
        else:
            drawn.add(branch.name)
            lines.append(f"{branch.start}{branch.name}{mark}{nature(agent)}")
            waiting.extend(reversed(_branches(agent, branch)))
    return "\n".join([*lines, "", LEGEND])


def _branches(agent: Agent, branch: Branch) -> list[Branch]:
    """The lines directly below `branch`."""
    following = list(edges(agent))
    last = len(following) - 1
    return [
        Branch(
            name=edge.name,
            start=f"{branch.indent}{'└─' if place == last else '├─'} {label(agent, edge)} → ",
            indent=branch.indent + ("   " if place == last else "│  "),
            depth=branch.depth + 1,
        )
        for place, edge in enumerate(following)
    ]


def nature(agent: Agent) -> str:
    """What an agent is besides an agent."""
    if agent.team is not None:
        return f"  [team: {agent.team.mode}]"
    return "  [router]" if agent.router is not None else ""


def mermaid(agents: Agents, name: str) -> str:
    """The workflow of `name` as a Mermaid flowchart; who may give the final answer has round ends."""
    owners = terminal(agents, name)
    ids = {reached: f"n{place}" for place, reached in enumerate(reachable(agents, name))}
    lines = ["flowchart TD", f"    %% round ends: {LEGEND.removeprefix('* ')}"]
    for reached, node in ids.items():
        agent = agents.get(reached)
        text = _escaped(reached + (nature(agent) if agent else " (missing)"))
        lines.append(f'    {node}(["{text}"])' if reached in owners else f'    {node}["{text}"]')
    for reached, node in ids.items():
        if (agent := agents.get(reached)) is not None:
            lines += [f'    {node} -->|"{label(agent, edge)}"| {ids[edge.name]}' for edge in edges(agent)]
    return "\n".join(lines)


def reachable(agents: Agents, name: str) -> tuple[str, ...]:
    """`name` and everyone it needs, directly or through others, nearest first; missing ones too."""
    found = {name: None}
    for current in (queue := [name]):
        for edge in edges(agents[current]) if current in agents else ():
            if edge.name not in found:
                found[edge.name] = None
                queue.append(edge.name)
    return tuple(found)


_CODES = {'"': "#quot;", "#": "#35;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;", "\n": " "}


def _escaped(text: str) -> str:
    """`text` as a Mermaid label, in which nothing has a meaning."""
    return "".join(_CODES.get(sign, sign) for sign in text)
