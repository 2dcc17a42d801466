"""A merge that is completed on the page ends like one in the terminal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import httpx
import pytest

from podium.testing import ModelServer
from podium.web.api.access_tokens import SCOPES
from podium.web.serving import ServeOptions, open_server

from ..cli.test_joint_merge import BRANCH, work_in_both
from ..cli.worker_runs import open_lab
from ..workers.travel_lab import TravelLab
from ..workers.worker_lab import WorkerLab, write
from ..workspace.merging import Repo


class Client(httpx.AsyncClient):
    """A client that sends commands to the server of a lab."""

    async def command(self, path: str, body: object, status: int) -> Any:
        response = await self.post(path, json=body)
        assert response.status_code == status, response.text
        return response.json()

    async def merge(self, branch: str) -> Any:
        """Preview the merge of a branch, complete it, and return the reply."""
        built = await self.command("/api/merges", {"branches": [branch]}, 201)
        reviewed = {key: built[key] for key in ("target", "base", "commit", "tree")}
        return await self.command("/api/merges/apply", reviewed, 200)


@asynccontextmanager
async def open_client(lab: WorkerLab, channel: Literal["page", "api"] = "page") -> AsyncIterator[Client]:
    """Start a server in a lab, and sign in."""
    async with open_server(lab.settings(), ServeOptions(repo=lab.repo.path, port=0)) as server:
        secret, _ = server.context.tokens.create_token("test", SCOPES, channel=channel)
        headers = {"Authorization": f"Bearer {secret}"}
        async with Client(base_url=server.address, headers=headers, timeout=60) as client:
            yield client


@pytest.fixture
async def travel_lab() -> AsyncIterator[TravelLab]:
    with TemporaryDirectory(prefix="pdm-") as folder:
        async with ModelServer() as server:
            lab = TravelLab(Path(folder).resolve(), server)
            try:
                yield lab
            finally:
                await lab.close()


async def test_it_removes_what_the_merged_worker_pushed_to_the_remote(travel_lab: TravelLab) -> None:
    lab = travel_lab
    run = await lab.delegate_moving("feat/one", write("one.txt", "one\n"), "done")
    other = await lab.delegate_moving("feat/two", write("two.txt", "two\n"), "done")
    lab.start_commander()
    for worker in (run, other):
        assert (await lab.wait_ended(worker)).outcome == "succeeded", lab.logs(worker)
    await lab.wait_finished()
    pushed = lab.list_remote_refs()

    async with open_client(lab) as client:
        answer = await client.merge("feat/one")

    assert any(run in ref for ref in pushed)
    assert answer["notices"] == []
    assert (lab.repo.path / "one.txt").read_text() == "one\n"
    assert lab.list_remote_refs() == [ref for ref in pushed if run not in ref]
    assert lab.repo.git("branch", "--list", "podium/merge-*") == ""


@pytest.mark.parametrize("channel", ["page", "api"])
async def test_the_reflog_names_the_interface(channel: Literal["page", "api"]) -> None:
    async with open_lab() as lab:
        lab.repo.branch("feat/mine", {"mine.txt": "mine\n"})

        async with open_client(lab, channel) as client:
            built = await client.command("/api/merges", {"branches": ["feat/mine"]}, 201)
            made = lab.repo.git("reflog", "-1", "--format=%gs", built["branch"])
            await client.merge("feat/mine")

        assert (lab.repo.path / "mine.txt").exists()
        assert made.endswith(f"({channel})")
        assert lab.repo.git("reflog", "-1", "--format=%gs", "main").endswith(f"({channel})")


async def test_it_finishes_a_merge_in_several_repositories_that_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_lab() as lab:
        monkeypatch.chdir(lab.repo.path)
        other = Repo(lab.folder / "other")
        await work_in_both(lab, other)
        before = other.tip()
        died = await lab.run_podium("merge", BRANCH, "--yes", PODIUM_FAULT="2")
        assert (died.returncode, other.tip()) == (137, before)
        lab.repo.branch("feat/mine", {"mine.txt": "mine\n"})

        async with open_client(lab) as client:
            built = await client.command("/api/merges", {"branches": ["feat/mine"]}, 201)

        finished = f"an interrupted merge into main in {lab.root} and main in {other.path} was completed"
        assert finished in built["notices"]
        assert (other.path / "two.txt").read_text() == "two\n"
        assert other.git("reflog", "-1", "--format=%gs", "main").endswith("(command)")
        assert [repo.git("status", "--short") for repo in (lab.repo, other)] == ["", ""]
