"""What is accepted when work is delegated, and what is refused at once."""

from __future__ import annotations

from anyio import create_task_group

from podium import App
from podium.errors import Mistake
from podium.processes.delegation import delegate
from podium.store.workers import Crew

from .yard import Yard, hand


async def test_of_several_that_delegate_on_one_branch_at_once_one_is_accepted(yard: Yard) -> None:
    accepted: list[str] = []
    refused: list[str] = []

    async def hire() -> None:
        async with App(yard.settings(), environ=yard.environ) as app:
            try:
                accepted.append(await delegate(app, hand("done"), "go", at=yard.repo.path, branch="feat/one"))
            except Mistake as error:
                refused.append(str(error))

    async with create_task_group() as group:
        for _ in range(4):
            group.start_soon(hire)

    assert [hired.run for hired in Crew(yard.store).all()] == accepted
    assert len(accepted) == 1
    assert refused == ["a worker is on 'feat/one' already; podium workers shows it, and another branch would do"] * 3
