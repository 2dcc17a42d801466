"""Build the graph of agents, find the agents that can give the final answer, and draw it as a text tree,
a flowchart or an SVG.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..values.agent import Agent, Reference

ROW, BOX, INDENT, MARGIN = 52, 36, 44, 16
LETTER = 8
"""Approximate width of a character."""
_STYLE = (
    "text{font:14px ui-monospace,monospace;fill:#1f2328}.edge{font-size:11px;fill:#59636e}"
    "rect{fill:#f6f8fa;stroke:#59636e}.final{stroke:#1a7f37;stroke-width:2}path{fill:none;stroke:#59636e}"
)


class Box(NamedTuple):
    """A box for an agent. `edge` is the label of the line from its parent, and `above` is the row of the parent."""

    name: str
    text: str
    edge: str
    depth: int
    above: int


Agents = Mapping[str, Agent]
MAX_DRAWN_DEPTH = 40
LEGEND = "* may give the final answer"


def iter_edges(agent: Agent) -> Iterator[Reference]:
    """Yield the agent's references to other agents, which are the edges of the graph.

    A lead's reference to itself is skipped if the lead takes part in its own discussion or is its own
    evaluator. `agent_check` rejects a lead that is its own evaluator.
    """
    for reference in agent.references():
        is_self = reference.name == agent.name
        if is_self and reference.kind == "member" and agent.team is not None:
            is_evaluator = reference.name == agent.team.evaluator
            if is_evaluator or agent.team.mode == "discuss":
                continue
        yield reference


def find_terminal_agents(agents: Agents, name: str) -> tuple[str, ...]:
    """Return the agents that can give the final answer for `name`: those at the end of its handoffs and routes."""
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


def format_edge_label(agent: Agent, edge: Reference) -> str:
    """Return the label of an edge in a drawing."""
    if edge.kind == "member" and agent.team is not None and edge.name == agent.team.evaluator:
        return "evaluator"
    if edge.kind == "route" and agent.router is not None and edge.name == agent.router.fallback:
        return "route, fallback"
    return edge.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLine:
    """A line of the tree that is still to be drawn."""

    name: str
    start: str = ""
    indent: str = ""
    depth: int = 0


def render_tree(agents: Agents, name: str) -> str:
    """Render the workflow of `name` as a text tree. Each agent is expanded only once."""
    owners = find_terminal_agents(agents, name)
    lines: list[str] = []
    drawn: set[str] = set()
    waiting = [TreeLine(name=name)]
    while waiting:
        tree_line = waiting.pop()
        agent = agents.get(tree_line.name)
        mark = " *" if tree_line.name in owners else ""
        if agent is None:
            lines.append(f"{tree_line.start}{tree_line.name} (missing)")
        elif tree_line.name in drawn:
            lines.append(f"{tree_line.start}{tree_line.name}{mark} (see above)")
        elif tree_line.depth == MAX_DRAWN_DEPTH:
            lines.append(f"{tree_line.start}{tree_line.name}{mark} ...")
        else:
            drawn.add(tree_line.name)
            lines.append(f"{tree_line.start}{tree_line.name}{mark}{_describe_agent_kind(agent)}")
            waiting.extend(reversed(_build_child_lines(agent, tree_line)))
    return "\n".join([*lines, "", LEGEND])


def _build_child_lines(agent: Agent, parent: TreeLine) -> list[TreeLine]:
    """Return the lines directly below `parent`."""
    following = list(iter_edges(agent))
    last = len(following) - 1
    return [
        TreeLine(
            name=edge.name,
            start=f"{parent.indent}{'└─' if place == last else '├─'} {format_edge_label(agent, edge)} → ",
            indent=parent.indent + ("   " if place == last else "│  "),
            depth=parent.depth + 1,
        )
        for place, edge in enumerate(following)
    ]


def _describe_agent_kind(agent: Agent) -> str:
    """Return the suffix that marks a team or a router, or an empty string."""
    if agent.team is not None:
        return f"  [team: {agent.team.mode}]"
    return "  [router]" if agent.router is not None else ""


def render_mermaid(agents: Agents, name: str) -> str:
    """Render the workflow of `name` as a Mermaid flowchart. Agents that can give the final answer have rounded ends."""
    owners = find_terminal_agents(agents, name)
    ids = {reached: f"n{place}" for place, reached in enumerate(find_reachable_agents(agents, name))}
    lines = ["flowchart TD", f"    %% round ends: {LEGEND.removeprefix('* ')}"]
    for reached, node in ids.items():
        agent = agents.get(reached)
        text = _escape_mermaid(reached + (_describe_agent_kind(agent) if agent else " (missing)"))
        lines.append(f'    {node}(["{text}"])' if reached in owners else f'    {node}["{text}"]')
    for reached, node in ids.items():
        if (agent := agents.get(reached)) is not None:
            lines += [
                f'    {node} -->|"{format_edge_label(agent, edge)}"| {ids[edge.name]}' for edge in iter_edges(agent)
            ]
    return "\n".join(lines)


def find_reachable_agents(agents: Agents, name: str) -> tuple[str, ...]:
    """Return the names of an agent and of all agents that it needs, directly or indirectly.

    The names of agents that do not exist are included.
    """
    found = {name: None}
    for current in (queue := [name]):
        for edge in iter_edges(agents[current]) if current in agents else ():
            if edge.name not in found:
                found[edge.name] = None
                queue.append(edge.name)
    return tuple(found)


_CODES = {'"': "#quot;", "#": "#35;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;", "\n": " "}


def _escape_mermaid(text: str) -> str:
    """Escape `text` for a Mermaid label."""
    return "".join(_CODES.get(sign, sign) for sign in text)


def render_svg(agents: Agents, name: str) -> str:
    """Render the workflow of the team `name` as an SVG. Agents that can give the final answer are rounded boxes."""
    owners, boxes = find_terminal_agents(agents, name), list(_layout_boxes(agents, name))
    drawn = [part for row, box in enumerate(boxes) for part in _draw_box(box, row, boxes, is_final=box.name in owners)]
    width = max(_box_x(box) + _box_width(box) for box in boxes) + MARGIN
    height = len(boxes) * ROW + 2 * MARGIN + 12
    legend = f'<text class="edge" x="{MARGIN}" y="{height - MARGIN}">rounded box: {LEGEND.removeprefix("* ")}</text>'
    size = f'width="{max(width, 280)}" height="{height}" viewBox="0 0 {max(width, 280)} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>{_escape_xml(name)}</title>'
    return "\n".join([head, f"<style>{_STYLE}</style>", *drawn, legend, "</svg>"])


def _layout_boxes(agents: Agents, name: str) -> Iterator[Box]:
    """Yield the boxes from top to bottom. Each agent is expanded only once."""
    met: set[str] = set()
    waiting = [Box(name, "", "", 0, -1)]
    row = 0
    while waiting:
        box = waiting.pop()
        agent = agents.get(box.name)
        again = " (see above)" if box.name in met else ""
        yield box._replace(text=box.name + (" (missing)" if agent is None else again or _describe_agent_kind(agent)))
        if agent is not None and not again and box.depth < MAX_DRAWN_DEPTH:
            below = [
                Box(edge.name, "", format_edge_label(agent, edge), box.depth + 1, row) for edge in iter_edges(agent)
            ]
            waiting.extend(reversed(below))
        met.add(box.name)
        row += 1


def _draw_box(box: Box, row: int, boxes: list[Box], *, is_final: bool) -> Iterator[str]:
    left, top = _box_x(box), MARGIN + row * ROW
    middle = top + BOX // 2
    if box.above >= 0:
        down = _box_x(boxes[box.above]) + INDENT // 2
        yield f'<path d="M{down} {MARGIN + box.above * ROW + BOX}V{middle}H{left}"/>'
        yield f'<text class="edge" x="{down + 4}" y="{top - 2}">{_escape_xml(box.edge)}</text>'
    round_ends = f' class="final" rx="{BOX // 2}"' if is_final else ""
    yield f'<rect x="{left}" y="{top}" width="{_box_width(box)}" height="{BOX}"{round_ends}/>'
    yield f'<text x="{left + 12}" y="{middle + 5}">{_escape_xml(box.text)}</text>'


def _box_x(box: Box) -> int:
    return MARGIN + box.depth * INDENT


def _box_width(box: Box) -> int:
    return max(len(box.text), 4) * LETTER + 28


def _escape_xml(text: str) -> str:
    from xml.sax.saxutils import escape  # imported here to keep start-up fast: it imports urllib

    return escape("".join(sign if sign.isprintable() else "\ufffd" for sign in text), {'"': "&quot;"})
