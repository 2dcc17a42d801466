"""Where workers get their checkouts, and that none is created when they exceed the disk quota."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from anyio import to_thread

from podium.core.placement import WorkerOptions
from podium.store.worktree_ledger import Ledger
from podium.values.event import WorkerPlaced

from .worker_lab import LONG, WorkerLab, wait_exited, write

FOLDER = "worktrees: {folder: '../trees/{repo}/{branch}'}\n"
BIG = write("big.txt", "x" * 29_900)


async def test_a_worker_works_in_the_folder_that_the_settings_named_when_it_was_delegated(lab: WorkerLab) -> None:
    lab.write_settings(FOLDER)
    run = await lab.delegate("feat/one", write("one.txt"), "done")
    lab.write_settings(FOLDER.replace("../trees", "../others"))
    lab.start_commander()

    ended = await lab.wait_ended(run)

    [placed] = lab.events(run, WorkerPlaced)
    assert placed.path == str(lab.folder / "trees" / "repo" / "feat-one")
    assert ended.outcome == "succeeded"
    assert lab.read_file("feat/one", "one.txt") == "x"
    assert not (lab.folder / "others").exists()


async def test_a_folder_that_now_leads_into_the_repository_is_not_used(lab: WorkerLab) -> None:
    lab.write_settings(FOLDER)
    run = await lab.delegate("feat/one", "done")
    (lab.folder / "trees").symlink_to(lab.repo.path)
    lab.start_commander()

    ended = await lab.wait_ended(run)

    assert ended.failure is not None
    assert "would be inside the repository" in ended.failure.message
    assert lab.repo.git("branch", "--list", "feat/one") == ""


@pytest.mark.slow
async def test_an_existing_branch_is_used_only_if_it_contains_the_named_base(lab: WorkerLab) -> None:
    other = lab.repo.branch("other", {"other.txt": "x\n"})
    lab.repo.branch("old", {"old.txt": "x\n"})
    lab.repo.branch("young", {"young.txt": "x\n"}, start="other")

    refused = await lab.run_podium("delegate", "old", "go on", "--base", "other")
    taken = await lab.run_podium("delegate", "young", "go on", "--base", "other", "--json")

    assert refused.returncode == 2
    assert "old already exists and does not contain all of other, which it should start from" in refused.stderr
    run = json.loads(taken.stdout)["id"]
    await lab.wait_ended(run)
    await lab.wait_finished()
    [placed] = lab.events(run, WorkerPlaced)
    assert placed.base == other


@pytest.mark.slow
async def test_an_existing_branch_without_the_work_that_its_worker_follows_is_not_used(lab: WorkerLab) -> None:
    lab.repo.branch("old", {"old.txt": "x\n"})
    first = await lab.delegate("feat/one", write("one.txt"), "done")
    second = await lab.delegate("old", "done", options=WorkerOptions(after=("feat/one",)))
    lab.start_commander()

    assert (await lab.wait_ended(first)).outcome == "succeeded"
    ended = await lab.wait_ended(second)

    assert ended.failure is not None
    assert "old already exists and does not contain all of feat/one" in ended.failure.message
    assert not lab.worktree_path("old").exists()


async def test_a_worker_is_refused_when_it_is_delegated_once_the_quota_is_reached(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", BIG, "done")
    lab.start_commander()
    await lab.wait_ended(run)
    await lab.wait_finished()
    lab.write_settings("worktrees: {quota: 20kB}\n")

    said = await lab.run_podium("delegate", "feat/two", "more work", "--repo", lab.root)
    read = await lab.run_podium("delegate", "feat/two", "look", "--read-only", "--repo", lab.root)

    assert said.returncode == 2
    assert re.search(r"use 30\S* kB of the 20 kB that worktrees\.quota", said.stderr)
    assert f"{lab.worktree_path('feat/one')} (30" in said.stderr
    assert "podium worktrees cleanup" in said.stderr
    assert read.returncode == 0, read.stderr


async def test_a_worker_that_was_delegated_before_fails_when_the_quota_is_reached_meanwhile(lab: WorkerLab) -> None:
    lab.write_settings("workers: 1\nworktrees: {quota: 20kB}\n")
    first = await lab.delegate("feat/one", BIG, "done")
    second = await lab.delegate("feat/two", "never said")
    lab.start_commander()

    ended = [await lab.wait_ended(run) for run in (first, second)]

    assert [one.outcome for one in ended] == ["succeeded", "failed"]
    assert ended[1].failure is not None
    assert re.search(r"use 30\S* kB of the 20 kB", ended[1].failure.message)
    assert not lab.worktree_path("feat/two").exists()


async def test_the_size_of_a_checkout_is_recorded_when_its_worker_ends(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", BIG, "done")
    lab.start_commander()
    await lab.wait_ended(run)
    await lab.wait_finished()

    [noted] = await Ledger(lab.store).list_worktrees()

    assert 29_900 <= noted.size < 31_000


async def test_the_commit_of_a_worker_bears_the_persons_name_and_its_agent_and_run(
    lab: WorkerLab,
) -> None:
    lab.repo.git("config", "user.name", "Ada <Lovelace>")
    lab.repo.git("config", "user.email", "ada@example.com")
    run = await lab.delegate("feat/one", write("one.txt"), "done")
    lab.start_commander()
    await lab.wait_ended(run)

    names = lab.repo.git("log", "-1", "--format=%an|%ae|%cn", "feat/one")
    trailers = lab.repo.git("log", "-1", "--format=%(trailers)", "feat/one")

    assert names == "Ada  Lovelace|ada@example.com|Ada  Lovelace"
    assert trailers.split("\n") == ["Podium-Agent: hand", f"Podium-Run: {run}"]


class Registry(BaseHTTPRequestHandler):
    """A package registry with one package."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"package\n")

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


