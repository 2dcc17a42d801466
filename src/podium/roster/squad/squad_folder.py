"""A squad's folder: found, read as data, and turned into a team.

Only files of the folder itself are read, by names that we know or that its own listing gives:
nothing that stands in a file leads to another one, and a link that leaves the repository is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, structs

from ...system.locations import is_inside, shown
from .. import bounded_file
from ..bounded_file import Unreadable
from .charter import Charter, generic, parse_charter, parts
from .squad_markdown import lines_of
from .squad_name import ALUMNI, derive_role, is_reserved, is_worker, known_as, slug
from .squad_team import Member, Team, settled
from .team_file import known_mode, mode_lines, parse_team

SQUAD = ".squad"
OLDER = ".ai-team"
BEFORE = ".before"
"""What is added to a folder's name while it is replaced, where a system cannot do that in one step."""
LONGEST_CONTEXT = 8000
TEAM, CHARTER, DECISIONS, ROUTING, AGENTS = "team.md", "charter.md", "decisions.md", "routing.md", "agents"


class Found(Struct, frozen=True):
    """The team of a repository, if it has one, and what to tell where a squad is there that cannot be read."""

    team: Team | None
    notices: tuple[str, ...]


class Worker(NamedTuple):
    """A member, and the name of its folder in `agents` where it has one."""

    member: Member
    home: str | None


def discover(path: Path) -> Team | None:
    """The team of the repository at `path`, which may also be the squad's own folder."""
    return examine(path).team


def examine(path: Path) -> Found:
    """The team of a repository, or why a squad that is there gives none."""
    path = Path(path).absolute()
    repo, names = (path.parent, [path.name]) if path.name in (SQUAD, OLDER) else (path, [SQUAD, OLDER])
    notices: list[str] = []
    for name in names:
        folder = standing(repo / name)
        try:
            if folder.is_dir() and (team := _team(folder, repo)):
                return Found(team, team.notices)
        except Unreadable as error:
            notices.append(str(error))
        except OSError as error:
            notices.append(f"{shown(folder, repo=repo)} cannot be looked into: {error.strerror or error}")
    return Found(None, tuple(notices))


def whole(team: Team) -> Team:
    """A team that was read from a folder, with all of the texts of which only the beginning is used."""
    if team.source is None:
        return team
    folder, repo = standing(team.source), team.source.parent
    listed = workers(folder, repo, _text(folder / TEAM, repo), [])
    at_home = {worker.member.name: worker.home for worker in listed if worker.home}
    members: list[Member] = []
    for member in team.members:
        body = _body(folder, at_home.get(member.name), repo) if member.shortened else ""
        is_whole = body != "" and body.startswith(member.prompt)
        members.append(structs.replace(member, prompt=body, shortened=False) if is_whole else member)
    shared, routing = (settled(_text(folder / name, repo)) for name in (DECISIONS, ROUTING))
    return structs.replace(
        team,
        members=tuple(members),
        shared_context=shared if shared.startswith(team.shared_context) else team.shared_context,
        routing_context=routing if routing.startswith(team.routing_context) else team.routing_context,
    )


def _body(folder: Path, home: str | None, repo: Path) -> str:
    """The whole charter in a worker's folder."""
    return parts(_text(folder / AGENTS / home / CHARTER, repo)).body if home else ""


def _text(path: Path, repo: Path) -> str:
    """The text of a file; nothing where it cannot be read, of which the person was told when it was read first."""
    try:
        return content(path, repo) or ""
    except Unreadable:
        return ""


def standing(folder: Path) -> Path:
    """The folder, or where it is kept while a save that was cut short has it out of its place."""
    before = folder.with_name(f"{folder.name}{BEFORE}")
    return before if before.is_dir() and not folder.exists() else folder


