"""Format text from agents for the output of a command: as rendered Markdown on a terminal, otherwise as plain text."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from typing import TextIO

from msgspec import structs

from ...values.event import SCHEMA
from ...values.request import Part, Result
from ...values.usage import FullUsage
from .text import escape_for_terminal


class ResultDocument(Result, frozen=True, kw_only=True):
    """A result as it is sent."""

    schema: int = SCHEMA
    usage: FullUsage

    @classmethod
    def of(cls, result: Result | None) -> ResultDocument | None:
        """Return a result as it is sent, or None if the run did not start."""
        return None if result is None else cls(**structs.asdict(result) | {"usage": FullUsage.of(result.usage)})


class AgentText(str):
    """A part of a command's output that is text from an agent and can be rendered as Markdown."""

    __slots__ = ()


def can_render(stream: TextIO | None, *, is_plain: bool = False) -> bool:
    """Return whether Markdown is rendered on a stream: only on a terminal that can show styles."""
    # The stream is None after `podium show RUN >&-`.
    return not is_plain and stream is not None and stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def format_agent_text(text: str, stream: TextIO | None, *, is_plain: bool = False) -> str:
    """Format an agent's text for printing to a stream. Control characters are always escaped."""
    if stream is None or not can_render(stream, is_plain=is_plain):
        return escape_for_terminal(text)
    # Imported here for start-up time: most output contains no text from an agent, or is not for a terminal.
    from .rendered_markdown import choose_markdown_symbols, render_markdown

    return render_markdown(
        text,
        width=shutil.get_terminal_size().columns,
        has_colours=not os.environ.get("NO_COLOR"),
        symbols=choose_markdown_symbols(stream.encoding),
    )


def format_output(lines: Iterable[str], stream: TextIO | None, *, is_plain: bool = False) -> str:
    """Join lines for printing to a stream. Only items of type `AgentText` can be rendered as Markdown."""
    return "\n".join(
        format_agent_text(line, stream, is_plain=is_plain) if isinstance(line, AgentText) else escape_for_terminal(line)
        for line in lines
    )


def format_parts(parts: tuple[Part, ...]) -> list[str]:
    """Return the partial results of a run that did not succeed, each labelled with its agent and outcome."""
    lines = []
    for part in parts:
        if part.text.strip():
            how = "finished" if part.outcome == "succeeded" else f"{part.outcome}, not finished"
            lines += [f"--- {part.agent} ({how})", AgentText(part.text.rstrip("\n"))]
    return ["No answer. Partial results:", *lines] if lines else []
