"""`podium workers`: real workers under a real commander, listed and controlled from the command line."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from anyio import to_thread

from podium.cli.commands.resume import resume_workers
from podium.cli.commands.steer import cancel_worker
from podium.core.placement import WorkerOptions
from podium.core.timeline import Timeline
from podium.store.run_store import RunStore
from podium.testing import make_repository
from podium.values.errors import Mistake, RunOver
from podium.values.event import RunEnded, RunPaused, RunResumed, WorkerReturned, WorkerSent
from podium.views.worker_state import WorkerState, build_worker_state
from podium.workers.commander_socket import bind_socket, commander_socket_path
from podium.workers.queries.worker_listing import WORKER_COLUMNS
from podium.workers.queries.worker_lookup import RepoContext

from ..actors import ADA
from ..workers.worker_lab import SILENT, WorkerLab, call, make_scripted_agent, wait_exited, write
from .conftest import Desk
from .worker_runs import invoke_podium, invoke_podium_json, open_lab


@pytest.fixture
async def lab(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WorkerLab]:
    async with open_lab() as lab:
        monkeypatch.chdir(lab.repo.path)
        yield lab


async def states(lab: WorkerLab) -> dict[str, str]:
    return {one["branch"]: one["state"] for one in (await invoke_podium_json(lab, "workers"))["workers"]}


async def test_without_workers_it_says_so_and_makes_nothing(lab: WorkerLab) -> None:
    said = await invoke_podium(lab, "workers")

    assert (said.exit_code, said.stdout) == (0, "")
    assert said.stderr == 'no workers yet; start one with: podium delegate BRANCH "task"\n'
    assert not lab.store.exists()


async def test_wait_starts_a_commander_for_queued_workers(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/a", write("new.txt", "one\ntwo\n"), "written")
    assert await states(lab) == {"feat/a": "queued"}
    assert "queued" in (await invoke_podium(lab, "ps")).stdout

    waited = await invoke_podium(lab, "workers", "wait")

    assert (waited.exit_code, waited.stdout) == (0, "feat/a: complete\n")
    assert "complete" not in waited.stderr
    again = await invoke_podium(lab, "workers", "wait", "feat/a")
    assert (again.stdout, again.stderr) == ("feat/a: complete\n", "")
    narrow = (await invoke_podium(lab, "workers", COLUMNS="60")).stdout.splitlines()
    assert narrow[0].split() == ["WORKER", "BRANCH", "STATE", "LINES", "TASK"]
    lines = (await invoke_podium(lab, "workers", COLUMNS="200")).stdout.splitlines()
    assert lines[0].split() == ["WORKER", "BRANCH", "STATE", "TOOL", "LINES", "TOKENS", "COST", "WAITS", "TASK"]
    assert lines[1].split()[:6] == [run, "feat/a", "complete", "-", "+2", "-0"]
    assert (await invoke_podium(lab, "workers", "output", run[:6])).stdout == "written\n"
    assert "+two" in (await invoke_podium(lab, "workers", "diff", "feat/a")).stdout
    assert "1 file changed" in (await invoke_podium(lab, "workers", "diff", "feat/a", "--stat")).stdout
    assert "feat/a" in (await invoke_podium(lab, "workers", "logs", "feat/a", "-f")).stdout
    for command in ("show", "logs", "cost", "results", "follow", "verify", "audit", "artifacts"):
        by_branch, by_run = [await invoke_podium(lab, command, name) for name in ("feat/a", run)]
        assert (by_branch.exit_code, by_branch.stdout) == (by_run.exit_code, by_run.stdout), command
        assert by_branch.exit_code == 0, by_branch.stderr
    [listed] = (await invoke_podium_json(lab, "workers"))["workers"]
    assert listed.keys() == {column.name for column in WORKER_COLUMNS} - {"unproved"}
    one = await invoke_podium_json(lab, "workers", "status", "feat/a")
    assert one.keys() == listed.keys() | {"schema"}
    assert (one["files"], one["added"], one["answer"]) == (["new.txt"], 2, "written")
    cleaned = (await invoke_podium(lab, "workers", "cleanup", "--dry-run")).stdout
    assert cleaned == f"kept: feat/a in {lab.worktree_path('feat/a')}: it has 1 unmerged commit\n"


async def test_a_commander_whose_workers_have_not_begun_is_waited_for_and_no_other_is_started(lab: WorkerLab) -> None:
    await lab.delegate("feat/a", "never said")

    with bind_socket(commander_socket_path(lab.store)):
        waited = await invoke_podium(lab, "workers", "wait", "--timeout", "0.1")

    assert waited.exit_code == 5
    assert not (lab.home / "logs" / "commander.log").exists()


async def test_what_is_on_the_branch_of_a_worker_is_shown_when_its_folder_is_gone(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/a", write("new.txt"), "written", allow=())
    lab.start_commander()
    await lab.wait_asked(run)
    folder = lab.worktree_path("feat/a")
    (folder / "mine.txt").write_text("one\n")
    lab.repo.git("-C", str(folder), "add", "mine.txt")
    lab.repo.git("-C", str(folder), "commit", "-qm", "Mine")
    folder.rename(folder.with_name("gone"))

    said = await invoke_podium(lab, "workers", "diff", "feat/a")

    assert "+one" in said.stdout
    assert said.stderr == f"feat/a: {folder} no longer exists; showing its branch instead\n"


async def test_a_worker_that_asks_can_be_cancelled_and_its_successor_fails(lab: WorkerLab) -> None:
    asking = await lab.delegate("feat/a", write("new.txt"), "written", allow=())
    await lab.delegate("feat/b", "never said", options=WorkerOptions(after=("feat/a",)))
    lab.start_commander()
    asked = await lab.wait_asked(asking)

    [first, second] = (await invoke_podium_json(lab, "workers"))["workers"]
    late = await invoke_podium(lab, "workers", "wait", "feat/a", "--timeout", "0")
    detail = (await invoke_podium(lab, "workers", "status", "feat/a")).stdout
    cancelled = await invoke_podium(lab, "workers", "cancel", "feat/a")
    waited = await invoke_podium(lab, "workers", "wait", "feat/b")

    assert (first["state"], first["tool"], first["waiting_for"]) == ("waiting_permission", "write_file", [asked.id])
    assert (second["state"], second["after"]) == ("queued", [asking])
    assert (late.exit_code, cancelled.exit_code, waited.exit_code) == (5, 0, 1)
    assert f"podium approvals {asked.id}" in detail
    assert await states(lab) == {"feat/a": "cancelled", "feat/b": "failed"}
    output = await invoke_podium(lab, "workers", "output", "feat/a")
    assert (output.exit_code, output.stdout) == (1, "")
    assert "feat/a has no answer (cancelled)" in output.stderr
    again = await invoke_podium(lab, "workers", "cancel", "feat/a")
    assert again.exit_code == 2
    assert "feat/a has already ended (cancelled)" in again.stderr


@pytest.mark.slow
async def test_resume_leaves_workers_to_the_commander(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/a", write("new.txt"), "written", allow=())
    commander = lab.start_commander()
    asked = await lab.wait_asked(run)
    commander.kill()
    commander.wait()
    await lab.wait_no_processes()
    # A process that is exiting no longer shows which lab it belongs to, although it still exists.
    for event in lab.events(run, RunResumed):
        await wait_exited(event.pid)
    assert await states(lab) == {"feat/a": "resumable"}
    assert (await invoke_podium_json(lab, "workers", "status", "feat/a"))["waiting_for"] == [asked.id]
    await invoke_podium(lab, "approve", asked.id)
    answered = await invoke_podium_json(lab, "workers", "status", "feat/a")
    assert (answered["waiting_since"], answered["waiting_for"]) == (None, [])

    resumed = await invoke_podium(lab, "resume")
    waited = await invoke_podium(lab, "workers", "wait", "feat/a")

    assert (resumed.exit_code, resumed.stdout) == (0, "")
    assert resumed.stderr.startswith("resuming feat/a in the background")
    assert waited.exit_code == 0, waited.stderr
    assert (await invoke_podium_json(lab, "workers", "status", "feat/a"))["restarts"] == 1


async def test_workers_are_one_choice_among_the_runs_to_resume(lab: WorkerLab) -> None:
    await lab.delegate("feat/a", "done")
    await lab.delegate("feat/b", "done")
    died = await lab.run_podium("run", "answer", "do it", PODIUM_FAULT="4", PODIUM_MODEL="rehearsal")
    assert died.returncode == 137, died.stderr

    listed = await invoke_podium(lab, "resume")

    assert listed.exit_code == 2
    assert listed.stderr.splitlines()[0] == "1 run and 2 workers can be resumed:"
    assert listed.stderr.splitlines()[2].split() == ["2", "workers", "feat/a,", "feat/b"]
    assert await states(lab) == {"feat/a": "queued", "feat/b": "queued"}


async def test_the_estimate_of_a_dry_run_includes_its_workers(lab: WorkerLab) -> None:
    agents = lab.home / "agents"
    agents.mkdir(parents=True)
    team = "team: {mode: broadcast, members: [apart, here]}\n"
    for name, keys in (("lead", team), ("apart", "isolation: process\nmodel: openai:gpt-5\n"), ("here", "")):
        (agents / f"{name}.md").write_text(f"---\ndescription: {name}\n{keys}---\nYou are {name}.\n")

    said = await lab.run_podium("run", "lead", "do it", "--dry-run", "--json", "--model", "openai:gpt-5-mini")

    assert said.returncode == 0, said.stderr
    result = json.loads(said.stdout)
    assert {one["model"]: one["calls"] for one in result["estimate"]["models"]} == {
        "openai:gpt-5-mini": 1,
        "openai:gpt-5": 1,
    }
    assert (result["usage"]["calls"], result["usage"]["usd"], result["usage"]["rehearsed_calls"]) == (0, 0, 2)


@pytest.mark.slow
async def test_a_paused_worker_and_its_successor_are_not_waited_for_and_it_goes_on_when_named(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/a", write("new.txt"), "another way", allow=())
    await lab.delegate("feat/b", "never said", options=WorkerOptions(after=("feat/a",)))
    lab.start_commander()
    asked = await lab.wait_asked(run)
    await invoke_podium(lab, "deny", asked.id, "--pause")
    await lab.wait_for_event(run, RunPaused)

    waited = await invoke_podium(lab, "workers", "wait")
    named = await invoke_podium(lab, "resume", run)

    assert waited.exit_code == 1
    assert waited.stdout == "feat/a: paused, it is paused\nfeat/b: queued, it has not started yet\n"
    assert "resuming feat/a" in named.stderr
    assert (await lab.wait_ended(run)).outcome == "succeeded"


async def test_a_message_is_sent_to_a_worker_by_its_branch(lab: WorkerLab) -> None:
    await lab.delegate("feat/a", "never said")

    first = await invoke_podium(lab, "send", "feat/a", "be brief")
    named = await invoke_podium(lab, "send", "feat/a/hand", "be kind")
    nobody = await invoke_podium(lab, "send", "feat/z", "hello?")

    assert first.stderr == "hand will receive the message when its worker starts\n"
    assert named.stderr == first.stderr
    assert "run 'feat' not found" in nobody.stderr


async def test_a_worker_is_paused_limited_and_stopped_by_its_branch(lab: WorkerLab) -> None:
    first = await lab.delegate("feat/a", "never said")
    second = await lab.delegate(first[:6], "never said either")

    paused = await invoke_podium(lab, "pause", "feat/a")
    limited = await invoke_podium(lab, "budget", "feat/a", "turns=7")
    stopped = await invoke_podium(lab, "stop", first[:6])
    ended = await invoke_podium(lab, "stop", "feat/a")

    assert f"podium resume {first}" in paused.stderr
    assert f"run {first} is not running; turns=7 will apply when it is resumed" in limited.stderr
    assert f"run {second} has ended (cancelled)" in stopped.stderr
    assert f"run {first} has ended (cancelled)" in ended.stderr
    assert "run 'feat/z' not found" in (await invoke_podium(lab, "stop", "feat/z")).stderr


async def test_a_worker_that_was_cancelled_just_before_it_was_to_go_on_stays_so(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/a", "never said")
    await invoke_podium(lab, "pause", run)
    seen = read_worker_state(lab, run)
    await invoke_podium(lab, "workers", "cancel", "feat/a")

    with pytest.raises(RunOver, match=r"has ended \(cancelled\) and cannot be changed"):
        await to_thread.run_sync(resume_workers, lab.settings(), [seen])

    assert seen.state == "paused"
    assert isinstance(lab.events(run)[-1], RunEnded)


@pytest.mark.parametrize(("setting", "words"), [("max_restarts: 0\n", ()), ("", ("--max-restarts", "0"))])
async def test_a_worker_that_may_not_be_started_again_has_failed_when_it_crashes(
    lab: WorkerLab, setting: str, words: tuple[str, ...]
) -> None:
    lab.write_agent(make_scripted_agent(SILENT))
    lab.write_settings(setting)
    run = (await invoke_podium(lab, "delegate", "feat/a", "go", "--agent", "hand", *words)).stdout.strip()
    worker = await lab.wait_worker(run)
    await lab.wait_called(1)

    worker.kill()
    ended = await lab.wait_ended(run)

    assert "process exited with code -9 (attempt 1)" in str(ended.failure)


async def test_cancelling_a_worker_that_has_just_ended_says_that_it_is_over(
    lab: WorkerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(lab.home))
    run = await lab.delegate("feat/a", "done")
    seen = read_worker_state(lab, run)
    lab.start_commander()
    await lab.wait_ended(run)

    with pytest.raises(Mistake, match=r"^feat/a has already ended \(complete\), so there is nothing to cancel$"):
        await to_thread.run_sync(cancel_worker, RepoContext(lab.repo.path), seen, ADA)

    assert seen.state == "queued"


def read_worker_state(lab: WorkerLab, run: str) -> WorkerState:
    return build_worker_state(lab.entries(run), "none")


async def test_the_workers_of_other_repositories_are_listed_only_when_asked_for(lab: WorkerLab) -> None:
    await lab.delegate("feat/a", SILENT)
    other = make_repository(lab.folder / "other")

    here = await invoke_podium(lab, "workers", "--repo", str(other))
    everywhere = await invoke_podium(lab, "workers", "--repo", str(other), "--all")

    assert (here.stdout, here.stderr) == ("", 'no workers yet; start one with: podium delegate BRANCH "task"\n')
    assert "feat/a" in everywhere.stdout


async def test_an_unknown_worker_is_refused_with_a_list_of_the_workers(lab: WorkerLab) -> None:
    await lab.delegate("feat/a", SILENT)

    said = await invoke_podium(lab, "workers", "status", "feat/z")

    assert said.exit_code == 2
    assert said.stderr.startswith("podium: worker 'feat/z' not found")
    assert said.stderr.endswith(" feat/a\n")
    assert lab.list_processes() == []


async def test_an_ambiguous_id_is_refused_with_all_matching_workers(lab: WorkerLab) -> None:
    for run, branch in (("abc1", "feat/a"), ("abc2", "feat/b"), ("abd3", "feat/c")):
        await lab.delegate(branch, "done", run=run)

    said = await invoke_podium(lab, "workers", "status", "abc")

    assert said.exit_code == 2
    assert "matches several workers: abc1 (feat/a), abc2 (feat/b); give more" in said.stderr
    assert (await invoke_podium(lab, "workers", "status", "abd")).exit_code == 0


async def test_the_results_of_a_run_include_its_workers(lab: WorkerLab) -> None:
    parent = await lab.delegate("lead", SILENT)
    child = await lab.delegate("feat/a", write("new.txt"), "# written", parent=parent)
    await append_events(lab, parent, WorkerSent(run=child, branch="feat/a", task="write it"))
    await invoke_podium(lab, "workers", "cancel", "lead")
    await invoke_podium(lab, "workers", "wait")

    said = (await invoke_podium(lab, "results", parent)).stdout
    markdown = (await invoke_podium(lab, "results", parent, "--markdown")).stdout
    program = await invoke_podium_json(lab, "results", parent)
    everybody = await invoke_podium_json(lab, "results", "--workers")

    assert f"--- worker feat/a (run {child}): complete" in said
    assert "  feat/a: 1 file, +1 -0, 1 commit; merges onto main" in said
    assert "### feat/a: complete" in markdown
    assert "> \\# written" in markdown
    assert [one["id"] for one in program["workers"]] == [child]
    assert program["forecast"]["onto_target"][0]["merges"]
    assert [one["branch"] for one in everybody["workers"]] == ["lead", "feat/a"]


async def test_results_include_workers_of_workers_and_those_that_could_not_be_started(lab: WorkerLab) -> None:
    parent = await lab.delegate("lead", SILENT)
    child = await lab.delegate("feat/a", SILENT, parent=parent)
    grandchild = await lab.delegate("feat/b", SILENT, parent=child)
    why = "no worker could be sent: branch 'feat/a' already has a worker"
    lost = WorkerSent(run="lost", branch="feat/a", task="write it again")
    await append_events(lab, parent, WorkerSent(run=child, branch="feat/a", task="write it"), lost)
    await append_events(lab, parent, WorkerReturned(run="lost", outcome="failed", error=why))
    await append_events(lab, child, WorkerSent(run=grandchild, branch="feat/b", task="test it"))

    said = (await invoke_podium(lab, "results", parent)).stdout
    markdown = (await invoke_podium(lab, "results", parent, "--markdown")).stdout
    program = await invoke_podium_json(lab, "results", parent)

    assert [one["id"] for one in program["workers"]] == [child, grandchild]
    assert program["unsent"] == [{"id": "lost", "branch": "feat/a", "task": "write it again", "why": why}]
    assert f"--- worker feat/a: not started\n  task: write it again\nno answer: {why}" in said
    assert "### feat/a: not started" in markdown


async def test_what_a_worker_has_in_its_checkout_so_far_is_in_the_report(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/a", write("new.txt"), call("bash", command="make"), allow=("Write",))
    lab.start_commander()
    await lab.wait_asked(run)

    said = (await invoke_podium(lab, "results", "--workers")).stdout
    [worker] = (await invoke_podium_json(lab, "results", "--workers"))["workers"]

    assert "  +0 -0 (1 new) so far, not committed yet\n" in said
    assert worker["new_files"] == 1


@pytest.mark.slow
async def test_all_workers_of_a_repository_are_summed_up_by_the_agent_worker(lab: WorkerLab) -> None:
    await lab.delegate("feat/a", write("new.txt"), "It is written.")
    unbegun = await invoke_podium(lab, "results", "--workers", "--synthesis")
    await invoke_podium(lab, "workers", "wait")
    agents = lab.repo.path / ".podium" / "agents"
    agents.mkdir(parents=True)
    (agents / "worker.md").write_text('---\ntools: [Write]\n---\n```script\n["feat/a is ready to merge."]\n```\n')

    said = await lab.run_podium("results", "--workers", "--synthesis")

    [run] = [
        one["id"]
        for one in (await invoke_podium_json(lab, "ps"))["runs"]
        if one["request"].startswith("Summarise the report on the workers of repo ")
    ]
    assert unbegun.stderr == "there is nothing to summarise yet\n"
    assert said.returncode == 0, said.stderr
    assert said.stdout.endswith(f"\n\nSynthesis by worker (run {run}):\nfeat/a is ready to merge.\n")
    asked = lab.events(run)[0].request.text
    assert "> ### feat/a: complete" in asked
    assert "> - files: new.txt" in asked
    assert "> > It is written." in asked


async def append_events(lab: WorkerLab, run: str, *events: WorkerSent | WorkerReturned) -> None:
    """Append events to a run's timeline, as its own process would."""
    async with RunStore(lab.store) as store:
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
        (["--model", "sonnet"], "worker uses anthropic:"),
        (["--model", " "], "--model is empty; specify a model, or omit the option"),
        (
            ["--auto-approve", "Bash(git *),nosuchtool,git_diff,mcp__x__y"],
            "unknown tool in --auto-approve: nosuchtool; available: Read",
        ),
        (["--timeout", "nan"], "'nan' is not a finite number of seconds"),
        (["--timeout", "1e400"], "'1e400' is not a finite number of seconds"),
    ],
)
def test_invalid_worker_options_are_refused_and_no_worker_is_started(
    desk: Desk, words: list[str], sentence: str
) -> None:
    make_repository(desk.repo, {})

    said = desk.run_podium("delegate", "feat/a", "go", *words)

    assert (said.returncode, said.stdout) == (2, "")
    assert sentence in said.stderr
    assert json.loads(desk.run_podium("workers", "--json").stdout)["workers"] == []


