"""Read and write squads: teams that are stored in a repository's `.squad` or `.ai-team` folder."""

from __future__ import annotations

from .charter import Charter, parse_charter
from .routing import Noted, Ownership, Route, parse_decisions, parse_modules, parse_routing
from .squad_folder import Discovery, discover, discover_with_notices, with_full_texts
from .squad_save import delete, write
from .squad_team import Member, Team, agent_name, derive_role, slug
from .team_file import TeamFile, parse_team

__all__ = [
    "Charter",
    "Discovery",
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
    "discover_with_notices",
    "parse_charter",
    "parse_decisions",
    "parse_modules",
    "parse_routing",
    "parse_team",
    "slug",
    "with_full_texts",
    "write",
]
