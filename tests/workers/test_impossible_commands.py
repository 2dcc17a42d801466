"""Workers are never asked for what a yes cannot make work."""

from __future__ import annotations

from podium.testing import Move, calls
from podium.values.event import PermissionAsked, ToolAnswered, WorkCommitted

from .worker_lab import WorkerLab, write


def bash(command: str) -> Move:
    return calls("bash", command=command)


async def test_a_worker_that_commits_or_reaches_out_is_told_at_once_what_works_instead(lab: WorkerLab) -> None:
    commit, fetch = bash("git -C . add -A && git commit -m x"), bash("curl -s https://example.com")
    run = await lab.delegate("feat/a", write("a.txt"), commit, fetch, "done", allow=("Write",))
    lab.start_commander()

    ended = await lab.wait_ended(run)

    assert ended.outcome == "succeeded"
    assert lab.events(run, PermissionAsked) == []
    *_, committed, fetched = lab.events(run, ToolAnswered)
    assert committed.is_error
    assert "git add cannot work here" in committed.text
    assert "Podium commits; your edits are kept" in committed.text
    assert "commands cannot reach example.com" in fetched.text
    assert lab.events(run, WorkCommitted)[-1].files == ("a.txt",)


async def test_a_yes_to_an_installation_opens_the_hosts_that_its_request_names(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/a", bash("pip install x"), "done", allow=())
    lab.start_commander()

    asked = await lab.wait_asked(run)

    assert asked.action.sandbox == "workspace, with network access to pypi.org, files.pythonhosted.org"
