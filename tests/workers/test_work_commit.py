"""A worker's commit: its subject, and what is in it."""

from __future__ import annotations

import pytest

from podium.values.event import WorkCommitted
from podium.workers.work_commit import make_commit_subject

from ..cli.worker_runs import invoke_podium
from .worker_lab import WorkerLab, write


@pytest.mark.parametrize(
    ("request_text", "is_sent", "subject"),
    [
        ("Add a login", False, "Add a login"),
        ("\n# Add a login\n\nwith tests", False, "Add a login"),
        ("Add a login\n## Notes\nnone", False, "Add a login"),
        (
            "## Original User Request (context)\nShip it\n\n## Your Assigned Task\nAdd a login\nsoon",
            True,
            "Add a login",
        ),
        ("Just do it", True, "Just do it"),
        ("", False, ""),
    ],
)
def test_the_subject_of_a_commit_is_the_task(request_text: str, is_sent: bool, subject: str) -> None:
    assert make_commit_subject(request_text, is_sent=is_sent) == subject


async def test_what_tools_generate_is_not_committed_and_does_not_keep_the_checkout(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/a", write("a.py"), write("__pycache__/a.cpython-311.pyc"), "written")
    lab.start_commander()
    await lab.wait_ended(run)

    [committed] = lab.events(run, WorkCommitted)
    assert committed.files == ("a.py",)
    assert lab.repo.git("show", "--name-only", "--format=", "feat/a") == "a.py"
    merged = await invoke_podium(lab, "merge", "feat/a", "--yes", "--repo", lab.root)
    cleaned = await invoke_podium(lab, "workers", "--repo", lab.root, "cleanup")
    assert merged.exit_code == 0, merged.stderr
    assert not lab.worktree_path("feat/a").exists(), cleaned.stdout
