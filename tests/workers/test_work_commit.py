"""The subject of a worker's commit message."""

from __future__ import annotations

import pytest

from podium.workers.work_commit import make_commit_subject


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
