"""Write decisions to a squad's inbox, and merge the inbox into `decisions.md`.

Each new decision is a separate file in the inbox. Merging only appends to `decisions.md`. A file is removed from the
inbox only after its text has been appended, so an interrupted merge neither loses nor duplicates a decision.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ...system.file_lock import hold_file_lock
from ...system.locations import format_path, is_inside
from ...system.whole_file import UnreadableFile, decode_text, read_file_bytes, replace_file
from ...values.errors import Mistake
from ...views.decision_record import DecisionRecord, list_participants
from ...views.quoted_markdown import escape_inline, quote_block
from .squad_folder import DECISIONS_FILE, LEGACY_SQUAD_FOLDER, SQUAD_FOLDER, locate_squad_folder
from .squad_team import iter_content_lines, parse_heading, slug, split_lines

INBOX_FOLDER = "decisions/inbox"
FIRST_LINE = "# Decisions\n"
LONGEST_NAME = 60
_MARK = "<!-- podium decision {id} -->"


class InboxMerge(NamedTuple):
    """The names of the inbox files that were merged, and notices for the user."""

    merged: tuple[str, ...]
    notices: tuple[str, ...]


def _find_squad_folder(repo: Path) -> Path:
    """Return the folder of a repository's squad. Raise Mistake if there is none."""
    for name in (SQUAD_FOLDER, LEGACY_SQUAD_FOLDER):
        folder = locate_squad_folder(repo / name)
        if folder.is_dir() and is_inside(folder, repo):
            return folder
    raise Mistake(f"{repo} has no squad; expected a folder {SQUAD_FOLDER} or {LEGACY_SQUAD_FOLDER}")


# Writing


def write_inbox_decisions(repo: Path, decisions: Iterable[DecisionRecord]) -> list[Path]:
    """Write each committed decision that the squad does not have yet to the squad's inbox. Return the new files.

    Raise Mistake if there is no squad, if `decisions.md` cannot be read, or if the inbox is outside the repository.
    """
    folder = _find_squad_folder(repo)
    inbox = folder / INBOX_FOLDER
    if not is_inside(inbox, repo):
        raise Mistake(f"{format_path(inbox, repo=repo)} is outside the repository, so decisions are not written there")
    known = _decode_decisions(_read_decisions(folder, repo), folder, repo)
    written = []
    for record in decisions:
        path = inbox / _make_inbox_name(record)
        if record.state.committed is not None and _MARK.format(id=record.id) not in known and not path.exists():
            replace_file(path, render_inbox_decision(record).encode())
            path.chmod(0o644)
            written.append(path)
    return written


def _make_inbox_name(record: DecisionRecord) -> str:
    """Return the file name for a decision in the inbox. It contains the proposer, the topic and the id."""
    words = (slug(record.state.proposal.by) or "podium", slug(record.state.proposal.topic)[:LONGEST_NAME].strip("-"))
    return f"{'-'.join(filter(None, words))}-{slug(record.id)}.md"


def render_inbox_decision(record: DecisionRecord) -> str:
    """Return a decision as Markdown in the layout that squads use."""
    made = record.state.committed
    assert made is not None
    day = time.strftime("%Y-%m-%d", time.gmtime(record.committed_at))
    lines = [
        f"### {day}: {escape_inline(record.state.proposal.topic)}",
        f"**By:** {', '.join(map(escape_inline, list_participants(record.state))) or 'Podium'}",
        f"**What:** {escape_inline(made.option)} ({escape_inline(made.how)})",
    ]
    if made.rationale.strip():
        lines += ["**Why:**", "", quote_block(made.rationale), ""]
    return "\n".join([*lines, _MARK.format(id=record.id), ""])


# Merging


def merge_inbox(repo: Path, *, lock: Path) -> InboxMerge:
    """Append the decisions in the squad's inbox to `decisions.md` and empty the inbox. Raise Mistake on failure.

    Decisions that `decisions.md` already contains are not appended again. If two decisions have the same title but
    different text, both are kept. A file that cannot be read, or that changes during the merge, stays in the inbox.
    """
    folder = _find_squad_folder(repo)
    target = folder / DECISIONS_FILE
    with hold_file_lock(lock, protects=target):
        read = _read_inbox(folder / INBOX_FOLDER, repo)
        before = _read_decisions(folder, repo)
        known = _decode_decisions(before, folder, repo)
        new, notices = _select_new_blocks(read.files, known, repo)
        if new:
            replace_file(target, _append_blocks(before, new))
        merged = [path for path, text in read.files.items() if _remove_merged(path, text, repo)]
    changed = [path for path in read.files if path not in merged]
    kept = [f"{format_path(path, repo=repo)} changed during the merge and stays in the inbox" for path in changed]
    return InboxMerge(tuple(path.name for path in merged), (*read.notices, *notices, *kept))


