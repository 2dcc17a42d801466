"""Format the result of a run as JSON and as text."""

from __future__ import annotations

from msgspec import structs

from ...values.event import SCHEMA
from ...values.request import Part, Result
from ...values.usage import FullUsage
from .agent_text import AgentText


class ResultDocument(Result, frozen=True, kw_only=True):
    """A result as it is sent."""

    schema: int = SCHEMA
    usage: FullUsage

    @classmethod
    def of(cls, result: Result | None) -> ResultDocument | None:
        """Return a result as it is sent, or None if the run did not start."""
        return None if result is None else cls(**structs.asdict(result) | {"usage": FullUsage.of(result.usage)})


def format_parts(parts: tuple[Part, ...]) -> list[str]:
    """Return the partial results of a run that did not succeed, each labelled with its agent and outcome."""
    lines = []
    for part in parts:
        if part.text.strip():
            how = "finished" if part.outcome == "succeeded" else f"{part.outcome}, not finished"
            lines += [f"--- {part.agent} ({how})", AgentText(part.text.rstrip("\n"))]
    return ["No answer. Partial results:", *lines] if lines else []
