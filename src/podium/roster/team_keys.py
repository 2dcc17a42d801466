"""The `team:` of an agent's file: who works with the lead, in which mode, and the mode's own keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

from ..values.agent import MODES_ELSEWHERE, Member, Mode, Team
from ..values.located_yaml import Fields, Items, Scalar
from .agent_field import Slot

MODES = ("broadcast", "sequential", "orchestrate", "reflect", "discuss", "collaborate")
TERMINATIONS = ("consensus", "max_rounds", "coordinator_decides")
TERMINATIONS_ELSEWHERE = {"maxRounds": "max_rounds", "coordinatorDecides": "coordinator_decides"}
MEMBER_KEYS = ("agent", "name", "role", "capabilities", "model", "prompt")


def choice(*words: str) -> Callable[[Slot], str]:
    """A reader for one of `words`."""
    return partial(Slot.choice, words=words)


def texts_by_key(slot: Slot) -> dict[str, str]:
    """A mapping of names to texts."""
    if not isinstance(slot.written, Fields):
        slot.wrong("a mapping of names to texts")
    return {key: item.text() for key, item in slot.entries()}


def commands(slot: Slot) -> list[str]:
    """A list of commands, or one."""
    return list(slot.texts())


OPTIONS: Mapping[str, Callable[[Slot], object]] = {
    "max_iterations": Slot.whole,
    "dispatch": choice("ask", "force"),
    "answer_directly": Slot.flag,
    "participation": choice("any", "all"),
    "checks": commands,
    "adjust": choice("ask", "auto"),
    "worker_timeout": Slot.amount,
    "collection_timeout": Slot.amount,
    "termination": partial(Slot.choice, words=TERMINATIONS, also=TERMINATIONS_ELSEWHERE),
    "max_rounds": Slot.whole,
    "round_timeout": Slot.amount,
    "worktrees": choice("shared", "team", "lead", "each"),
    "shared_context": Slot.text,
    "routing": Slot.text,
    "prompts": texts_by_key,
    "approve_plan": choice("lead", "person"),
    "decide_by": choice("lead", "person"),
    "adr": Slot.flag,
    "lockout": Slot.flag,
    "max_attempts": Slot.whole,
    "max_concurrent": Slot.whole,
}
KEYS = ("mode", "members", "evaluator", *OPTIONS)
SPELLINGS = {"terminationMode": "termination", "termination_mode": "termination"}


def team(slot: Slot) -> Team:
    """The team as written; without a mode it discusses when it says how a discussion ends, else it orchestrates."""
    fields = slot.fields(KEYS, also=SPELLINGS)
    options = {key: read(fields[key]) for key, read in OPTIONS.items() if key in fields}
    default = "discuss" if {"termination", "max_rounds"} & set(options) else "orchestrate"
    mode = fields["mode"].choice(MODES, also=MODES_ELSEWHERE) if "mode" in fields else default
    members = fields.get("members")
    return Team(
        mode=cast(Mode, mode),
        members=members_of(members) if members else (),
        evaluator=fields["evaluator"].name() if "evaluator" in fields else None,
        options=options,
    )


def members_of(slot: Slot) -> tuple[Member, ...]:
    """Names, or mappings that say what the team changes about an agent."""
    if isinstance(slot.written, Scalar):
        return tuple(Member(agent=name) for name in slot.names())
    if not isinstance(slot.written, Items):
        slot.wrong("a list of agents")
        return ()
    return tuple(member(item) for item in slot.items())


def member(slot: Slot) -> Member:
    """One member, by name or in full."""
    if not isinstance(slot.written, Fields):
        return Member(agent=slot.name())
    fields = slot.fields(MEMBER_KEYS)
    if "agent" not in fields:
        slot.error("this member names no agent; agent: NAME would be right")
    return Member(
        agent=fields["agent"].name() if "agent" in fields else "",
        name=fields["name"].sentence() if "name" in fields else "",
        role=fields["role"].sentence() if "role" in fields else "",
        capabilities=fields["capabilities"].words() if "capabilities" in fields else (),
        model=fields["model"].sentence() if "model" in fields else "",
        prompt=fields["prompt"].text() if "prompt" in fields else "",
    )
