"""Name and number decision record (ADR) files, and renumber and link a branch's records when it is merged."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import count
from urllib.parse import unquote

from .decision_record import DecisionRecord, link_decision, render_decision

ADR_FOLDER = "docs/adr"
LONGEST_FILE_TITLE = 60
_ADR_NAME = re.compile(r"(?:^|/)(\d{4,})-[^/]*\.md$")
_ID_LINE = re.compile(r"^- Decision: `([^`]+)`", re.MULTILINE)
_STATUS_LINE = re.compile(r"^- Status: .*$", re.MULTILINE)
_LINKING_LINE = re.compile(r"^- (?:Status|Supersedes): .*$", re.MULTILINE)
_LINK = re.compile(r"\[\d+\]\(([^()\s]+)\)")
_UNLINKED = re.compile(r"^- Supersedes: `([^`]+)`$", re.MULTILINE)
_TITLE_NUMBER = re.compile(r"\A# \d+(?=\. )")


def render_adr_files(decisions: Iterable[DecisionRecord], existing: Mapping[str, str]) -> dict[str, str]:
    """Return the files to write for these decisions, keyed by path: new records, and records that are now superseded.

    `existing` maps the paths of the files in the target tree to their content; only the content of decision records is
    read. A committed decision without a file gets the next free number in the target. Decisions that are not committed
    get no file.
    """
    made = [one for one in decisions if one.state.committed is not None]
    texts = {path: text for path, text in existing.items() if _parse_number(path)}
    files = find_recorded_decisions(texts)
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
    """Return the updated files of the existing decisions that these decisions supersede, keyed by path."""
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


def find_recorded_decisions(files: Mapping[str, str]) -> dict[str, str]:
    """Return the paths of the decision records among these files, keyed by decision id."""
    found: dict[str, str] = {}
    for path, text in files.items():
        for id in _ID_LINE.findall(text)[:1] if _parse_number(path) else ():
            found.setdefault(id, path)
    return found


# Renumbering


def renumber_adr_files(
    arriving: Mapping[str, str], target: Mapping[str, str], base: Mapping[str, str]
) -> dict[str, str | None]:
    """Renumber a branch's records to fit the target.

    Return the changed files, keyed by path, with None for each removed file. The arguments map the paths of the
    files in the ADR folder to their content: on the branch, on the target, and at their merge base. A record that the
    target also has gets the target's number. If the target uses the number of a new record for another file, all new
    records get the next free numbers, in the same order. Files without a decision id keep their numbers, because users
    write these files and link to them.
    """
    moved = _plan_moves(arriving, target, base)
    changes: dict[str, str | None] = dict.fromkeys(moved)
    for path in find_recorded_decisions(arriving).values():
        new = moved.get(path, path)
        text = _LINKING_LINE.sub(partial(_follow_moves, moved), arriving[path])
        if new != path:
            text = _TITLE_NUMBER.sub(f"# {_format_number(_parse_number(new))}", text)
        if new != path or text != arriving[path]:
            changes[new] = text
    return changes


def _plan_moves(arriving: Mapping[str, str], target: Mapping[str, str], base: Mapping[str, str]) -> dict[str, str]:
    """Return the new paths of the records that move, keyed by their old paths."""
    own, there, before = map(find_recorded_decisions, (arriving, target, base))
    moved = {path: there[id] for id, path in own.items() if id in there and there[id] != path}
    new = sorted((path for id, path in own.items() if id not in there and id not in before), key=_parse_number)
    used = set(map(_parse_number, target))
    if any(_parse_number(path) in used for path in new):
        kept = {_parse_number(path) for path in arriving if path not in moved and path not in new}
        moved |= dict(zip(new, _iter_free_paths(new, find_next_number(target), kept), strict=True))
    staying = arriving.keys() - moved.keys()
    return {old: path for old, path in moved.items() if path != old and path not in staying}


def _iter_free_paths(paths: Iterable[str], first: int, taken: Collection[int]) -> Iterator[str]:
    """Yield a renumbered path for each path. The new numbers start at `first`; numbers in `taken` are skipped."""
    numbers = (number for number in count(first) if number not in taken)
    for path in paths:
        title = path.rpartition("/")[2].partition("-")[2]
        yield f"{ADR_FOLDER}/{_format_number(next(numbers))}-{title}"


def _follow_moves(moved: Mapping[str, str], line: re.Match[str]) -> str:
    """Return a line of a record, with its links to renamed records updated."""

    def follow_link(link: re.Match[str]) -> str:
        new = moved.get(f"{ADR_FOLDER}/{unquote(link[1])}")
        return link[0] if new is None else link_decision("", {"": new})

    return _LINK.sub(follow_link, line[0])


def link_adr_files(files: Mapping[str, str]) -> dict[str, str]:
    """Add missing links between each record and the record that it supersedes, in both directions.

    Links are missing if the two records come from different branches. Return the changed records, keyed by path.
    """
    paths = find_recorded_decisions(files)
    changed: dict[str, str] = {}
    for id, path in paths.items():
        text = changed.get(path, files[path])
        replaced = _UNLINKED.search(text)
        if replaced is None or (old := paths.get(replaced[1], path)) == path:
            continue
        link = f"- Supersedes: {link_decision(replaced[1], paths)}"
        changed[path] = f"{text[: replaced.start()]}{link}{text[replaced.end() :]}"
        status = f"superseded by {link_decision(id, paths)}"
        changed[old] = _replace_status(changed.get(old, files[old]), status)
    return changed
