"""What a worker is told about its repository, and where it notes things: on its branch, or in the main checkout."""

from __future__ import annotations

import pytest

from podium import App

from .worker_lab import WorkerLab, call, make_scripted_agent


@pytest.mark.parametrize("is_tracked", [True, False])
async def test_a_worker_gets_the_instructions_and_keeps_its_memory_where_the_project_wants_it(
    lab: WorkerLab, is_tracked: bool
) -> None:
    memory = lab.repo.path / ".podium" / "memory" / "hand.md"
    memory.parent.mkdir(parents=True)
    memory.write_text("- tabs\n")
    (lab.repo.path / "AGENTS.md").write_text("Be brief.\n")
    if is_tracked:
        lab.repo.git("add", "--force", ".podium")
        lab.repo.git("commit", "--quiet", "-m", "memory")
    agent = make_scripted_agent(call("update_memory", new="- make"), "done", memory="project")
    async with App(lab.settings(), environ=lab.environ) as app:
        run = await lab.create_worker(app, "feat/one", agent, task="work")
    lab.start_commander()

    assert (await lab.wait_ended(run)).outcome == "succeeded"

    system = lab.server.calls[0].call.system
    assert "> Be brief." in system
    assert "> - tabs" in system
    assert memory.read_text() == ("- tabs\n" if is_tracked else "- tabs\n- make\n")
    if is_tracked:
        assert lab.read_file("feat/one", ".podium/memory/hand.md") == "- tabs\n- make"
    await lab.wait_finished()
    lab.assert_clean_end(run)
