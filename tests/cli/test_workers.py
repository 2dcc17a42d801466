"""`podium workers`: real workers under a real commander, seen and steered from the command line."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import AsyncIterator

import pytest
from anyio import to_thread

from podium.cli.workers.cancel import cancel_worker
from podium.cli.workers.resume import resume_workers
from podium.cli.workers.worker_lookup import RepoContext
from podium.core.timeline import Timeline
from podium.store.sqlite.store import SqliteStore
from podium.values.errors import Mistake, RunOver
from podium.values.event import RunEnded, RunPaused, RunResumed, WorkerReturned, WorkerSent
from podium.views.worker_state import WorkerState, WorkerStateBuilder
from podium.workers.commander_socket import bind_socket, commander_socket_path

from ..workers.worker_lab import SILENT, Yard, call, gone, hand, write
from .conftest import Desk
from .worker_runs import opened, say, told


@pytest.fixture
async def yard(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Yard]:
    async with opened() as yard:
        monkeypatch.chdir(yard.repo.path)
        yield yard


async def states(yard: Yard) -> dict[str, str]:
    return {one["branch"]: one["state"] for one in (await told(yard, "workers"))["workers"]}


async def test_without_workers_it_says_so_and_makes_nothing(yard: Yard) -> None:
    said = await say(yard, "workers")

    assert (said.exit_code, said.stdout) == (0, "")
    assert said.stderr == 'no workers yet; podium delegate BRANCH "task" hires one\n'
    assert not yard.store.exists()


async def test_waiting_starts_a_commander_for_what_nobody_has_begun(yard: Yard) -> None:
    run = await yard.hire("feat/a", write("new.txt", "one\ntwo\n"), "written")
    assert await states(yard) == {"feat/a": "queued"}
    assert "queued" in (await say(yard, "ps")).stdout

    waited = await say(yard, "workers", "wait")

    assert (waited.exit_code, waited.stdout) == (0, "feat/a: complete\n")
    assert "complete" not in waited.stderr
    again = await say(yard, "workers", "wait", "feat/a")
    assert (again.stdout, again.stderr) == ("feat/a: complete\n", "")
    narrow = (await say(yard, "workers", COLUMNS="60")).stdout.splitlines()
    assert narrow[0].split() == ["WORKER", "BRANCH", "STATE", "LINES", "TASK"]
    lines = (await say(yard, "workers", COLUMNS="200")).stdout.splitlines()
    assert lines[0].split() == ["WORKER", "BRANCH", "STATE", "TOOL", "LINES", "TOKENS", "COST", "WAITS", "TASK"]
    assert lines[1].split()[:6] == [run, "feat/a", "complete", "-", "+2", "-0"]
    assert (await say(yard, "workers", "output", run[:6])).stdout == "written\n"
    assert "+two" in (await say(yard, "workers", "diff", "feat/a")).stdout
    assert "1 file changed" in (await say(yard, "workers", "diff", "feat/a", "--stat")).stdout
    assert "feat/a" in (await say(yard, "workers", "logs", "feat/a", "-f")).stdout
    one = await told(yard, "workers", "status", "feat/a")
    assert (one["files"], one["added"], one["answer"]) == (["new.txt"], 2, "written")
    cleaned = (await say(yard, "workers", "cleanup", "--dry-run")).stdout
    assert cleaned == f"kept: feat/a in {yard.path('feat/a')}: it has 1 commit that is not merged\n"


async def test_a_commander_whose_workers_have_not_begun_is_waited_for_and_no_other_is_started(yard: Yard) -> None:
    await yard.hire("feat/a", "never said")

    with bind_socket(commander_socket_path(yard.store)):
        waited = await say(yard, "workers", "wait", "--timeout", "0.1")

    assert waited.exit_code == 5
    assert not (yard.home / "logs" / "commander.log").exists()


async def test_what_is_on_the_branch_of_a_worker_is_shown_when_its_folder_is_gone(yard: Yard) -> None:
    run = await yard.hire("feat/a", write("new.txt"), "written", allow=())
    yard.command()
    await yard.asked(run)
    folder = yard.path("feat/a")
    (folder / "mine.txt").write_text("one\n")
    yard.repo.git("-C", str(folder), "add", "mine.txt")
    yard.repo.git("-C", str(folder), "commit", "-qm", "Mine")
    shutil.rmtree(folder)

    said = await say(yard, "workers", "diff", "feat/a")

    assert "+one" in said.stdout
    assert said.stderr == f"feat/a: its folder {folder} is gone; this is what its branch has\n"


async def test_a_worker_that_asks_can_be_cancelled_and_its_successor_fails(yard: Yard) -> None:
    asking = await yard.hire("feat/a", write("new.txt"), "written", allow=())
    await yard.hire("feat/b", "never said", follows=["feat/a"])
    yard.command()
    asked = await yard.asked(asking)

    [first, second] = (await told(yard, "workers"))["workers"]
    late = await say(yard, "workers", "wait", "feat/a", "--timeout", "0")
    detail = (await say(yard, "workers", "status", "feat/a")).stdout
    cancelled = await say(yard, "workers", "cancel", "feat/a")
    waited = await say(yard, "workers", "wait", "feat/b")

    assert (first["state"], first["tool"], first["waiting_for"]) == ("waiting_permission", "write_file", [asked.id])
    assert (second["state"], second["after"]) == ("queued", [asking])
    assert (late.exit_code, cancelled.exit_code, waited.exit_code) == (5, 0, 1)
    assert f"podium approvals {asked.id}" in detail
    assert await states(yard) == {"feat/a": "cancelled", "feat/b": "failed"}
    output = await say(yard, "workers", "output", "feat/a")
    assert (output.exit_code, output.stdout) == (1, "")
    assert "feat/a has no answer (cancelled)" in output.stderr
    again = await say(yard, "workers", "cancel", "feat/a")
    assert again.exit_code == 2
    assert "feat/a is over already (cancelled)" in again.stderr


async def test_resume_leaves_workers_to_the_commander(yard: Yard) -> None:
    run = await yard.hire("feat/a", write("new.txt"), "written", allow=())
    commander = yard.command()
    asked = await yard.asked(run)
    commander.kill()
    commander.wait()
    await yard.deserted()
    # One that is ending shows nothing of where it belongs any more, and has not ended yet.
    for event in yard.events(run, RunResumed):
        await gone(event.pid)
    assert await states(yard) == {"feat/a": "resumable"}
    assert (await told(yard, "workers", "status", "feat/a"))["waiting_for"] == [asked.id]
    await say(yard, "approve", asked.id)
    answered = await told(yard, "workers", "status", "feat/a")
    assert (answered["waiting_since"], answered["waiting_for"]) == (None, [])

    resumed = await say(yard, "resume")
    waited = await say(yard, "workers", "wait", "feat/a")

    assert (resumed.exit_code, resumed.stdout) == (0, "")
    assert resumed.stderr.startswith("the commander goes on with feat/a in the background")
    assert waited.exit_code == 0, waited.stderr
    assert (await told(yard, "workers", "status", "feat/a"))["restarts"] == 1


async def test_a_paused_worker_and_its_successor_are_not_waited_for_and_it_goes_on_when_named(yard: Yard) -> None:
    run = await yard.hire("feat/a", write("new.txt"), "another way", allow=())
    await yard.hire("feat/b", "never said", follows=["feat/a"])
    yard.command()
    asked = await yard.asked(run)
    await say(yard, "deny", asked.id, "--pause")
    await yard.wait_for(run, RunPaused)

    waited = await say(yard, "workers", "wait")
    named = await say(yard, "resume", run)

    assert waited.exit_code == 1
    assert waited.stdout == "feat/a: paused, it is paused\nfeat/b: queued, nobody has begun with it yet\n"
    assert "goes on with feat/a" in named.stderr
    assert (await yard.ended(run)).outcome == "succeeded"


async def test_a_worker_is_spoken_to_by_its_branch(yard: Yard) -> None:
    run = await yard.hire("feat/a", "never said")

    first = await say(yard, "send", "feat/a", "be brief")
    named = await say(yard, "send", "feat/a/hand", "be kind")
    nobody = await say(yard, "send", "feat/z", "hello?")

    assert f"nobody works on run {run} now" in first.stderr
    assert f"nobody works on run {run} now" in named.stderr
    assert "there is no run 'feat'" in nobody.stderr


async def test_a_worker_is_paused_limited_and_stopped_by_its_branch(yard: Yard) -> None:
    first = await yard.hire("feat/a", "never said")
    second = await yard.hire(first[:6], "never said either")

    paused = await say(yard, "pause", "feat/a")
    limited = await say(yard, "budget", "feat/a", "turns=7")
    stopped = await say(yard, "stop", first[:6])
    ended = await say(yard, "stop", "feat/a")

    assert f"paused; go on with: podium resume {first}" in paused.stderr
    assert f"run {first} now: turns=7 will hold" in limited.stderr
    assert f"run {second} has ended (cancelled)" in stopped.stderr
    assert f"run {first} has ended (cancelled)" in ended.stderr
    assert "there is no run 'feat/z'" in (await say(yard, "stop", "feat/z")).stderr


async def test_a_worker_that_was_cancelled_just_before_it_was_to_go_on_stays_so(yard: Yard) -> None:
    run = await yard.hire("feat/a", "never said")
    await say(yard, "pause", run)
    seen = worker_of(yard, run)
    await say(yard, "workers", "cancel", "feat/a")

    with pytest.raises(RunOver, match=r"has ended \(cancelled\) and stays as it is"):
        await to_thread.run_sync(resume_workers, yard.settings(), [seen])

    assert seen.state == "paused"
    assert isinstance(yard.events(run)[-1], RunEnded)


@pytest.mark.parametrize(("setting", "words"), [("max_restarts: 0\n", ()), ("", ("--max-restarts", "0"))])
async def test_a_worker_that_may_not_be_started_again_has_failed_when_it_crashes(
    yard: Yard, setting: str, words: tuple[str, ...]
) -> None:
    yard.agent(hand(SILENT))
    yard.set(setting)
    run = (await say(yard, "delegate", "feat/a", "go", "--agent", "hand", *words)).stdout.strip()
    worker = await yard.worker(run)
    await yard.called(1)

    worker.kill()
    ended = await yard.ended(run)

    assert "process exited with code -9 (start 1)" in str(ended.failure)


async def test_a_worker_that_ends_just_before_it_was_to_be_cancelled_is_said_to_be_over(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(yard.home))
    run = await yard.hire("feat/a", "done")
    seen = worker_of(yard, run)
    yard.command()
    await yard.ended(run)

    with pytest.raises(Mistake, match=r"^feat/a is over already \(complete\), so there is nothing to cancel$"):
        await to_thread.run_sync(cancel_worker, RepoContext(yard.repo.path), seen)

    assert seen.state == "queued"


def worker_of(yard: Yard, run: str) -> WorkerState:
    course = WorkerStateBuilder()
    for entry in yard.entries(run):
        course.apply(entry)
    return course.build_state(owner_alive=False)


async def test_the_workers_of_other_repositories_are_listed_only_when_asked_for(yard: Yard) -> None:
    await yard.hire("feat/a", SILENT)
    other = yard.folder / "other"
    other.mkdir()
    yard.repo.git("init", "-q", str(other))

    here = await say(yard, "workers", "--repo", str(other))
    everywhere = await say(yard, "workers", "--repo", str(other), "--all")

    assert (here.stdout, here.stderr) == ("", 'no workers yet; podium delegate BRANCH "task" hires one\n')
    assert "feat/a" in everywhere.stdout


async def test_who_is_not_there_is_told_of_who_is(yard: Yard) -> None:
    await yard.hire("feat/a", SILENT)

    said = await say(yard, "workers", "status", "feat/z")

    assert said.exit_code == 2
    assert said.stderr == "podium: there is no worker 'feat/z' here; there are: feat/a\n"
    assert yard.processes() == []


async def test_an_id_that_several_workers_share_the_beginning_of_is_told_with_all_of_them(yard: Yard) -> None:
    for run, branch in (("abc1", "feat/a"), ("abc2", "feat/b"), ("abd3", "feat/c")):
        await yard.hire(branch, "done", run=run)

    said = await say(yard, "workers", "status", "abc")

    assert said.exit_code == 2
    assert "several workers' ids: abc1 (feat/a), abc2 (feat/b); give more" in said.stderr
    assert (await say(yard, "workers", "status", "abd")).exit_code == 0


async def test_the_results_of_a_run_tell_of_the_workers_that_it_sent(yard: Yard) -> None:
    parent = await yard.hire("lead", SILENT)
    child = await yard.hire("feat/a", write("new.txt"), "# written", parent=parent)
    await note(yard, parent, WorkerSent(run=child, branch="feat/a", task="write it"))
    await say(yard, "workers", "cancel", "lead")
    await say(yard, "workers", "wait")

    said = (await say(yard, "results", parent)).stdout
    markdown = (await say(yard, "results", parent, "--markdown")).stdout
    program = await told(yard, "results", parent)
    everybody = await told(yard, "results", "--workers")

    assert f"--- worker feat/a (run {child}): complete" in said
    assert "  feat/a: 1 file, +1 -0, 1 commit; merges onto main" in said
    assert "### feat/a: complete" in markdown
    assert "> \\# written" in markdown
    assert [one["id"] for one in program["workers"]] == [child]
    assert program["forecast"]["onto_target"][0]["merges"]
    assert [one["branch"] for one in everybody["workers"]] == ["lead", "feat/a"]


async def test_workers_of_workers_are_told_of_and_so_are_those_that_could_not_be_sent(yard: Yard) -> None:
    parent = await yard.hire("lead", SILENT)
    child = await yard.hire("feat/a", SILENT, parent=parent)
    grandchild = await yard.hire("feat/b", SILENT, parent=child)
    why = "no worker could be sent: a worker is on 'feat/a' already"
    lost = WorkerSent(run="lost", branch="feat/a", task="write it again")
    await note(yard, parent, WorkerSent(run=child, branch="feat/a", task="write it"), lost)
    await note(yard, parent, WorkerReturned(run="lost", outcome="failed", error=why))
    await note(yard, child, WorkerSent(run=grandchild, branch="feat/b", task="test it"))

    said = (await say(yard, "results", parent)).stdout
    markdown = (await say(yard, "results", parent, "--markdown")).stdout
    program = await told(yard, "results", parent)

    assert [one["id"] for one in program["workers"]] == [child, grandchild]
    assert program["unsent"] == [{"id": "lost", "branch": "feat/a", "task": "write it again", "why": why}]
    assert f"--- worker feat/a: not sent\n  task: write it again\nno answer: {why}" in said
    assert "### feat/a: not sent" in markdown


async def test_what_a_worker_has_in_its_checkout_so_far_is_in_the_report(yard: Yard) -> None:
    run = await yard.hire("feat/a", write("new.txt"), call("bash", command="true"), allow=("Write",))
    yard.command()
    await yard.asked(run)

    said = (await say(yard, "results", "--workers")).stdout
    [worker] = (await told(yard, "results", "--workers"))["workers"]

    assert "  so far +0 -0 (1 new), not committed\n" in said
    assert worker["new_files"] == 1


async def test_all_workers_of_a_repository_are_summed_up_by_the_agent_worker(yard: Yard) -> None:
    await yard.hire("feat/a", write("new.txt"), "It is written.")
    unbegun = await say(yard, "results", "--workers", "--synthesis")
    await say(yard, "workers", "wait")
    agents = yard.repo.path / ".podium" / "agents"
    agents.mkdir(parents=True)
    (agents / "worker.md").write_text('---\ntools: [Write]\n---\n```script\n["feat/a is ready to merge."]\n```\n')

    said = await yard.podium("results", "--workers", "--synthesis")

    [run] = [
        one["id"]
        for one in (await told(yard, "ps"))["runs"]
        if one["request"].startswith("Sum up the report on the workers of repo ")
    ]
    assert unbegun.stderr == "there is nothing to sum up yet\n"
    assert said.returncode == 0, said.stderr
    assert said.stdout.endswith(f"\n\nSynthesis by worker (run {run}):\nfeat/a is ready to merge.\n")
    asked = yard.events(run)[0].request.text
    assert "> ### feat/a: complete" in asked
    assert "> - files: new.txt" in asked
    assert "> > It is written." in asked


async def note(yard: Yard, run: str, *events: WorkerSent | WorkerReturned) -> None:
    """Put events on a run's timeline, as its own process would."""
    async with SqliteStore(yard.store) as store:
        lease = await store.claim_run(run)
        timeline = Timeline(run, lease)
        timeline.load(await store.read_rows(run))
        timeline.append(RunResumed(host="here", pid=1), scope="")
        for event in events:
            timeline.append(event, scope="")
        store.release_run(lease)
        await timeline.wait_written()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--model", "sonnet"], "worker thinks with a model of anthropic, but ANTHROPIC_API_KEY is not set"),
        (["--model", " "], "--model is empty; name one, or leave it out"),
        (["--auto-approve", "Bash(git *),nosuchtool,git_diff,mcp__x__y"], "names nosuchtool, and there is no"),
        (["--timeout", "nan"], "'nan' is no number of seconds"),
        (["--timeout", "1e400"], "'1e400' is no number of seconds"),
    ],
)
def test_what_no_worker_could_keep_to_is_refused_and_nobody_is_hired(
    desk: Desk, words: list[str], sentence: str
) -> None:
    git = ["git", "-C", str(desk.repo), "-c", "user.name=A", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", desk.repo], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)

    said = desk.podium("delegate", "feat/a", "go", *words)

    assert (said.returncode, said.stdout) == (2, "")
    assert sentence in said.stderr
    assert json.loads(desk.podium("workers", "--json").stdout)["workers"] == []
