"""Writing a team as a squad's folder, in which everything else stays as it is.

A file is written only where it would read differently; what was shortened when it was read is
never written back.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ...system.locations import is_inside, shown
from ...values.errors import Mistake
from ..bounded_file import MOST_BYTES, Unreadable
from . import charter
from .charter import LONGEST_PROMPT, composed, generic, parse_charter
from .folder_swap import alone, replaced, taken_away, written
from .member_table import Line, rewritten
from .squad_folder import (
    AGENTS,
    CHARTER,
    DECISIONS,
    LONGEST_CONTEXT,
    OLDER,
    ROUTING,
    SQUAD,
    TEAM,
    content,
    homes,
    standing,
    workers,
)
from .squad_name import ALUMNI, agent_name, derive_role, is_reserved, known_as, slug
from .squad_team import Member, Team, settled

LONGEST_NAME = 60


class Place(NamedTuple):
    """Where a member is: the name of its folder, if it needs one, and whether it was on the team before."""

    member: Member
    home: str | None
    is_listed: bool


def write(team: Team, repo: Path) -> Path:
    """Make `team` the squad of the repository; a crash leaves the old folder or the new one."""
    repo = Path(repo).absolute()
    if not team.members:
        raise Mistake(f"the team {team.name} has no members, so that there is nothing to save; add one")
    try:
        with alone(repo):
            target = _target(repo)
            base = next((one for one in (standing(target), repo / OLDER) if _is_squad(one, repo)), None)
            with replaced(target, target if base == standing(target) else base) as new:
                _change(team, new, repo)
            return repo / SQUAD
    except Unreadable as error:
        raise Mistake(f"the team {team.name} cannot be saved: {error}") from error
    except OSError as error:
        where = shown(Path(error.filename or repo / SQUAD), repo=repo)
        raise Mistake(f"the team {team.name} cannot be saved: {where}: {error.strerror or error}") from error


def delete(team: Team, repo: Path) -> None:
    """Take a team's folder away, which has to be the repository's own squad. Whoever calls this has asked."""
    repo = Path(repo).absolute()
    folder = team.source
    if folder is None or folder.absolute().parent != repo or folder.name not in (SQUAD, OLDER):
        raise Mistake(f"the team {team.name} is not kept in {SQUAD} or {OLDER} of {repo}, and only these are deleted")
    if folder.is_symlink() or not folder.is_dir():
        raise Mistake(
            f"{folder.name} is no folder of the repository's own, so that it is not deleted; remove it yourself"
        )
    try:
        with alone(repo):
            taken_away(folder)
    except OSError as error:
        raise Mistake(f"{folder.name} cannot be deleted: {error.strerror or error}") from error


def _target(repo: Path) -> Path:
    """The folder to write, where a link inside of the repository leads to it, too."""
    path = repo / SQUAD
    if not is_inside(path, repo):
        raise Mistake(f"{SQUAD} leads out of the repository, where nothing is written; a folder would be right")
    if path.exists() and not path.is_dir():
        raise Mistake(f"{SQUAD} is a file, where a team's folder should be; move it away")
    return path.resolve() if path.is_symlink() else path


def _is_squad(folder: Path, repo: Path) -> bool:
    return folder.is_dir() and is_inside(folder, repo)


def _change(team: Team, new: Path, repo: Path) -> None:
    """Make the copied folder hold the team."""
    text = content(new / TEAM, repo)
    before = workers(new, repo, text or "", []) if text is not None else []
    listed = {known_as(worker.member.name): worker.home for worker in before}
    places = _places(team, listed, homes(new, repo))
    for gone in [home for name, home in listed.items() if home and home not in {place.home for place in places}]:
        _retire(new, gone)
    for place in places:
        _save_charter(place, team, new, repo)
    _save_team(team, places, new)
    for name, told in ((DECISIONS, team.shared_context), (ROUTING, team.routing_context)):
        _save_context(name, told, team, new, repo)


def _places(team: Team, listed: dict[str, str | None], at_home: dict[str, str]) -> list[Place]:
    """Where each member is to be; one that is new gets a name that nobody has."""
    found: dict[int, Place] = {}
    taken: set[str] = set()
    for number, member in enumerate(team.members):
        name = known_as(member.name)
        home = listed.get(name) or slug(member.name) or None
        if name in listed and name not in taken and (home or not (member.prompt or member.model)):
            taken.add(name)
            found[number] = Place(member, home, True)
    for number, member in enumerate(team.members):
        if number not in found:
            name = agent_name(member.name, team.name)[:LONGEST_NAME].strip("-")
            name = _free(name, taken | listed.keys())
            taken.add(name)
            found[number] = Place(member, at_home.get(name, name), False)
    return [found[number] for number in range(len(team.members))]


def _free(name: str, taken: set[str]) -> str:
    """The name, with a number where it is taken or belongs to the squad's own machinery."""
    number, free = 1, name
    while free in taken or is_reserved(free):
        number += 1
        free = f"{name}-{number}"
    return free


