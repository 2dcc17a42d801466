"""A run at the terminal whose members are workers: what they ask is asked there, or denied where nobody is."""

from __future__ import annotations

import json

from anyio import to_thread

from podium.store.sqlite.reader import StoreReader
from podium.values.event import PermissionAnswered, ToolAnswered, WorkerSent

from ..cli.conftest import Desk
from ..cli.test_terminal import Terminal
from .worker_lab import Yard, bash, hand


def crew(yard: Yard) -> Desk:
    """A desk in the yard, with a team whose one member works away."""
    yard.agent(hand(bash("touch one.txt"), "The member is done."))
    team = {"mode": "broadcast", "members": ["hand"], "worktrees": "each"}
    text = f"---\ndescription: A crew.\nteam: {json.dumps(team)}\n---\nLead.\n"
    (yard.home / "agents" / "crew.md").write_text(text)
    return Desk(repo=yard.repo.path, home=yard.home, environment=yard.environ)


async def test_what_a_worker_asks_is_asked_at_the_terminal_of_the_run_that_sent_it(yard: Yard) -> None:
    def answered() -> int:
        terminal = Terminal(crew(yard), "run", "crew", "go")
        terminal.wait_for("[y] once")
        assert any("touch one.txt" in line for line in terminal.lines)
        terminal.process.send("y")
        return terminal.end()

    assert await to_thread.run_sync(answered) == 0

    [sent] = sent_by_all(yard)
    assert [answer.by for answer in yard.events(sent.run, PermissionAnswered)] == ["terminal"]
    assert yard.file(sent.branch, "one.txt") == ""
    await yard.deserted()


async def test_where_nobody_is_at_the_terminal_a_worker_is_denied_what_the_run_would_be(yard: Yard) -> None:
    crew(yard)

    done = await yard.podium("run", "crew", "go")

    assert done.returncode == 0, done.stderr
    [sent] = sent_by_all(yard)
    assert "nobody is there to ask" in yard.events(sent.run, ToolAnswered)[0].text
    await yard.deserted()


def sent_by_all(yard: Yard) -> list[WorkerSent]:
    with StoreReader(yard.store) as reader:
        runs = [summary.id for summary in reader.list_runs()]
    return [event for run in runs for event in yard.events(run, WorkerSent)]
