"""A squad's decision inbox: decisions are written there once, and merged without loss or repetition."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.files.squad import parse_decisions
from podium.files.squad.decision_inbox import (
    merge_inbox,
    render_inbox_decision,
    split_inbox_text,
    write_inbox_decisions,
)
from podium.values.errors import Mistake
from podium.values.event import DecisionCommitted, DecisionProposed, Entry, Event, VoteClosed
from podium.views.decision_record import DecisionRecord, collect_decisions

EARLIER = "# Decisions\n\n### 2026-01-02: Use async\n**By:** Ann\n**What:** Always.\n"
NEW = "### 2026-02-03: Split it\n**By:** Bob  \n**What:** In two.\n"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / "repo" / ".squad" / "decisions" / "inbox").mkdir(parents=True)
    return tmp_path / "repo"


def write_inbox(repo: Path, **files: str) -> None:
    for name, text in files.items():
        (repo / ".squad" / "decisions" / "inbox" / f"{name}.md").write_text(text, encoding="utf-8", newline="")


def read_decisions(repo: Path) -> str:
    return (repo / ".squad" / "decisions.md").read_bytes().decode()


def list_inbox(repo: Path) -> list[str]:
    return sorted(path.name for path in (repo / ".squad" / "decisions" / "inbox").iterdir())


def merge(repo: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return merge_inbox(repo, lock=repo.parent / "home" / "lock")


def make_record(id: str = "d1", *, rationale: str = "", topic: str = "Which drink?") -> DecisionRecord:
    events: list[Event] = [
        DecisionProposed(id=id, topic=topic, options=("tea", "coffee"), by="Ada Lovelace"),
        VoteClosed(decision=id, why="complete"),
        DecisionCommitted(decision=id, option="tea", how="decided by lead (tie)", by="lead", rationale=rationale),
    ]
    entries = [Entry(run="r", seq=seq, at=1e9, scope="l", event=event) for seq, event in enumerate(events, 1)]
    return collect_decisions(entries)[0]


def test_the_inbox_is_merged_and_emptied(repo: Path) -> None:
    (repo / ".squad" / "decisions.md").write_text(EARLIER)
    write_inbox(repo, **{"bob-split": NEW, "ann-note": "Just a note."})

    merged, notices = merge(repo)

    assert (merged, notices) == (("ann-note.md", "bob-split.md"), ())
    assert read_decisions(repo) == f"{EARLIER}\n### ann-note\nJust a note.\n\n{NEW}"
    assert [one.title for one in parse_decisions(read_decisions(repo))] == ["Use async", "ann-note", "Split it"]
    assert list_inbox(repo) == []
    assert merge(repo) == ((), ())


def test_without_decisions_yet_the_file_is_created(repo: Path) -> None:
    write_inbox(repo, new=f"# Topic\n\nBody\n\n{NEW}")

    merge(repo)

    assert read_decisions(repo) == f"# Decisions\n\n### Topic\n\nBody\n\n{NEW}"


def test_a_merge_that_was_interrupted_before_the_inbox_was_emptied_repeats_nothing(repo: Path) -> None:
    write_inbox(repo, new=NEW)
    merge(repo)
    once = read_decisions(repo)
    write_inbox(repo, new=NEW.replace("Bob  ", "Bob"), again=NEW)

    merged, _ = merge(repo)

    assert merged == ("again.md", "new.md")
    assert read_decisions(repo) == once
    assert list_inbox(repo) == []


def test_two_decisions_with_the_same_title_are_both_kept(repo: Path) -> None:
    write_inbox(repo, one=NEW, two=NEW.replace("In two.", "In three."))

    merged, notices = merge(repo)

    assert merged == ("one.md", "two.md")
    assert notices == (
        "a decision in .squad/decisions/inbox/two.md has the same title as another one; both are kept: "
        "### 2026-02-03: Split it",
    )
    assert "In two." in read_decisions(repo)
    assert "In three." in read_decisions(repo)


def test_line_endings_and_all_earlier_bytes_stay(repo: Path) -> None:
    earlier = b"\xef\xbb\xbf# Decisions\r\n\r\nodd  \r\n### 2026-01-02: x"
    (repo / ".squad" / "decisions.md").write_bytes(earlier)
    write_inbox(repo, new=NEW)

    merge(repo)

    data = (repo / ".squad" / "decisions.md").read_bytes()
    assert data.startswith(earlier)
    assert b"\n" not in data.replace(b"\r\n", b"")


def test_what_cannot_be_read_stays_in_the_inbox_and_is_named(repo: Path, tmp_path: Path) -> None:
    inbox = repo / ".squad" / "decisions" / "inbox"
    (tmp_path / "secret.md").write_text("### secret\nx")
    (inbox / "a-link.md").symlink_to(tmp_path / "secret.md")
    (inbox / "binary.md").write_bytes(b"\x00\xff")
    os.mkfifo(inbox / "pipe.md")
    (inbox / "notes.txt").write_text("not a decision")
    write_inbox(repo, new=NEW)

    merged, notices = merge(repo)

    assert merged == ("new.md",)
    assert [notice.split()[0].rpartition("/")[2] for notice in notices] == ["a-link.md", "binary.md", "pipe.md"]
    assert list_inbox(repo) == ["a-link.md", "binary.md", "notes.txt", "pipe.md"]
    assert "secret" not in read_decisions(repo)


@pytest.mark.parametrize("data", [b"\xff", b"x" * (2**20 + 1)])
def test_decisions_that_cannot_be_read_are_not_replaced(repo: Path, data: bytes) -> None:
    (repo / ".squad" / "decisions.md").write_bytes(data)
    write_inbox(repo, new=NEW)

    with pytest.raises(Mistake, match=r"\.squad/decisions\.md .*; nothing was changed"):
        merge(repo)

    assert (repo / ".squad" / "decisions.md").read_bytes() == data
    assert list_inbox(repo) == ["new.md"]


def test_a_repository_without_a_squad_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="has no squad"):
        merge(tmp_path)


LINES = st.sampled_from(["### 2026-01-01: x", "## y", "# z", "one", "two  ", "", "```", "> ### q", "~~~"])
TEXTS = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.lists(LINES, max_size=8).map("\n".join))


@given(TEXTS, TEXTS)
def test_nothing_is_lost_or_repeated_however_often_the_inbox_is_merged(
    first: dict[str, str], second: dict[str, str]
) -> None:
    with TemporaryDirectory() as folder:
        repo = Path(folder) / "repo"
        (repo / ".squad" / "decisions" / "inbox").mkdir(parents=True)
        for files in (first, second, first):
            write_inbox(repo, **files)
            merge(repo)

        assert list_inbox(repo) == []
        path = repo / ".squad" / "decisions.md"
        text = path.read_text() if path.exists() else ""
        kept = [line.rstrip() for line in text.splitlines()]
        for name, content in [*first.items(), *second.items()]:
            for block in split_inbox_text(content, title=name):
                wanted = [line.rstrip() for line in block.splitlines()]
                assert any(kept[at : at + len(wanted)] == wanted for at in range(len(kept) + 1))
        before = text
        write_inbox(repo, **(first | second))
        merge(repo)
        assert (path.read_text() if path.exists() else "") == before


def test_a_decision_is_written_to_the_inbox_once(repo: Path) -> None:
    record = make_record(rationale="It is cheap.\n# Cheap")

    [path] = write_inbox_decisions(repo, [record])
    assert write_inbox_decisions(repo, [record]) == []
    merge(repo)
    assert write_inbox_decisions(repo, [record]) == []

    assert path.name == "ada-lovelace-which-drink-d1.md"
    [noted] = parse_decisions(read_decisions(repo))
    assert (noted.title, noted.date, noted.author) == ("Which drink?", "2001-09-09", "Ada Lovelace, lead")
    assert "**What:** tea (decided by lead (tie))" in noted.body
    assert "> It is cheap.\n> \\# Cheap" in noted.body


def test_text_of_agents_cannot_imitate_another_decision() -> None:
    record = make_record(topic="Which?\n### 2026-01-01: Fake", rationale="x\n### Fake\n<!-- podium decision d9 -->")

    text = render_inbox_decision(record)

    assert len(parse_decisions(text)) == 1
    assert "<!-- podium decision d9 -->" not in text


def test_an_inbox_outside_the_repository_is_not_written_to(repo: Path, tmp_path: Path) -> None:
    inbox = repo / ".squad" / "decisions" / "inbox"
    inbox.rmdir()
    (tmp_path / "elsewhere").mkdir()
    inbox.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(Mistake, match="is outside the repository"):
        write_inbox_decisions(repo, [make_record()])

    assert [*(tmp_path / "elsewhere").iterdir()] == []
