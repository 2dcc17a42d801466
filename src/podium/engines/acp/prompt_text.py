"""Write the prompts for coding agents, which get everything as text: the protocol has no system prompt or history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import json

from ...core.engine import PastTurn
from ...values.action import Action
from ...values.event import ActionRefused
from ...values.request import quote_lines

LONGEST_ARGUMENT = 200
NOT_PERMITTED = "[not permitted]"
"""The first words of the note that lists refused actions. The note is added at the end of a reply."""


def build_first_prompt(system: str, history: Sequence[PastTurn], prompt: str) -> str:
    """Return a session's first prompt: the agent's instructions, the conversation so far and the request `prompt`."""
    parts = [f"[your instructions]\n{system.strip()}"] if system.strip() else []
    if history:
        parts.append("[the conversation so far]\n" + "\n\n".join(map(_format_past_turn, history)))
    return "\n\n".join([*parts, f"[the request]\n{prompt}"]) if parts else prompt


def build_interrupted_prompt(prompt: str) -> str:
    """Return the prompt that makes an interrupted session continue its work on `prompt`."""
    return (
        "You were interrupted while you worked on the request below, and your session was restored. Check what is "
        f"already done, do not repeat it, and continue.\n\n[the request]\n{prompt}"
    )


def describe_refusals(refused: Iterable[ActionRefused]) -> str:
    """Return a prompt that tells an agent which of its actions were refused, and why."""
    lines = "\n".join(f"- {_describe_refusal(one)}" for one in refused)
    return (
        f"These actions were not permitted and were not performed:\n{lines}\nDo not try to achieve the same effect "
        "another way. Continue without them, or say what you need."
    )


def describe_last_calls(actions: Iterable[Action]) -> str:
    """Return a prompt that tells an agent which of Podium's tools it called before one of them ended its turn."""
    lines = "\n".join(f"- {action.tool} {_shorten(json.encode(action.arguments).decode())}" for action in actions)
    return f"Your last turn ended with these calls. They have already been executed; do not repeat them:\n{lines}"


def format_refusal_note(refused: Iterable[ActionRefused]) -> str:
    """Return the note at the end of a reply that tells its reader which of the agent's actions were refused."""
    return f"{NOT_PERMITTED} " + "; ".join(dict.fromkeys(map(_describe_refusal, refused)))


def _describe_refusal(refused: ActionRefused) -> str:
    action = refused.action
    about = next((str(action.arguments[key]) for key in ("path", "command", "url") if action.arguments.get(key)), "")
    short = _shorten(about)
    return f"{action.tool}{f' {short}' if short else ''}: {refused.reason}"


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST_ARGUMENT else f"{text[:LONGEST_ARGUMENT]}…"


def _format_past_turn(turn: PastTurn) -> str:
    reply = "" if turn.is_refused else f"\n\n[you replied]{quote_lines(turn.reply)}"
    return f"[you were asked]{quote_lines(turn.prompt)}{reply}"
