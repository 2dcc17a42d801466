"""Teams whose process really dies, in every mode: another process resumes the run, with the same result."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from podium.core.journal_rows import find_chain_break
from podium.store.fault_injection import EXIT_CODE
from podium.store.reader import StoreReader
from podium.values.event import ModelReplied, RunEnded

from .preloaded_podium import run_podium_command

MODES = ("broadcast", "sequential", "orchestrate", "reflect", "discuss")
MAX_ENTRIES = 80
"""More entries than any of these runs has."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    agents = tmp_path / "repo" / ".podium" / "agents"
    agents.mkdir(parents=True)
    for mode in MODES:
        team = f"---\nteam:\n  mode: {mode}\n  members: [answer, sceptic]\n---\nYou lead.\n"
        (agents / f"{mode}-team.md").write_text(team)
    return tmp_path


def run_podium(place: Path, home: str, *arguments: str, fault: int = 0) -> subprocess.CompletedProcess[str]:
    variables = {"PODIUM_HOME": str(place / home), "PODIUM_MODEL": "rehearsal"}
    if fault:
        variables["PODIUM_FAULT"] = str(fault)
    return run_podium_command(arguments, cwd=place / "repo", env={**os.environ, **variables}, timeout=60)


def crash_and_resume(place: Path, mode: str, number: int, whole: str) -> bool:
    """Crash after this many entries and resume; return False if the run had ended before that."""
    home = f"h{number}"
    died = run_podium(place, home, "run", f"{mode}-team", "Tea or coffee?", "--quiet", fault=number)
    if died.returncode != EXIT_CODE:
        return False
    store = place / home / "podium.db"
    with StoreReader(store) as reader:
        [summary] = reader.list_runs()
    run, last = summary.id, summary.last.event
    if isinstance(last, RunEnded):  # it crashed after its last entry, so there is nothing to resume
        assert last.outcome == "succeeded"
    else:
        resumed = run_podium(place, home, "resume", run, "--quiet")
        assert (resumed.returncode, resumed.stdout) == (0, whole), (number, resumed.stderr)
    with StoreReader(store) as reader:
        calls = Counter(entry.key for entry in reader.read_entries(run) if isinstance(entry.event, ModelReplied))
        assert set(calls.values()) == {1}
        assert find_chain_break(reader.read_rows(run)) is None
    return True


@pytest.mark.parametrize(("mode", "number"), list(zip(MODES, (13, 6, 13, 9, 13), strict=True)))
def test_a_team_whose_process_dies_hard_ends_as_it_would_have(place: Path, mode: str, number: int) -> None:
    whole = run_podium(place, "h", "run", f"{mode}-team", "Tea or coffee?", "--quiet")
    assert whole.returncode == 0, whole.stderr

    assert crash_and_resume(place, mode, number, whole.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_team_whose_process_dies_hard_at_any_entry_ends_as_it_would_have(place: Path, mode: str) -> None:
    whole = run_podium(place, "h", "run", f"{mode}-team", "Tea or coffee?", "--quiet")

    for number in range(1, MAX_ENTRIES):
        if not crash_and_resume(place, mode, number, whole.stdout):
            break
    else:
        pytest.fail("the run never came to its end")
