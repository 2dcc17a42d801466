"""Name and number the files of decision records (ADRs)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from .decision_record import DecisionRecord, link_decision, render_decision

ADR_FOLDER = "docs/adr"
LONGEST_FILE_TITLE = 60
_ADR_NAME = re.compile(r"(?:^|/)(\d{4,})-[^/]*\.md$")
_ID_LINE = re.compile(r"^- Decision: `([^`]+)`", re.MULTILINE)
_STATUS_LINE = re.compile(r"^- Status: .*$", re.MULTILINE)


def render_adr_files(decisions: Iterable[DecisionRecord], existing: Mapping[str, str]) -> dict[str, str]:
    """Return the files to write for these decisions, by path: new records, and records whose status has changed.

    `existing` maps the paths of the files in the target tree to their content; only the content of decision records is
    read. A decision gets the next free number in the target, so records from different branches never collide. A
    decision that already has a file is not written again.
    """
    made = [one for one in decisions if one.state.committed is not None]
    texts = {path: text for path, text in existing.items() if _parse_number(path)}
    files = {id: path for path, text in texts.items() for id in _ID_LINE.findall(text)[:1]}
    new: dict[str, str] = {}
    number = find_next_number(existing)
    for record in sorted(made, key=lambda one: one.committed_at or 0.0):
        if record.id not in files:
            files[record.id] = new[record.id] = make_adr_path(number, record.state.proposal.topic)
            number += 1
    written = {
        path: render_decision(record, number=_format_number(_parse_number(path)), files=files)
        for record in made
        if (path := new.get(record.id)) is not None
    }
    return written | _update_superseded(made, files, texts)


def _update_superseded(
    made: list[DecisionRecord], files: Mapping[str, str], texts: Mapping[str, str]
) -> dict[str, str]:
    """Return the existing files of the decisions that these decisions replace, with the new status in their content."""
    changed: dict[str, str] = {}
    for record in made:
        path = files.get(record.state.proposal.supersedes, "")
        if path in texts:
            text = _replace_status(texts[path], f"superseded by {link_decision(record.id, files)}")
            if text != texts[path]:
                changed[path] = text
    return changed


def _replace_status(text: str, status: str) -> str:
    found = _STATUS_LINE.search(text)
    return text if found is None else f"{text[: found.start()]}- Status: {status}{text[found.end() :]}"


def find_next_number(names: Iterable[str]) -> int:
    """Return the number after the highest number of a decision record among these files."""
    return max(map(_parse_number, names), default=0) + 1


def make_adr_path(number: int, title: str) -> str:
    """Return the path of a decision record: `docs/adr/0007-which-drink.md`."""
    words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:LONGEST_FILE_TITLE].strip("-")
    return f"{ADR_FOLDER}/{_format_number(number)}-{words or 'decision'}.md"


def _format_number(number: int) -> str:
    return f"{number:04}"


def _parse_number(path: str) -> int:
    """Return the number of a decision record, or 0 for any other file."""
    found = _ADR_NAME.search(path) if path.startswith(f"{ADR_FOLDER}/") else None
    return 0 if found is None else int(found[1])
