"""What the health checks report about programs that do not work properly."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium.runs.queries.health_checks import Fact, check_git


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("#!/no/such/shell\n", "{} is a script whose interpreter does not exist; correct its first line"),
        ("#!/bin/sh\nsleep 999\n", "timed out after 0.3 s"),
    ],
)
def test_a_git_that_does_not_respond_is_noted_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text(text)
    git.chmod(0o755)
    monkeypatch.setenv("PATH", f"{git.parent}:/usr/bin:/bin")
    monkeypatch.setattr("podium.runs.queries.health_checks.VERSION_SECONDS", 0.3)

    assert check_git(tmp_path / "repo") == Fact("git", "note", f"{git} does not respond: {why.format(git)}")
