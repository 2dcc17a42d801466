"""Derive the names and roles of a squad's workers, and distinguish workers from other members."""

from __future__ import annotations

import re

MAX_ROLE_LENGTH = 60

_YOU_ARE = re.compile(r"you\s+are\s+(?:an|a|the)\s+", re.IGNORECASE)
_SENTENCE = re.compile(r".*?(?=[.!?](?:\s|$)|\n|\Z)", re.DOTALL)
_INFRASTRUCTURE = {"scribe", "ralph", "rai", "fact-checker", "coordinator"}
_STANDING_BY = re.compile(r"\b(?:silent|monitor|rai|verifier|inactive|human|coding agent)\b", re.IGNORECASE)

ALUMNI = "_alumni"


def slug(name: str) -> str:
    """Return `name` in lower case, with everything except ASCII letters and digits replaced by hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def make_member_key(name: str) -> str:
    """Return the key that identifies a member: the slug of its name, or the name if the slug would be empty."""
    return slug(name) or name.strip().casefold()


def agent_name(session: str, team: str) -> str:
    """Return the agent name for a session. If the session's name starts with the team's name, remove this prefix."""
    prefix = re.match(rf"{re.escape(team.strip())}(?![^\W_])", session.strip(), re.IGNORECASE) if team.strip() else None
    return slug(session.strip()[prefix.end() :] if prefix else session) or "agent"


def derive_role(name: str, prompt: str | None) -> str:
    """Derive a worker's role from the start of its prompt, or from its name if it has no prompt."""
    text = (prompt or "").strip().lstrip("#>*_ \t\n")
    if said := _YOU_ARE.match(text):
        text = text[said.end() :]
    sentence = _SENTENCE.match(text)
    role = " ".join(sentence[0].split()).strip("*_` ") if sentence else ""
    return (role or " ".join(re.split(r"[\s_-]+", name)).strip())[:MAX_ROLE_LENGTH].rstrip() or name


def is_reserved(name: str) -> bool:
    """Return whether the name belongs to the squad's infrastructure and not to a worker."""
    return slug(name) in _INFRASTRUCTURE or name.strip().casefold() == ALUMNI


def is_worker(name: str, status: str) -> bool:
    """Return whether a listed member is a worker.

    People, accounts such as `@copilot`, inactive members and the squad's infrastructure are not.
    """
    return not is_reserved(name) and not name.startswith("@") and _STANDING_BY.search(status) is None
