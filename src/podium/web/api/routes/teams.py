"""Routes for agents and teams: list agents and teams, show how agents are connected, and save a new team."""

from __future__ import annotations

from litestar import get, post
from litestar.exceptions import ClientException
from litestar.params import FromPath, JSONBody

from ....files.agent_name import to_agent_name
from ....files.discovery import Roster, load_roster
from ....files.new_team import NewTeam, build_new_team
from ....files.presets import Preset
from ....files.roster_listing import (
    AgentGraph,
    AgentList,
    TeamDetails,
    TeamItem,
    build_graph,
    describe_team,
    list_agents,
    list_teams,
)
from ....files.team_definition import describe_save_losses, find_overridden_builtin, find_team, save_team
from ....values.agent import Source
from ....values.column import Document
from ..route_parameters import RepoFolder, Server
from ..scopes import ApiRequest, get_token, may_approve, may_read


class TeamToSave(NewTeam, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A team to save as one of the user's presets and, unless `mine` is set, also as the repository's squad.

    If another team would be replaced or settings would be lost, the team is saved only if `agreed` is set.
    """

    mine: bool = False
    agreed: bool = False
    repo: str = ""


class TeamList(Document, frozen=True, kw_only=True):
    """The teams that are available in a repository."""

    teams: list[TeamItem]


class SavedTeam(Document, frozen=True, kw_only=True):
    """The name under which a saved team can be run, and the built-in team that it overrides, if any."""

    name: str
    overrides: str


@get("/api/agents", guards=[may_read], sync_to_thread=True)
def read_agents(request: ApiRequest, server: Server, repo: RepoFolder = "") -> AgentList:
    """List the agents that are available in a repository."""
    return list_agents(_load_roster(request, server, repo))


@get("/api/teams", guards=[may_read], sync_to_thread=True)
def read_teams(request: ApiRequest, server: Server, repo: RepoFolder = "") -> TeamList:
    """List the teams that are available in a repository."""
    return TeamList(teams=list(list_teams(_load_roster(request, server, repo))))


@get("/api/teams/{name:str}", guards=[may_read], sync_to_thread=True)
def read_team(name: FromPath[str], request: ApiRequest, server: Server, repo: RepoFolder = "") -> TeamDetails:
    """Return a team: its mode, its options and its members."""
    place, home = server.find_place(repo, by=get_token(request)), server.settings.home
    return describe_team(find_team(name, load_roster(place, home), repo=place, home=home))


@get("/api/agents/{name:str}/graph", guards=[may_read], sync_to_thread=True)
def read_graph(name: FromPath[str], request: ApiRequest, server: Server, repo: RepoFolder = "") -> AgentGraph:
    """Return an agent, the agents that it needs, and how they are connected."""
    team = _load_roster(request, server, repo).resolve_team(name)
    return build_graph({one.name: one for one in team}, team[0].name)


@post("/api/teams", guards=[may_approve], sync_to_thread=True)
def create_team(data: JSONBody[TeamToSave], request: ApiRequest, server: Server) -> SavedTeam:
    """Save a new team of existing agents, among the person's own presets. This changes what later runs do.

    If another team would be replaced or settings would be lost, and `agreed` is not set, reply 409 with a question.
    """
    place, home = server.find_place(data.repo, by=get_token(request)), server.settings.home
    preset = build_new_team(data, load_roster(place, home))
    target = None if data.mine else place
    losses = describe_save_losses(preset, repo=target, home=home)
    if losses and not data.agreed:
        raise ClientException(f"{' '.join(losses)} Save {preset.name}?", status_code=409)
    save_team(preset, repo=target, home=home)
    roster = load_roster(place, home)
    return SavedTeam(
        name=_find_saved_name(preset, roster, "user" if data.mine else "repo"),
        overrides=find_overridden_builtin(preset.name, roster) or "",
    )


def _find_saved_name(preset: Preset, roster: Roster, source: Source) -> str:
    """Return the name under which the saved team can be run.

    This is the plain name if it refers to this team, and otherwise the qualified name, such as `user:reviewers`.
    """
    name = to_agent_name(preset.name)
    used = roster.agents.get(name)
    return name if used is not None and used.source == source else f"{source}:{name}"


def _load_roster(request: ApiRequest, server: Server, repo: str) -> Roster:
    return load_roster(server.find_place(repo, by=get_token(request)), server.settings.home)


ROUTES = (read_agents, read_teams, read_team, read_graph, create_team)