MISSED = call("edit_file", path="new.txt", old="absent", new="x")


async def test_a_worker_whose_work_is_unproved_is_not_plainly_complete(lab: WorkerLab) -> None:
    await lab.delegate("feat/a", write("new.txt", "one\n"), MISSED, "I edited it.")

    waited = await invoke_podium(lab, "workers", "wait", "feat/a")

    assert (waited.exit_code, waited.stdout.split(" edit ")[0]) == (0, "feat/a: complete, unproved: hand: its last")
    [fields] = (await invoke_podium_json(lab, "workers"))["workers"]
    assert (fields["state"], fields["unproved"].split(":")[0]) == ("complete", "hand")
    assert "complete, unproved" in (await invoke_podium(lab, "workers", COLUMNS="200")).stdout
    assert (
        "unproved: hand: its last edit changed nothing"
        in (await invoke_podium(lab, "workers", "status", "feat/a")).stdout
    )


async def test_a_worker_that_had_to_change_files_and_did_not_is_named_by_a_merge(lab: WorkerLab) -> None:
    await lab.delegate("feat/a", "I did it all.", expects="changes")
    await invoke_podium(lab, "workers", "wait", "feat/a")

    everything = await invoke_podium(lab, "merge", "--all")
    named = await invoke_podium(lab, "merge", "feat/a")

    assert (
        "feat/a: its worker had to change files, but there is no change on the branch (hand: it changed no files"
        in (everything.stderr)
    )
    assert "nothing to merge: " in everything.stderr
    assert "feat/a: its worker had to change files" in named.stderr
