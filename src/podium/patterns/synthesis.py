"""A synthesis: one agent reads a report and says what it comes to.

It finds the words and what fits into them. The report comes as blocks of Markdown from whoever made it, and
the agent only writes: it has no tools, no team and nobody to hand on to. Running it is for others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import structs

from ..values.agent import Agent
from ..values.request import quote_lines
from .team_prompts import render_prompt
from .verdict import neutralise

MAX_CHARACTERS = 48_000
"""Characters of a report that an agent is given: about 12,000 tokens."""
MIN_BLOCK_CHARACTERS = 400
"""Characters that are left of a block before whole blocks are left out."""


class Excerpt(NamedTuple):
    """As much of a text as fits, and how many characters of it are left out."""

    text: str
    left_out: int


def as_writer(agent: Agent) -> Agent:
    """The agent with nothing to act with and nobody to ask: who it is, and what it thinks with."""
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
    )


def make_synthesis_request(agent: Agent, report: Iterable[str], *, about: str) -> Excerpt:
    """The request for a synthesis by this agent; the words are its team's own, where that has some."""
    fitting = fit_blocks([neutralise(block) for block in report])
    own = {} if agent.team is None else agent.team.options.get("prompts", {})
    cut = f" It is long: {fitting.left_out:,} characters are left out, where it says so." if fitting.left_out else ""
    return Excerpt(
        render_prompt(own, "sum_up", about=about, report=quote_lines(fitting.text).lstrip("\n"), cut=cut),
        fitting.left_out,
    )


def fit_blocks(blocks: Sequence[str], most: int = MAX_CHARACTERS) -> Excerpt:
    """Blocks as one text of about `most` characters. The longest are cut first, and short ones stay whole."""
    limit = max(_compute_block_limit([len(block) for block in blocks], most), MIN_BLOCK_CHARACTERS)
    kept: list[str] = []
    room, left_out = most, 0
    for block in blocks:
        if room <= 0:
            left_out += len(block)
            continue
        short = truncate_block(block, limit)
        room -= len(block) - short.left_out
        left_out += short.left_out
        kept.append(short.text)
    if missing := len(blocks) - len(kept):
        kept.append(f"[… {missing:,} more blocks left out …]")
    return Excerpt("\n\n".join(kept), left_out)


def _compute_block_limit(sizes: list[int], most: int) -> int:
    """How long a block may be, so that all of them together are no longer than `most`."""
    room = most
    for rank, size in enumerate(sorted(sizes)):
        share = room // (len(sizes) - rank)
        if size > share:
            return share
        room -= size
    return most


def truncate_block(block: str, most: int) -> Excerpt:
    """The beginning and the last lines of a block that is too long."""
    if len(block) <= most:
        return Excerpt(block, 0)
    beginning = block[: most * 2 // 3]
    # From the beginning of a line on, since that says whether a line is quoted.
    end = block[len(block) - most // 3 :].partition("\n")[2]
    left_out = len(block) - len(beginning) - len(end)
    return Excerpt(f"{beginning}\n[… {left_out:,} characters left out …]\n{end}".rstrip("\n"), left_out)
