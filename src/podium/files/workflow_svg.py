"""Draw the graph of agents as a self-contained SVG, with a box for each node of the tree.

`workflow_graph` provides the edges and their labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from xml.sax.saxutils import escape

from .workflow_graph import (
    LEGEND,
    MAX_DRAWN_DEPTH,
    Agents,
    describe_agent_kind,
    find_terminal_agents,
    format_edge_label,
    iter_edges,
)

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
        yield box._replace(text=box.name + (" (missing)" if agent is None else again or describe_agent_kind(agent)))
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
    return escape("".join(sign if sign.isprintable() else "\ufffd" for sign in text), {'"': "&quot;"})
