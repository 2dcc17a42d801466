"""Find a squad's folder and read it as a team.

Only files inside the folder are read, and their names are fixed or come from a directory listing. A file's
content never determines which other file is read, and links that lead out of the repository are rejected.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, structs

from ...system import whole_file as bounded_file
from ...system.locations import format_path, is_inside
from ...system.whole_file import UnreadableFile
from ...values.located_yaml import quote_text
from .charter import Charter, parse_charter, render_generic_charter, split_charter
from .squad_team import (
    ALUMNI,
    Member,
    Team,
    derive_role,
    is_reserved,
    is_worker,
    make_member_key,
    normalise_text,
    slug,
    split_lines,
)
from .team_file import MEMBER_LAYOUTS, find_mode_lines, parse_mode, parse_team

SQUAD_FOLDER = ".squad"
LEGACY_SQUAD_FOLDER = ".ai-team"
BACKUP_SUFFIX = ".before"
"""The suffix that is added to the name of the old folder while the folder is being replaced.

It is used only on systems that cannot exchange folders atomically."""
MAX_CONTEXT_LENGTH = 8000
TEAM_FILE, CHARTER_FILE, DECISIONS_FILE, ROUTING_FILE, AGENTS_FOLDER = (
    "team.md",
    "charter.md",
    "decisions.md",
    "routing.md",
    "agents",
)


class Discovery(Struct, frozen=True):
    """A repository's team, if it has one, and notices about the team or about why there is none."""

    team: Team | None
    notices: tuple[str, ...]


class SquadWorker(NamedTuple):
    """A member, and the name of its folder in `agents`, if it has one."""

    member: Member
    folder_name: str | None


def discover(path: Path) -> Team | None:
    """Return the team of the repository or squad folder at `path`, or None if there is no team."""
    return discover_with_notices(path).team


def discover_with_notices(path: Path) -> Discovery:
    """Return the team of the repository or squad folder at `path`, with notices.

    If a squad cannot be read, the notices say why.
    """
    path = Path(path).absolute()
    repo, names = (
        (path.parent, [path.name])
        if path.name in (SQUAD_FOLDER, LEGACY_SQUAD_FOLDER)
        else (path, [SQUAD_FOLDER, LEGACY_SQUAD_FOLDER])
    )
    notices: list[str] = []
    for name in names:
        folder = locate_squad_folder(repo / name)
        try:
            if folder.is_dir() and (team := _read_team(folder, repo, notices)):
                return Discovery(team, team.notices)
        except UnreadableFile as error:
            notices.append(str(error))
        except OSError as error:
            notices.append(f"{format_path(folder, repo=repo)} cannot be read: {error.strerror or error}")
    return Discovery(None, tuple(notices))


def with_full_texts(team: Team) -> Team:
    """Return the team with its truncated texts replaced by the full texts from its folder."""
    if team.source is None:
        return team
    folder, repo = locate_squad_folder(team.source), team.source.parent
    listed = read_workers(folder, repo, _read_text_or_empty(folder / TEAM_FILE, repo), [])
    folder_names = {worker.member.name: worker.folder_name for worker in listed if worker.folder_name}
    members: list[Member] = []
    for member in team.members:
        body = _read_charter_body(folder, folder_names.get(member.name), repo) if member.shortened else ""
        is_whole = body != "" and body.startswith(member.prompt)
        members.append(structs.replace(member, prompt=body, shortened=False) if is_whole else member)
    shared, routing = (
        normalise_text(_read_text_or_empty(folder / name, repo)) for name in (DECISIONS_FILE, ROUTING_FILE)
    )
    return structs.replace(
        team,
        members=tuple(members),
        shared_context=shared if shared.startswith(team.shared_context) else team.shared_context,
        routing_context=routing if routing.startswith(team.routing_context) else team.routing_context,
    )


def _read_charter_body(folder: Path, folder_name: str | None, repo: Path) -> str:
    """Return the full text of a worker's charter, without the model section that Podium appended."""
    return (
        split_charter(_read_text_or_empty(folder / AGENTS_FOLDER / folder_name / CHARTER_FILE, repo)).body
        if folder_name
        else ""
    )


def _read_text_or_empty(path: Path, repo: Path) -> str:
    """Return a file's text. If it cannot be read, return an empty string: the error has already been reported."""
    try:
        return read_squad_file(path, repo) or ""
    except UnreadableFile:
        return ""


def locate_squad_folder(folder: Path) -> Path:
    """Return `folder`, or its backup if an interrupted save left only the backup."""
    before = folder.with_name(f"{folder.name}{BACKUP_SUFFIX}")
    return before if before.is_dir() and not folder.exists() else folder


