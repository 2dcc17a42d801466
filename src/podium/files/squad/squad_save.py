"""Save a team as a squad folder, without changing anything else in the folder, or delete the folder.

A file is written only if its content would change. Text that was truncated when it was read is never
written back.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ...system.locations import format_path, is_inside
from ...system.whole_file import MAX_FILE_BYTES, UnreadableFile
from ...values.errors import Mistake
from ..agent_name import make_unique_name
from . import charter
from .charter import MAX_PROMPT_LENGTH, parse_charter, render_charter, render_generic_charter
from .folder_swap import delete_folder, lock_squads, replace_folder, write_new_file
from .squad_folder import (
    AGENTS_FOLDER,
    CHARTER_FILE,
    DECISIONS_FILE,
    LEGACY_SQUAD_FOLDER,
    MAX_CONTEXT_LENGTH,
    ROUTING_FILE,
    SQUAD_FOLDER,
    TEAM_FILE,
    index_member_folders,
    locate_squad_folder,
    read_squad_file,
    read_workers,
)
from .squad_team import (
    ALUMNI,
    Member,
    Team,
    agent_name,
    derive_role,
    is_reserved,
    make_member_key,
    normalise_text,
    slug,
)
from .team_file import MemberListing, update_team_file

MAX_FOLDER_NAME_LENGTH = 60


class MemberFolder(NamedTuple):
    """A member, with the name of its folder and whether the old `team.md` lists the member.

    `folder_name` is None if the member needs no folder.
    """

    member: Member
    folder_name: str | None
    is_listed: bool


def write(team: Team, repo: Path) -> Path:
    """Save `team` as the repository's squad and return its folder. A crash never leaves a partly written folder.

    Raise Mistake if the team has no members or cannot be saved.
    """
    repo = Path(repo).absolute()
    if not team.members:
        raise Mistake(f"the team {team.name} has no members and cannot be saved; add a member")
    try:
        with lock_squads(repo):
            target = _resolve_target(repo)
            base = next(
                (
                    one
                    for one in (locate_squad_folder(target), repo / LEGACY_SQUAD_FOLDER)
                    if _is_squad_folder(one, repo)
                ),
                None,
            )
            with replace_folder(target, target if base == locate_squad_folder(target) else base) as new:
                _apply_team(team, new, repo)
            return repo / SQUAD_FOLDER
    except UnreadableFile as error:
        raise Mistake(f"the team {team.name} cannot be saved: {error}") from error
    except OSError as error:
        where = format_path(Path(error.filename or repo / SQUAD_FOLDER), repo=repo)
        raise Mistake(f"the team {team.name} cannot be saved: {where}: {error.strerror or error}") from error


def delete(team: Team, repo: Path) -> None:
    """Delete a team's folder. Raise Mistake unless it is the repository's own squad. Callers ask the user first."""
    repo = Path(repo).absolute()
    folder = team.source
    if folder is None or folder.absolute().parent != repo or folder.name not in (SQUAD_FOLDER, LEGACY_SQUAD_FOLDER):
        raise Mistake(
            f"the team {team.name} is not stored in {SQUAD_FOLDER} or {LEGACY_SQUAD_FOLDER} of {repo}; "
            "only teams stored there can be deleted"
        )
    if folder.is_symlink() or not folder.is_dir():
        raise Mistake(f"{folder.name} is not a regular folder, so it was not deleted; remove it yourself")
    try:
        with lock_squads(repo):
            delete_folder(folder)
    except OSError as error:
        raise Mistake(f"{folder.name} cannot be deleted: {error.strerror or error}") from error


def _resolve_target(repo: Path) -> Path:
    """Return the squad folder to write to. A link is followed if its target is inside the repository."""
    path = repo / SQUAD_FOLDER
    if not is_inside(path, repo):
        raise Mistake(
            f"{SQUAD_FOLDER} is outside the repository, so nothing was written to it; replace the link with a folder"
        )
    if path.exists() and not path.is_dir():
        raise Mistake(f"{SQUAD_FOLDER} is a file, but must be a folder; move the file out of the way")
    return path.resolve() if path.is_symlink() else path


def _is_squad_folder(folder: Path, repo: Path) -> bool:
    return folder.is_dir() and is_inside(folder, repo)


def _apply_team(team: Team, new: Path, repo: Path) -> None:
    """Write the team to `new`, which is a copy of the current folder."""
    text = read_squad_file(new / TEAM_FILE, repo)
    before = read_workers(new, repo, text or "", []) if text is not None else []
    listed = {make_member_key(worker.member.name): worker.folder_name for worker in before}
    member_folders = _assign_folders(team, listed, index_member_folders(new, repo))
    if not (new / AGENTS_FOLDER).is_dir():  # without this folder, the squad would not be read as a team
        (new / AGENTS_FOLDER).mkdir()
    for gone in [
        folder_name
        for name, folder_name in listed.items()
        if folder_name and folder_name not in {member_folder.folder_name for member_folder in member_folders}
    ]:
        _move_to_alumni(new, gone)
    for member_folder in member_folders:
        _save_charter(member_folder, team, new, repo)
    _save_team_file(team, member_folders, new)
    for name, context in ((DECISIONS_FILE, team.shared_context), (ROUTING_FILE, team.routing_context)):
        _save_context(name, context, team, new, repo)


def _assign_folders(team: Team, listed: dict[str, str | None], folder_names: dict[str, str]) -> list[MemberFolder]:
    """Assign a folder to each member that needs one. A new member gets a unique folder name."""
    found: dict[int, MemberFolder] = {}
    taken: set[str] = set()
    for number, member in enumerate(team.members):
        name = make_member_key(member.name)
        folder_name = listed.get(name) or slug(member.name) or None
        if name in listed and name not in taken and (folder_name or not (member.prompt or member.model)):
            taken.add(name)
            found[number] = MemberFolder(member, folder_name, True)
    for number, member in enumerate(team.members):
        if number not in found:
            name = agent_name(member.name, team.name)[:MAX_FOLDER_NAME_LENGTH].strip("-")
            name = make_unique_name(name, lambda one: one in taken or one in listed or is_reserved(one))
            taken.add(name)
            found[number] = MemberFolder(member, folder_names.get(name, name), False)
    return [found[number] for number in range(len(team.members))]


def _move_to_alumni(new: Path, folder_name: str) -> None:
    """Move a removed member's folder to the alumni folder."""
    alumni = _require_own_folder(new, AGENTS_FOLDER, ALUMNI)
    alumni.mkdir(exist_ok=True)
    name = make_unique_name(folder_name, lambda one: (alumni / one).exists())
    (new / AGENTS_FOLDER / folder_name).rename(alumni / name)