async def test_setup_reaches_the_hosts_that_the_person_granted_and_no_other(lab: WorkerLab) -> None:
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Registry) as granted,
        ThreadingHTTPServer(("127.0.0.1", 0), Registry) as no,
    ):
        for server in (granted, no):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        get = "python3 -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read())'"
        setup = "; ".join(
            f"{get} http://127.0.0.1:{server.server_port}/ > {name}.txt 2>&1"
            for name, server in (("granted", granted), ("refused", no))
        )
        settings = {"network": [f"127.0.0.1:{granted.server_port}"], "worktrees": {"setup": f"{setup}; true"}}
        lab.write_settings(json.dumps(settings))
        run = await lab.delegate("feat/one", "done")
        lab.start_commander()
        assert (await lab.wait_ended(run)).outcome == "succeeded", lab.logs(run)
        for server in (granted, no):
            server.shutdown()

    assert lab.read_file("feat/one", "granted.txt") == "b'package\\n'"
    assert "403" in lab.read_file("feat/one", "refused.txt")


async def test_a_setup_that_was_killed_runs_again_in_its_checkout(lab: WorkerLab) -> None:
    asked, held = threading.Event(), threading.Event()

    class HoldsTheFirst(Registry):
        def do_GET(self) -> None:
            if not asked.is_set():
                asked.set()
                held.wait()
            else:
                super().do_GET()

    with ThreadingHTTPServer(("127.0.0.1", 0), HoldsTheFirst) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        get = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{server.server_port}/').read())"
        setup = f'echo begun >> count.txt; python3 -c "{get}" > package.txt'
        settings = {"network": [f"127.0.0.1:{server.server_port}"], "worktrees": {"setup": setup}}
        lab.write_settings(json.dumps(settings))
        run = await lab.delegate("feat/one", write("one.txt"), "done")
        commander = lab.start_commander()
        await to_thread.run_sync(asked.wait, LONG)

        commander.kill()
        await wait_exited(commander.pid)
        await lab.wait_no_processes()
        lab.start_commander()

        assert (await lab.wait_ended(run)).outcome == "succeeded", lab.logs(run)
        await lab.wait_finished()
        held.set()
        server.shutdown()

    assert lab.read_file("feat/one", "package.txt") == "b'package\\n'"
    assert lab.read_file("feat/one", "count.txt") == "begun\nbegun"
    assert lab.read_file("feat/one", "one.txt") == "x"
    lab.assert_clean_end(run)
