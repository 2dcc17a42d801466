"""A collaboration in a real repository whose process dies at any entry ends like one that was never interrupted."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from podium.core.journal_rows import find_chain_break
from podium.store.fault_injection import refuse_after
from podium.store.reader import StoreReader
from podium.values.event import ActionBegan, ArtifactStored, Checked, DecisionCommitted, ModelReplied, SnapshotTaken

from ..collaboration import Play, add_team, make_plan, make_step, use_tool
from ..studio import Studio
from .test_collaborate import STEP_EVENTS
from .test_collaborate_repository import CODER, repo, run_in, studio, write

__all__ = ["repo", "studio"]

COUNTED = (*STEP_EVENTS, ModelReplied, Checked, DecisionCommitted, ArtifactStored, SnapshotTaken)
STEPS = make_plan(
    make_step("s1", "ada", acceptance=[{"text": "a is there", "command": "test -f a.txt"}]),
    make_step("s2", "bob", policy={"files": 1}),
    make_step("s3", "ada", "s1", "s2"),
)


def make_play() -> Play:
    return Play(
        plan=STEPS,
        vote=use_tool("cast_ballot", option="tabs", reason="wide"),
        **{
            "ada/step:s1": [write("a.txt", "half\n"), use_tool("handoff_step", to="cid", reason="half")],
            "cid/step:s1": [write("a.txt", "whole\n"), "done"],
            "bob/step:s2": [use_tool("raise_blocker", topic="Tabs?", options=["tabs", "spaces"]), write("b.txt"), "ok"],
            "ada/step:s3": [write("c.txt", "one\n"), "first", write("c.txt", "two\n"), "second"],
            "review:s3": ["1: NOT MET: one is missing", "1: MET"],
        },
    )


def read_files(repo: Path) -> dict[str, str]:
    paths = [path for path in repo.rglob("*") if path.is_file() and ".git" not in path.parts]
    return {str(path.relative_to(repo)): path.read_text() for path in paths if path.suffix == ".txt"}


def count_events(studio: Studio, run: str) -> dict[str, int]:
    names = [type(event).__name__ for event in studio.events(run, *COUNTED)]
    return {name: names.count(name) for name in sorted(set(names))}


@pytest.mark.parametrize(
    ("start", "stride"), [(2, 61), *(pytest.param(start, 16, marks=pytest.mark.slow) for start in range(2, 18))]
)
async def test_a_collaboration_in_a_repository_that_dies_at_any_entry_ends_the_same(
    studio: Studio, repo: Path, tmp_path: Path, start: int, stride: int
) -> None:
    add_team(studio, make_play(), "ada", "bob", "cid", agents=dict.fromkeys(("ada", "bob", "cid"), CODER), adr=True)
    untouched = tmp_path / "untouched"
    shutil.copytree(repo, untouched)
    whole = await run_in(studio, repo)
    assert whole.succeeded, whole.error
    files, events = read_files(repo), count_events(studio, whole.run_id)
    assert files == {"a.txt": "whole\n", "b.txt": "x\n", "c.txt": "two\n", "kept.txt": "kept\n"}

    for number in range(start, len(studio.entries(whole)) + 1, stride):
        folder = tmp_path / f"r{number}"
        shutil.copytree(untouched, folder)
        studio.respond = make_play()
        async with studio.app(fault=refuse_after(number)) as app:
            first = await app.run(studio.agents["lead"], "ship it", agents=studio.agents.values(), repo=folder)
        studio.expire_leases()
        result = first if first.succeeded else await studio.resume(first.run_id)

        assert (result.text, result.outcome) == (whole.text, whole.outcome), (number, result.error)
        assert read_files(folder) == files, number
        assert count_events(studio, result.run_id) == events, number
        assert [path.name for path in (folder / "docs" / "adr").iterdir()] == ["0001-tabs.md"], number
        writes = [one.action.id for one in studio.events(result, ActionBegan) if one.action.outputs]
        assert len(writes) == len(set(writes)) == 5, number
        assert list_kept(folder) == {"plan", "s1", "s1-1", "s2", "s2-1", "s3", "s3-1", "s3-2"}, number
        with StoreReader(studio.settings.store) as reader:
            assert find_chain_break(reader.read_rows(result.run_id)) is None


def list_kept(repo: Path) -> set[str]:
    """Return the names of the snapshots whose commits are kept from git's garbage collection."""
    refs = subprocess.check_output(["git", "-C", repo, "for-each-ref", "--format=%(refname)", "refs/podium"], text=True)
    return {ref.split("/")[4] for ref in refs.split() if not ref.startswith("refs/podium/undo/")}