def _read_team(folder: Path, repo: Path, why_none: list[str]) -> Team | None:
    """Return the team in a folder, or None. If a team file exists but defines no team, add the reason to `why_none`."""
    text = read_squad_file(folder / TEAM_FILE, repo)
    if text is None:
        return None
    shown = format_path(folder, repo=repo)
    if not (folder / AGENTS_FOLDER).is_dir():
        why_none.append(
            f"{shown} has a {TEAM_FILE} but no {AGENTS_FOLDER} folder, so it is not a team; "
            f"create {shown}/{AGENTS_FOLDER}/NAME/{CHARTER_FILE}"
        )
        return None
    notices: list[str] = []
    found = parse_team(text)
    members = tuple(worker.member for worker in read_workers(folder, repo, text, notices))
    if not found.members:
        instead = "using the agents that have a charter" if members else "there are no agents with a charter"
        notices.insert(0, f"{shown}/{TEAM_FILE} lists no members: expected {MEMBER_LAYOUTS}; {instead}")
    if not members:
        why_none += notices
        return None
    words = find_mode_lines(split_lines(text))
    if words and not any(parse_mode(word) for _, word in words):
        notices.append(f"{shown}/{TEAM_FILE} has the unknown mode {words[0][1]}; using reflect")
    return Team(
        name=found.name or repo.name or "Team",
        mode=found.mode,
        members=members,
        shared_context=_read_context(folder / DECISIONS_FILE, repo, notices),
        routing_context=_read_context(folder / ROUTING_FILE, repo, notices),
        source=folder.with_name(folder.name.removesuffix(BACKUP_SUFFIX)),
        notices=tuple(notices),
    )


def read_workers(folder: Path, repo: Path, text: str, notices: list[str]) -> list[SquadWorker]:
    """Return the workers that `team.md` lists or, if it lists no members, all workers that have a charter."""
    folder_names = index_member_folders(folder, repo)
    listed = [one for one in parse_team(text).members if is_worker(one.name, one.status)]
    if not parse_team(text).members:
        listed = [
            Member(folder_name)
            for folder_name in folder_names.values()
            if not is_reserved(folder_name) and _has_charter(folder, folder_name)
        ]
    found: dict[str, SquadWorker] = {}
    for member in listed:
        name = make_member_key(member.name)
        if name in found:
            notices.append(
                f"{format_path(folder / TEAM_FILE, repo=repo)} lists {member.name} twice; using the first entry"
            )
            continue
        folder_name = folder_names.get(name)
        charter = (
            _read_charter(folder / AGENTS_FOLDER / folder_name / CHARTER_FILE, repo, notices) if folder_name else None
        )
        found[name] = SquadWorker(_merge_charter(member, charter, folder_name), folder_name)
    return list(found.values())


def _merge_charter(listed: Member, charter: Charter | None, folder_name: str | None) -> Member:
    """Merge a listed member with its charter. A member without a charter is a generic worker."""
    if charter is None:
        return Member(listed.name, listed.role or listed.name, status=listed.status)
    is_generic = folder_name is not None and charter.prompt == render_generic_charter(folder_name)
    prompt = "" if is_generic else charter.prompt
    role = listed.role or ("" if is_generic else charter.role) or derive_role(listed.name, prompt)
    return Member(listed.name, role, prompt, charter.model, listed.status, charter.shortened)


def index_member_folders(folder: Path, repo: Path) -> dict[str, str]:
    """Return the names of the folders in `agents`, keyed by member key."""
    agents = folder / AGENTS_FOLDER
    if not agents.is_dir() or not is_inside(agents, repo):
        return {}
    found = sorted(one.name for one in agents.iterdir() if one.name != ALUMNI and one.is_dir())
    exact = {name: name for name in found if name == slug(name)}
    return {**{make_member_key(name): name for name in found}, **exact}


def read_squad_file(path: Path, repo: Path) -> str | None:
    """Return the text of a squad's file, or None if it does not exist. Raise UnreadableFile if it cannot be read."""
    if not path.is_symlink() and not path.exists():
        return None
    try:
        return bounded_file.read_text_file(path, root=repo)
    except UnreadableFile as error:
        raise UnreadableFile(f"{format_path(path, repo=repo)} {error}") from error


def _has_charter(folder: Path, folder_name: str) -> bool:
    return (folder / AGENTS_FOLDER / folder_name / CHARTER_FILE).is_file()


def _read_charter(path: Path, repo: Path, notices: list[str]) -> Charter | None:
    """Read the charter at `path`. Return None if the file does not exist.

    If the file cannot be read, return an empty charter with `shortened` set, so that saving the team does not overwrite
    the file.
    """
    try:
        text = read_squad_file(path, repo)
    except UnreadableFile as error:
        notices.append(f"{error}; the worker runs without this charter")
        return Charter("", "", [], "", "", "", True)
    if text is None:
        return None
    charter = parse_charter(text)
    if charter.shortened:
        notices.append(_format_truncation_notice(path, repo, len(charter.prompt)))
    if charter.reasoning_effort not in ("", "auto", "default"):
        notices.append(
            f"{format_path(path, repo=repo)} asks for the reasoning effort {charter.reasoning_effort}, "
            "which has no effect; the provider's default is used"
        )
    if charter.unread_fallback:
        notices.append(
            f"{format_path(path, repo=repo)} has the fallback {quote_text(charter.unread_fallback)}, "
            "which lists no model and has no effect; use model names, separated by commas"
        )
    return charter


def _read_context(path: Path, repo: Path, notices: list[str]) -> str:
    """Read a file that is included in prompts, up to the maximum length."""
    try:
        text = normalise_text(read_squad_file(path, repo) or "")
    except UnreadableFile as error:
        notices.append(f"{error}; the team runs without this file")
        return ""
    if len(text) > MAX_CONTEXT_LENGTH:
        notices.append(_format_truncation_notice(path, repo, MAX_CONTEXT_LENGTH))
    return text[:MAX_CONTEXT_LENGTH]


def _format_truncation_notice(path: Path, repo: Path, used: int) -> str:
    return f"{format_path(path, repo=repo)} is long: only its first {used:,} characters are used; the file is unchanged"
