"""Build the request that asks an agent to summarise a report.

The caller supplies the report as blocks of Markdown and runs the request. The agent only writes: it has no tools,
no team and no handoff.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import structs

from ..values.agent import Agent
from ..values.plain_text import format_count
from ..values.request import quote_lines
from .team_prompts import render_prompt
from .verdict import neutralise

MAX_CHARACTERS = 48_000
"""Maximum length of a report in a request, in characters; about 12,000 tokens."""
MIN_BLOCK_CHARACTERS = 400
"""The minimum length of a shortened block. If the text is still too long, whole blocks are omitted."""


class Excerpt(NamedTuple):
    """Text that contains a report or parts of it, and the number of characters that were left out."""

    text: str
    left_out: int


def as_writer(agent: Agent) -> Agent:
    """Return the agent with its prompt and model, but without tools, team, handoff or other agents."""
    return structs.replace(
        agent,
        tools=(),
        disallowed_tools=(),
        permissions=None,
        agents=(),
        handoff=None,
        router=None,
        advisors=None,
        team=None,
        input="text",
        output="text",
        isolation="shared",
        expects="",
    )


def make_synthesis_request(agent: Agent, report: Iterable[str], *, about: str) -> Excerpt:
    """Build the agent's request for a synthesis, from its team's own template if there is one."""
    fitting = fit_blocks([neutralise(block) for block in report])
    own = {} if agent.team is None else agent.team.options.get("prompts", {})
    omitted = f"{fitting.left_out:,} characters"
    cut = f" To shorten the report, {omitted} were left out; each omission is marked." if fitting.left_out else ""
    return Excerpt(
        render_prompt(own, "sum_up", about=about, report=quote_lines(fitting.text).lstrip("\n"), cut=cut),
        fitting.left_out,
    )


def fit_blocks(blocks: Sequence[str], most: int = MAX_CHARACTERS) -> Excerpt:
    """Join blocks into one text of at most about `most` characters. The longest blocks are cut first."""
    limit = max(_compute_block_limit([len(block) for block in blocks], most), MIN_BLOCK_CHARACTERS)
    kept: list[str] = []
    room, left_out = most, 0
    for block in blocks:
        if room <= 0:
            left_out += len(block)
            continue
        short = _truncate_block(block, limit)
        room -= len(block) - short.left_out
        left_out += short.left_out
        kept.append(short.text)
    if missing := len(blocks) - len(kept):
        kept.append(f"[… {format_count(missing, 'more block')} left out …]")
    return Excerpt("\n\n".join(kept), left_out)


def _compute_block_limit(sizes: list[int], most: int) -> int:
    """Return the maximum block length that lets all blocks together fit into `most` characters."""
    room = most
    for rank, size in enumerate(sorted(sizes)):
        share = room // (len(sizes) - rank)
        if size > share:
            return share
        room -= size
    return most


def _truncate_block(block: str, most: int) -> Excerpt:
    """Cut a block to about `most` characters, preserving its start and its last lines."""
    if len(block) <= most:
        return Excerpt(block, 0)
    beginning = block[: most * 2 // 3]
    # Start at a line boundary, because the start of a line shows whether it is quoted.
    end = block[len(block) - most // 3 :].partition("\n")[2]
    left_out = len(block) - len(beginning) - len(end)
    return Excerpt(f"{beginning}\n[… {left_out:,} characters left out …]\n{end}".rstrip("\n"), left_out)