def _save_charter(member_folder: MemberFolder, team: Team, new: Path, repo: Path) -> None:
    """Write a member's charter, unless the file is up to date."""
    if member_folder.folder_name is None:
        return
    member, path = member_folder.member, new / AGENTS_FOLDER / member_folder.folder_name / CHARTER_FILE
    try:
        there = read_squad_file(path, repo)
    except UnreadableFile:
        if member.shortened:
            return
        there = None
    body = _choose_charter_body(
        member,
        there,
        _read_source_file(team, repo, AGENTS_FOLDER, member_folder.folder_name, CHARTER_FILE),
        render_generic_charter(member_folder.folder_name),
    )
    if body is None or (there is not None and _is_same_charter(there, body, member)):
        return
    _write_squad_file(path, render_charter(body, member.model), new)


def _choose_charter_body(member: Member, there: str | None, source: str | None, default: str) -> str | None:
    """Return the text of a member's charter, or None if only part of the text is known and the file must be kept."""
    if not member.prompt and not member.shortened:
        return default
    for text in (there, source):
        if text is not None and parse_charter(text).prompt == member.prompt:
            return charter.split_charter(text).body
    is_cut = member.shortened and len(member.prompt) in (0, MAX_PROMPT_LENGTH)
    return None if is_cut else member.prompt


def _is_same_charter(text: str, body: str, member: Member) -> bool:
    return charter.split_charter(text).body == body and parse_charter(text).model == member.model


def _save_context(name: str, context: str, team: Team, new: Path, repo: Path) -> None:
    """Write a context file, unless it is up to date or only part of its text is known.

    If the team was read from this repository and no longer has the context, empty the file.
    """
    try:
        there = read_squad_file(new / name, repo)
    except UnreadableFile:
        if not context:
            return
        there = None
    if there is not None and normalise_text(there)[:MAX_CONTEXT_LENGTH] == context:
        return
    source = normalise_text(_read_source_file(team, repo, name) or "")
    if context and source[:MAX_CONTEXT_LENGTH] == context:
        context = source
    elif len(context) == MAX_CONTEXT_LENGTH and len(normalise_text(there or "")) > MAX_CONTEXT_LENGTH:
        return  # a truncated copy of an earlier version of this file
    # A team that was not read from this folder may lack the file's text, so saving that team must not empty the file.
    is_known = team.source is not None and team.source.absolute() in (repo / SQUAD_FOLDER, repo / LEGACY_SQUAD_FOLDER)
    if context or (there is not None and is_known):
        _write_squad_file(new / name, f"{context}\n" if context else "", new)


def _read_source_file(team: Team, repo: Path, *parts: str) -> str | None:
    """Read a file from the folder that the team was read from.

    Return None if that is the folder to write to, or if there is no such file or it cannot be read.
    """
    if team.source is None or team.source.absolute() == repo / SQUAD_FOLDER:
        return None
    try:
        return read_squad_file(team.source.joinpath(*parts), team.source.parent)
    except UnreadableFile:
        return None


def _save_team_file(team: Team, member_folders: Sequence[MemberFolder], new: Path) -> None:
    path = new / TEAM_FILE
    # Read as bytes: unchanged lines must keep their line endings, even if mixed.
    text = path.read_bytes().decode("utf-8-sig") if path.exists() else ""
    lines = [
        MemberListing(
            name := member_folder.member.name
            if member_folder.is_listed or not member_folder.folder_name
            else member_folder.folder_name,
            member_folder.member.role or derive_role(name, member_folder.member.prompt),
            f"`{SQUAD_FOLDER}/{AGENTS_FOLDER}/{member_folder.folder_name}/{CHARTER_FILE}`"
            if member_folder.folder_name
            else "—",
            member_folder.member.status,
        )
        for member_folder in member_folders
    ]
    after = update_team_file(text, name=team.name or "Team", mode=team.mode, members=lines)
    if after != text:
        _write_squad_file(path, after, new)


def _write_squad_file(path: Path, text: str, new: Path) -> None:
    """Write a file in the new folder, without following links."""
    if len(text.encode()) > MAX_FILE_BYTES:
        raise Mistake(f"{path.relative_to(new)} would be larger than 1 MiB and could not be read back; shorten it")
    _require_own_folder(new, *path.relative_to(new).parts[:-1])
    write_new_file(path, text)


def _require_own_folder(new: Path, *parts: str) -> Path:
    """Return the path of a folder inside `new`. `parts` contains the names along the path.

    Raise Mistake if any of these folders is a link, because the target of a link must not be changed.
    """
    path = new
    for part in parts:
        path = path / part
        if path.is_symlink():
            where = path.relative_to(new)
            raise Mistake(
                f"{SQUAD_FOLDER}/{where} is a link, and links are not followed when writing; replace it with a folder"
            )
    return path
