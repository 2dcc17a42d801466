"""Find skills: folders with a file `SKILL.md` that says how to do one kind of task.

Like agents, skills come from the user's home folder and from the repository; later folders override earlier ones.
Only the frontmatter is used here and, if it has no description, the first sentence of the text. A repository's skill is
read only if its file is inside the repository, and nothing in it is executed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..system.locations import escape_file_name, format_path, is_inside, is_same_file
from ..system.whole_file import UnreadableFile, read_text_file
from ..values.errors import Diagnostic
from ..values.guidance import Skill
from ..values.located_yaml import MalformedText, to_plain_value
from ..values.plain_text import escape_unprintable, truncate_text
from .agent_file import FIRST_LINE, FileParts, extract_first_sentence, split_frontmatter
from .agent_name import is_agent_name, to_agent_name

FILE_NAME = "SKILL.md"
MOST_SKILLS = 100
"""The maximum number of skills that are read from one folder."""
LONGEST_DESCRIPTION = 500
HOME_FOLDERS = (".agents/skills", ".claude/skills")
"""Folders next to Podium's home folder in which other programs keep the user's skills."""
REPO_FOLDERS = (".github/skills", ".agents/skills", ".claude/skills", ".podium/skills")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillCollection:
    """The skills in effect, sorted by name, and diagnostics about files that are not used."""

    skills: tuple[Skill, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _SkillPlace:
    """A folder with skills. `repo` is set if it belongs to a repository."""

    path: Path
    repo: Path | None = None


def load_skills(repo: Path, home: Path) -> SkillCollection:
    """Find the user's own skills and those in a repository."""
    found: dict[str, Skill] = {}
    diagnostics: list[Diagnostic] = []
    for place in _list_places(repo, home):
        for folder in _list_skill_folders(place, diagnostics):
            if (skill := _read_skill(place, folder, diagnostics)) is not None:
                found[skill.name] = skill
    return SkillCollection(skills=tuple(found[name] for name in sorted(found)), diagnostics=tuple(diagnostics))


def _list_places(repo: Path, home: Path) -> Iterator[_SkillPlace]:
    yield from (_SkillPlace(path=home.parent / name) for name in HOME_FOLDERS)
    yield _SkillPlace(path=home / "skills")
    for name in REPO_FOLDERS:
        # In the user's home folder, .podium is Podium's home folder.
        if not is_same_file((repo / name).parent, home):
            yield _SkillPlace(path=repo / name, repo=repo)


def _list_skill_folders(place: _SkillPlace, diagnostics: list[Diagnostic]) -> list[Path]:
    """Return the folders with a skill, sorted by name."""
    try:
        if not place.path.is_dir():
            return []
        if place.repo is not None and not is_inside(place.path, place.repo):
            _warn(diagnostics, place, place.path, "is outside the repository and is not read")
            return []
        folders = [path for path in sorted(place.path.iterdir()) if (path / FILE_NAME).exists()]
    except OSError as error:
        _warn(diagnostics, place, place.path, f"cannot list this folder: {error.strerror or error}")
        return []
    if len(folders) > MOST_SKILLS:
        _warn(diagnostics, place, folders[MOST_SKILLS], f"not used: a folder can have at most {MOST_SKILLS} skills")
    return folders[:MOST_SKILLS]


def _read_skill(place: _SkillPlace, folder: Path, diagnostics: list[Diagnostic]) -> Skill | None:
    """Read the name and description of a skill. Return None if it is unusable, or if models must not use it."""
    path = folder / FILE_NAME
    try:
        parts = _split_skill(read_text_file(path, root=place.repo))
        fields = _parse_frontmatter(parts)
    except UnreadableFile as error:
        _warn(diagnostics, place, path, str(error))
        return None
    except MalformedText as error:
        _warn(diagnostics, place, path, f"{error}; the skill is not used", line=error.line)
        return None
    if fields.get("disable-model-invocation") is True:
        return None
    written = fields.get("name")
    name = to_agent_name(written if isinstance(written, str) else folder.name) or to_agent_name(folder.name)
    if not is_agent_name(name):
        _warn(diagnostics, place, path, "the skill has no usable name; set name in its frontmatter")
        return None
    said = fields.get("description")
    description = " ".join(said.split()) if isinstance(said, str) else extract_first_sentence(parts.prompt)
    return Skill(
        name=name,
        description=truncate_text(escape_unprintable(description), LONGEST_DESCRIPTION),
        folder=str(folder.resolve()) if place.repo is None else folder.relative_to(place.repo).as_posix(),
        source="user" if place.repo is None else "repo",
    )


def _split_skill(text: str) -> FileParts:
    """Split a skill file into its frontmatter and its text. A file without frontmatter is all text.

    Raise MalformedText if the frontmatter is not closed.
    """
    return split_frontmatter(text) or FileParts(frontmatter="", prompt=text.strip())


def _parse_frontmatter(parts: FileParts) -> dict[str, Any]:
    from ..values.yaml_parser import parse_yaml_mapping  # imported here for start-up time: importing PyYAML is slow

    if not parts.frontmatter.strip():
        return {}
    fields = to_plain_value(parse_yaml_mapping(parts.frontmatter, first_line=FIRST_LINE))
    assert isinstance(fields, dict)
    return fields


def _warn(
    diagnostics: list[Diagnostic], place: _SkillPlace, path: Path, message: str, *, line: int | None = None
) -> None:
    shown = escape_unprintable(escape_file_name(format_path(path, repo=place.repo)))
    diagnostics.append(Diagnostic(severity="warning", path=shown, line=line, message=escape_unprintable(message)))