def _retire(new: Path, home: str) -> None:
    """Put the folder of somebody who left with those of the others who did."""
    alumni = _own(new, AGENTS, ALUMNI)
    alumni.mkdir(exist_ok=True)
    name = home
    number = 1
    while (alumni / name).exists():
        number += 1
        name = f"{home}-{number}"
    (new / AGENTS / home).rename(alumni / name)


def _save_charter(place: Place, team: Team, new: Path, repo: Path) -> None:
    """Write a member's charter, unless it reads as it should."""
    if place.home is None:
        return
    member, path = place.member, new / AGENTS / place.home / CHARTER
    try:
        there = content(path, repo)
    except Unreadable:
        if member.shortened:
            return
        there = None
    body = _body(member, there, _source(team, repo, AGENTS, place.home, CHARTER), generic(place.home))
    if body is None or (there is not None and _reads_as(there, body, member)):
        return
    _put(path, composed(body, member.model), new)


def _body(member: Member, there: str | None, source: str | None, default: str) -> str | None:
    """The text of a member's charter; None where we do not know it all, and so cannot write it."""
    if not member.prompt and not member.shortened:
        return default
    for text in (there, source):
        if text is not None and parse_charter(text).prompt == member.prompt:
            return charter.parts(text).body
    is_cut = member.shortened and len(member.prompt) in (0, LONGEST_PROMPT)
    return None if is_cut else member.prompt


def _reads_as(text: str, body: str, member: Member) -> bool:
    return charter.parts(text).body == body and parse_charter(text).model == member.model


def _save_context(name: str, told: str, team: Team, new: Path, repo: Path) -> None:
    """Write a text for prompts, unless the file reads so already; a text that was taken away is emptied."""
    try:
        there = content(new / name, repo)
    except Unreadable:
        if not told:
            return
        there = None
    if there is not None and settled(there)[:LONGEST_CONTEXT] == told:
        return
    source = settled(_source(team, repo, name) or "")
    if told and source[:LONGEST_CONTEXT] == told:
        told = source
    elif len(told) == LONGEST_CONTEXT and len(settled(there or "")) > LONGEST_CONTEXT:
        return  # the beginning of what stood there once
    # A team that was never read from here does not know what it would take away.
    is_known = team.source is not None and team.source.absolute() in (repo / SQUAD, repo / OLDER)
    if told or (there is not None and is_known):
        _put(new / name, f"{told}\n" if told else "", new)


def _source(team: Team, repo: Path, *parts: str) -> str | None:
    """The whole text of a file in the folder that the team was read from."""
    if team.source is None or team.source.absolute() == repo / SQUAD:
        return None
    try:
        return content(team.source.joinpath(*parts), team.source.parent)
    except Unreadable:
        return None


def _save_team(team: Team, places: Sequence[Place], new: Path) -> None:
    path = new / TEAM
    # Read as bytes, since its lines may end in different ways, and those that stay should stay so.
    text = path.read_bytes().decode("utf-8-sig") if path.exists() else ""
    lines = [
        Line(
            name := place.member.name if place.is_listed or not place.home else place.home,
            place.member.role or derive_role(name, place.member.prompt),
            f"`{SQUAD}/{AGENTS}/{place.home}/{CHARTER}`" if place.home else "—",
            place.member.status,
        )
        for place in places
    ]
    after = rewritten(text, name=team.name or "Team", mode=team.mode, members=lines)
    if after != text:
        _put(path, after, new)


def _put(path: Path, text: str, new: Path) -> None:
    """Write a file of the new folder, through no link."""
    if len(text.encode()) > MOST_BYTES:
        raise Mistake(f"{path.relative_to(new)} would have more than 1 MiB, which is not read again; shorten it")
    _own(new, *path.relative_to(new).parts[:-1])
    written(path, text)


def _own(new: Path, *parts: str) -> Path:
    """A folder of the new one, which has to be its own: what a link leads to is not ours to change."""
    path = new
    for part in parts:
        path = path / part
        if path.is_symlink():
            where = path.relative_to(new)
            raise Mistake(f"{SQUAD}/{where} is a link, through which nothing is written; a folder would be right")
    return path
