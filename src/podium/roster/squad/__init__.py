"""Squads: teams that a repository keeps in `.squad` or `.ai-team`, read as data and written back with care."""

from __future__ import annotations

from .charter import Charter, parse_charter
from .folder import Found, discover, examine, whole
from .name import agent_name, derive_role, slug
from .roster import TeamFile, parse_team
from .routing import Noted, Ownership, Route, parse_decisions, parse_modules, parse_routing
from .save import delete, write
from .team import Member, Team

__all__ = [
    "Charter",
    "Found",
    "Member",
    "Noted",
    "Ownership",
    "Route",
    "Team",
    "TeamFile",
    "agent_name",
    "delete",
    "derive_role",
    "discover",
    "examine",
    "parse_charter",
    "parse_decisions",
    "parse_modules",
    "parse_routing",
    "parse_team",
    "slug",
    "whole",
    "write",
]