def _team(folder: Path, repo: Path) -> Team | None:
    """The team in a folder."""
    text = content(folder / TEAM, repo)
    if text is None:
        return None
    notices: list[str] = []
    found = parse_team(text)
    members = tuple(worker.member for worker in workers(folder, repo, text, notices))
    if not members:
        return None
    words = mode_lines(lines_of(text))
    if words and not any(known_mode(word) for _, word in words):
        notices.append(
            f"{shown(folder / TEAM, repo=repo)} has the mode {words[0][1]}, which is none; it works as reflect"
        )
    return Team(
        name=found.name or repo.name or "Team",
        mode=found.mode,
        members=members,
        shared_context=_context(folder / DECISIONS, repo, notices),
        routing_context=_context(folder / ROUTING, repo, notices),
        source=folder.with_name(folder.name.removesuffix(BEFORE)),
        notices=tuple(notices),
    )


def workers(folder: Path, repo: Path, text: str, notices: list[str]) -> list[Worker]:
    """The workers whom `team.md` lists, or without a list those who have a charter, each name once."""
    at_home = homes(folder, repo)
    listed = [one for one in parse_team(text).members if is_worker(one.name, one.status)]
    if not parse_team(text).members:
        listed = [Member(home) for home in at_home.values() if not is_reserved(home) and _has_charter(folder, home)]
    found: dict[str, Worker] = {}
    for member in listed:
        name = known_as(member.name)
        if name in found:
            notices.append(f"{shown(folder / TEAM, repo=repo)} lists {member.name} twice; the first time counts")
            continue
        home = at_home.get(name)
        charter = _charter(folder / AGENTS / home / CHARTER, repo, notices) if home else None
        found[name] = Worker(_member(member, charter, home), home)
    return list(found.values())


def _member(listed: Member, charter: Charter | None, home: str | None) -> Member:
    """A listed member with what its charter adds; without one it is a generic worker."""
    if charter is None:
        return Member(listed.name, listed.role or listed.name, status=listed.status)
    is_generic = home is not None and charter.prompt == generic(home)
    prompt = "" if is_generic else charter.prompt
    role = listed.role or ("" if is_generic else charter.role) or derive_role(listed.name, prompt)
    return Member(listed.name, role, prompt, charter.model, listed.status, charter.shortened)


def homes(folder: Path, repo: Path) -> dict[str, str]:
    """The folders in `agents`, by the names of the agents that they are for."""
    agents = folder / AGENTS
    if not agents.is_dir() or not is_inside(agents, repo):
        return {}
    found = sorted(one.name for one in agents.iterdir() if one.name != ALUMNI and one.is_dir())
    exact = {name: name for name in found if name == slug(name)}
    return {**{known_as(name): name for name in found}, **exact}


def content(path: Path, repo: Path) -> str | None:
    """The text of a file in the squad; None where there is none. Raises Unreadable with a whole sentence."""
    if not path.is_symlink() and not path.exists():
        return None
    try:
        return bounded_file.text(path, root=repo)
    except Unreadable as error:
        raise Unreadable(f"{shown(path, repo=repo)} {error}") from error


def _has_charter(folder: Path, home: str) -> bool:
    return (folder / AGENTS / home / CHARTER).is_file()


def _charter(path: Path, repo: Path, notices: list[str]) -> Charter | None:
    """The charter at `path`. One that cannot be read is like one that was shortened to nothing: we do not know it."""
    try:
        text = content(path, repo)
    except Unreadable as error:
        notices.append(f"{error}; its worker works without it")
        return Charter("", "", [], "", "", "", True)
    if text is None:
        return None
    charter = parse_charter(text)
    if charter.shortened:
        notices.append(_shortened(path, repo, len(charter.prompt)))
    return charter


def _context(path: Path, repo: Path, notices: list[str]) -> str:
    """What stands in a file that goes into prompts, up to its limit."""
    try:
        text = settled(content(path, repo) or "")
    except Unreadable as error:
        notices.append(f"{error}; the team works without it")
        return ""
    if len(text) > LONGEST_CONTEXT:
        notices.append(_shortened(path, repo, LONGEST_CONTEXT))
    return text[:LONGEST_CONTEXT]


def _shortened(path: Path, repo: Path, used: int) -> str:
    return f"{shown(path, repo=repo)} is long: its first {used:,} characters are used, and the file stays as it is"