class _Inbox(NamedTuple):
    files: dict[Path, str]
    notices: list[str]


def _read_inbox(inbox: Path, repo: Path) -> _Inbox:
    found = _Inbox({}, [])
    if not inbox.is_dir() or not is_inside(inbox, repo):
        return found
    for path in sorted(inbox.glob("*.md")):
        try:
            found.files[path] = decode_text(read_file_bytes(path, root=repo))
        except UnreadableFile as error:
            found.notices.append(f"{format_path(path, repo=repo)} {error}; it stays in the inbox")
    return found


def _read_decisions(folder: Path, repo: Path) -> bytes:
    """Return the content of `decisions.md`, empty if it does not exist. Raise Mistake if it cannot be read."""
    path = folder / DECISIONS_FILE
    if not path.is_symlink() and not path.exists():
        return b""
    try:
        return read_file_bytes(path, root=repo)
    except UnreadableFile as error:
        raise Mistake(f"{format_path(path, repo=repo)} {error}; nothing was changed") from error


def _decode_decisions(data: bytes, folder: Path, repo: Path) -> str:
    try:
        return decode_text(data)
    except UnreadableFile as error:
        path = format_path(folder / DECISIONS_FILE, repo=repo)
        raise Mistake(f"{path} {error}; nothing was changed") from error


def _select_new_blocks(files: dict[Path, str], known: str, repo: Path) -> tuple[list[str], list[str]]:
    """Return the decisions missing from `decisions.md`, without duplicates, and notices about duplicate titles."""
    text = _strip_line_ends(known)
    new: list[str] = []
    notices: list[str] = []
    for path, content in files.items():
        for block in split_inbox_text(content, title=path.stem):
            if _contains_lines(text, block):
                continue
            title = block.partition("\n")[0]
            if _contains_lines(text, title):
                where = format_path(path, repo=repo)
                notices.append(f"a decision in {where} has the same title as another one; both are kept: {title}")
            new.append(block)
            text = f"{text}\n{_strip_line_ends(block)}"
    return new, notices


def split_inbox_text(text: str, *, title: str) -> list[str]:
    """Split the text of an inbox file into decisions at its headings.

    Text above the first heading becomes a decision with the title `title`.
    """
    lines = split_lines(text)
    starts: list[int] = []
    for place, line in iter_content_lines(lines):
        heading = parse_heading(line)
        if heading is not None and heading.level <= 3:
            starts.append(place)
            # A heading of level 1 is the title of decisions.md itself.
            lines[place] = f"### {heading.text}" if heading.level == 1 else line
    if any(line.strip() for line in lines[: starts[0] if starts else len(lines)]):
        lines.insert(0, f"### {title}")
        starts = [0, *(place + 1 for place in starts)]
    bounds = [*starts, len(lines)]
    return ["\n".join(lines[start:end]).strip("\n") for start, end in pairwise(bounds)]


def _strip_line_ends(text: str) -> str:
    return "\n".join(line.rstrip() for line in split_lines(text))


def _contains_lines(text: str, block: str) -> bool:
    """Return whether `text` contains the lines of `block`, ignoring trailing spaces."""
    return f"\n{_strip_line_ends(block)}\n" in f"\n{text}\n"


def _append_blocks(before: bytes, blocks: list[str]) -> bytes:
    """Return the content of `decisions.md` with the decisions appended, using the file's line endings."""
    ending = "\r\n" if b"\r\n" in before else "\n"
    start = before or FIRST_LINE.encode()
    gap = "\n" if start.endswith((b"\n", b"\r")) else "\n\n"
    added = (gap + "\n\n".join(blocks) + "\n").replace("\n", ending)
    return start + added.encode()


def _remove_merged(path: Path, text: str, repo: Path) -> bool:
    """Remove a merged file from the inbox. Return False if it has changed since it was read."""
    try:
        if decode_text(read_file_bytes(path, root=repo)) != text:
            return False
    except UnreadableFile:
        return not path.exists()
    path.unlink(missing_ok=True)
    return True
