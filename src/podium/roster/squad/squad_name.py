"""The names and roles of a squad's workers."""

from __future__ import annotations

import re

MAX_ROLE_LENGTH = 60

_YOU_ARE = re.compile(r"you\s+are\s+(?:an|a|the)\s+", re.IGNORECASE)
_SENTENCE = re.compile(r".*?(?=[.!?](?:\s|$)|\n|\Z)", re.DOTALL)
_INFRASTRUCTURE = {"scribe", "ralph", "rai", "fact-checker", "coordinator"}
_STANDING_BY = re.compile(r"\b(?:silent|monitor|rai|verifier|inactive)\b", re.IGNORECASE)

ALUMNI = "_alumni"


def slug(name: str) -> str:
    """`name` in lower case, every run of other than ASCII letters and digits one hyphen."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def make_member_key(name: str) -> str:
    """What tells a member from others: its slug, or for a name without ASCII letters and digits the name itself."""
    return slug(name) or name.strip().casefold()


def agent_name(session: str, team: str) -> str:
    """The name of a session's agent in its team, whose own name it need not repeat."""
    prefix = re.match(rf"{re.escape(team.strip())}(?![^\W_])", session.strip(), re.IGNORECASE) if team.strip() else None
    return slug(session.strip()[prefix.end() :] if prefix else session) or "agent"


def derive_role(name: str, prompt: str) -> str:
    """What a worker does, from how its prompt begins."""
    text = prompt.strip().lstrip("#>*_ \t\n")
    if said := _YOU_ARE.match(text):
        text = text[said.end() :]
    sentence = _SENTENCE.match(text)
    role = " ".join(sentence[0].split()).strip("*_` ") if sentence else ""
    return role[:MAX_ROLE_LENGTH].rstrip() or name


def is_reserved(name: str) -> bool:
    """Whether the name is that of a squad's own machinery, which is no worker."""
    return slug(name) in _INFRASTRUCTURE or name.strip().casefold() == ALUMNI


def is_worker(name: str, status: str) -> bool:
    """Whether somebody on the roster can be given work."""
    return not is_reserved(name) and _STANDING_BY.search(status) is None
