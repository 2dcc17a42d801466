"""Collaborating teams in a real repository: policies of steps, checks, artifacts, approvals and snapshots."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from podium import Result, Settings
from podium.core.redaction import Redaction
from podium.engines.model.providers import KEY_NAMES
from podium.engines.script import Move
from podium.store.fault_injection import refuse_after
from podium.store.reader import StoreReader
from podium.testing import make_repository
from podium.values.agent import Permissions
from podium.values.event import (
    ActionRefused,
    ArtifactStored,
    Checked,
    OperationEnded,
    PermissionAsked,
    PlanCommitted,
    PlanRefused,
    PlanStepCompleted,
    PlanStepFailed,
    PlanStepReviewed,
    QuestionAsked,
    SnapshotTaken,
)

from ..collaboration import Play, add_team, make_plan, make_step, use_tool
from ..studio import Studio

HANDOVER = use_tool("handoff_step", to="bob", reason="half")
CODER = {"tools": ("Read", "Write", "Edit", "Bash")}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "r", {"kept.txt": "kept\n"}, message="x")


@pytest.fixture
def studio(tmp_path: Path) -> Studio:
    studio = Studio(tmp_path / "home")
    rules = Permissions(allow=("Write", "Edit", "Bash(test:*)"))
    studio.settings = Settings.load({}, home=tmp_path / "home", permissions=rules)
    return studio


async def run_in(studio: Studio, repo: Path) -> Result:
    async with studio.app() as app:
        return await app.run(studio.agents["lead"], "ship it", agents=studio.agents.values(), repo=repo)


def write(path: str, text: str = "x\n") -> Any:
    return use_tool("write_file", path=path, content=text)


async def test_a_tool_outside_the_policy_of_a_step_is_denied_and_the_denial_is_recorded(
    studio: Studio, repo: Path
) -> None:
    step = make_step("s1", "ada", policy={"tools": ["Read", "Bash"]})
    play = Play(plan=make_plan(step), **{"ada/step:s1": [write("a.txt"), "done"]})
    add_team(studio, play, "ada", "bob", agents={"ada": CODER})

    result = await run_in(studio, repo)

    (refused,) = studio.events(result, ActionRefused)
    assert refused.action.tool == "write_file"
    assert "denies it" in refused.reason
    assert not (repo / "a.txt").exists()


async def test_a_step_that_uses_up_its_files_fails_and_the_run_goes_on(studio: Studio, repo: Path) -> None:
    steps = [make_step("s1", "ada", policy={"files": 1}), make_step("s2", "ada")]
    play = Play(
        plan=[make_plan(*steps), "no more"], **{"ada/step:s1": [write("a.txt"), write("b.txt")], "ada/step:s2": "done"}
    )
    add_team(studio, play, "ada", "bob", agents={"ada": CODER})

    result = await run_in(studio, repo)

    (failed,) = studio.events(result, PlanStepFailed)
    assert failed.step == "s1"
    assert "budget of 1 changed files would be exceeded" in failed.reason
    assert [one.step for one in studio.events(result, PlanStepCompleted)] == ["s2"]
    assert (repo / "a.txt").exists()
    assert not (repo / "b.txt").exists()


async def test_a_check_that_fails_outweighs_a_reviewer_who_says_met(studio: Studio, repo: Path) -> None:
    check = {"text": "the file is there", "command": "test -f a.txt"}
    play = Play(
        plan=make_plan(make_step("s1", "ada", acceptance=[check])),
        **{"ada/step:s1": ["I wrote it", write("a.txt"), "now it is there"]},
    )
    add_team(studio, play, "ada", "bob", agents={"ada": CODER})

    result = await run_in(studio, repo)

    assert [one.passed for one in studio.events(result, Checked)] == [False, True]
    first, second = studio.events(result, PlanStepReviewed)
    assert (first.passed, first.findings[0].by, second.passed) == (False, "check", True)
    assert result.succeeded


async def test_the_whole_output_of_a_check_that_fails_or_prints_much_is_a_log_that_is_stored_once(
    studio: Studio, repo: Path
) -> None:
    long = "seq 2000; test -f a.txt"
    checks = [{"text": "found", "command": long}, {"text": "is a file", "command": "test -f a.txt"}]
    play = Play(
        plan=make_plan(make_step("s1", "ada", acceptance=checks)),
        review="1: MET\n2: MET",
        **{"ada/step:s1": ["I wrote it", write("a.txt"), "now it is there"]},
    )
    add_team(studio, play, "ada", "bob", agents={"ada": CODER})
    studio.settings = Settings.load(
        {}, home=studio.settings.home, permissions=Permissions(allow=("Write", "Bash(test:*)", "Bash(seq:*)"))
    )

    result = await run_in(studio, repo)

    logs = [one for one in studio.events(result, ArtifactStored) if one.kind == "log"]
    assert [(one.name, one.step) for one in logs] == [("s1-1-check-1.log", "s1"), ("s1-2-check-1.log", "s1")]
    assert len({one.digest for one in logs}) == 1
    with StoreReader(studio.settings.store) as reader:
        data = reader.read_artifact(logs[0].digest)
        held = reader._connection.execute("SELECT count(*) FROM artifact WHERE digest = ?", (logs[0].digest,))
        assert held.fetchone() == (1,)
    assert data == "".join(f"{number}\n" for number in range(1, 2001)).encode()
    (first, *_) = studio.events(result, Checked)
    assert first.output.startswith(f"FAIL {long} [exit code 1]\n[… ")
    assert first.output.endswith("\n1999\n2000")


async def test_the_diff_and_the_answer_of_a_step_are_artifacts_and_the_reviewer_sees_the_diff(
    studio: Studio, repo: Path
) -> None:
    play = Play(plan=make_plan(make_step("s1", "ada")), **{"ada/step:s1": [write("a.txt", "hello\n"), "I wrote it"]})
    add_team(studio, play, "ada", "bob", agents={"ada": CODER})

    result = await run_in(studio, repo)

    kinds = {one.name: one.kind for one in studio.events(result, ArtifactStored)}
    assert kinds == {"s1-1.diff": "diff", "s1-1.md": "document"}
    review = next(text for text in studio.heard("bob") if text.startswith("Review one step"))
    assert "> +hello" in review
    assert "> I wrote it" in review


async def test_a_snapshot_is_taken_after_the_plan_and_after_every_step_and_git_keeps_it(
    studio: Studio, repo: Path
) -> None:
    play = Play(plan=make_plan(make_step("s1", "ada")), **{"ada/step:s1": [write("a.txt"), "done"]})
    add_team(studio, play, "ada", "bob", agents={"ada": CODER})

    result = await run_in(studio, repo)

    snapshots = studio.events(result, SnapshotTaken)
    assert [one.name for one in snapshots] == ["plan", "s1"]
    refs = subprocess.check_output(["git", "-C", repo, "for-each-ref", "--format=%(objectname)", "refs/podium"])
    # Podium also keeps the submitted commit, which is another one if it was made in another second.
    assert {one.commits[""] for one in snapshots} <= set(refs.decode().split())
    files = subprocess.check_output(["git", "-C", repo, "ls-tree", "--name-only", snapshots[1].commits[""]]).decode()
    assert files.split() == ["a.txt", "kept.txt"]


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ({"tools": ["Bash"]}, "step 's1' lists the tool 'Bash', which bob does not have"),
        ({"allow": ["Bash"]}, "step 's1' asks to allow Bash; only a plan that a person approves can allow anything"),
        ({"mode": "bypass"}, "step 's1': Object contains unknown field `mode` - at `$.policy`"),
        ({"tokens": -1}, "step 's1' has a limit of -1 tokens; it must be above zero"),
    ],
)
async def test_a_plan_that_tries_to_widen_what_its_owner_may_do_is_refused(
    studio: Studio, repo: Path, policy: dict[str, Any], problem: str
) -> None:
    wide = make_plan(make_step("s1", "bob", policy=policy))
    add_team(studio, Play(plan=[wide, make_plan(make_step("s1", "bob"))]), "ada", "bob")

    result = await run_in(studio, repo)

    assert studio.events(result, PlanRefused)[0].problems == (problem,)
    assert result.succeeded


async def test_allow_rules_of_a_plan_act_once_a_person_has_approved_exactly_that_plan(
    studio: Studio, repo: Path
) -> None:
    step = make_step("s1", "ada", policy={"allow": ["Bash(touch:*)"]})
    play = Play(plan=make_plan(step), **{"ada/step:s1": [use_tool("bash", command="touch a.txt"), "done"]})
    add_team(studio, play, "ada", "bob", agents={"ada": CODER}, approve_plan="person")

    async with studio.app() as app:
        start = app.start(studio.agents["lead"], "ship it", agents=studio.agents.values(), repo=repo, is_attended=True)
        async with start as run:
            async for entry in run.entries():
                if isinstance(entry.event, QuestionAsked):
                    assert "allows without asking: Bash(touch:*)" in entry.event.shown
                    await run.reply(entry.event.id, "approve", by="ada lovelace")
            result = await run.result()

    (committed,) = studio.events(result, PlanCommitted)
    assert (committed.by, committed.is_approved_by_person) == ("ada lovelace", True)
    assert studio.events(result, PermissionAsked) == []
    assert (repo / "a.txt").exists()


async def test_decisions_of_the_team_become_numbered_records_in_the_checkout(studio: Studio, repo: Path) -> None:
    (repo / "docs" / "adr").mkdir(parents=True)
    (repo / "docs" / "adr" / "0007-earlier.md").write_text("# 7. Earlier\n")
    blocker = use_tool("raise_blocker", topic="Tabs or spaces?", options=["tabs", "spaces"], evidence="see the guide")
    play = Play(
        plan=make_plan(make_step("s1", "ada")),
        vote=use_tool("cast_ballot", option="tabs", reason="wide"),
        **{"ada/step:s1": [blocker, "done"]},
    )
    add_team(studio, play, "ada", "bob", agents={"ada": CODER}, adr=True)

    result = await run_in(studio, repo)

    assert result.succeeded, result.error
    record = (repo / "docs" / "adr" / "0008-tabs-or-spaces.md").read_text()
    assert "tabs" in record
    assert "wide" in record


async def test_the_limits_of_a_step_hold_for_all_turns_of_its_owners_together(studio: Studio, repo: Path) -> None:
    blocker = use_tool("raise_blocker", topic="go on?", options=["yes", "no"])
    play = Play(
        plan=[make_plan(make_step("s1", "ada", policy={"files": 1})), "no more"],
        vote=use_tool("cast_ballot", option="yes", reason="r"),
        **{"ada/step:s1": [write("a.txt"), blocker, write("b.txt"), "done"]},
    )
    add_team(studio, play, "ada", "bob", agents={"ada": CODER})

    result = await run_in(studio, repo)

    (failed,) = studio.events(result, PlanStepFailed)
    assert "budget of 1 changed files would be exceeded" in failed.reason
    assert not (repo / "b.txt").exists()


async def test_an_agent_below_the_owner_is_bound_by_the_policy_of_the_step(studio: Studio, repo: Path) -> None:
    ask = use_tool("helper", request="write it")
    play = Play(
        plan=make_plan(make_step("s1", "ada", policy={"tools": ["Read"]})),
        **{"ada/step:s1": [ask, "done"], "helper/other": [write("a.txt"), "written"]},
    )
    add_team(studio, play, "ada", "bob", agents={"ada": {"tools": ("Read",), "agents": ("helper",)}})
    studio.agent("helper", tools=("Write",))
    studio.scripts.clear()

    await run_in(studio, repo)

    assert not (repo / "a.txt").exists()


async def test_a_run_is_resumed_even_if_git_prints_diffs_differently_by_then(studio: Studio, repo: Path) -> None:
    def make_play() -> Play:
        return Play(plan=make_plan(make_step("s1", "ada")), **{"ada/step:s1": [write("a.txt"), "done"]})

    add_team(studio, make_play(), "ada", "bob", agents={"ada": CODER})
    whole = await run_in(studio, repo)
    reviewed = next(entry.seq for entry in studio.entries(whole) if isinstance(entry.event, PlanStepReviewed))
    studio.respond = make_play()
    (repo / "a.txt").unlink()
    async with studio.app(fault=refuse_after(reviewed)) as app:
        first = await app.run(studio.agents["lead"], "ship it", agents=studio.agents.values(), repo=repo)
    subprocess.run(["git", "-C", repo, "config", "diff.noprefix", "true"], check=True)
    studio.expire_leases()

    result = await studio.resume(first.run_id)

    assert result.succeeded, result.error


async def test_a_secret_in_a_changed_file_is_not_stored_in_the_diff(studio: Studio, repo: Path) -> None:
    play = Play(plan=make_plan(make_step("s1", "ada")), **{"ada/step:s1": [write("a.txt", "sk-very-secret-1\n"), "ok"]})
    add_team(studio, play, "ada", "bob", agents={"ada": CODER})
    async with studio.app() as app:
        app.runs._redaction = Redaction.from_environment({"OPENAI_API_KEY": "sk-very-secret-1"}, KEY_NAMES)
        result = await app.run(studio.agents["lead"], "ship it", agents=studio.agents.values(), repo=repo)

    (diff,) = [one for one in studio.events(result, ArtifactStored) if one.kind == "diff"]
    with StoreReader(studio.settings.store) as reader:
        stored = reader.read_artifact(diff.digest)
    assert stored is not None
    assert b"sk-very-secret" not in stored


async def test_a_new_owner_gets_a_summary_of_the_earlier_work_and_the_open_findings(studio: Studio, repo: Path) -> None:
    play = Play(
        plan=make_plan(make_step("s1", "ada")),
        **{
            "ada/step:s1": [
                "I will start",
                use_tool("read_file", path="kept.txt"),
                use_tool("read_file", path="missing.txt"),
                write("a.txt"),
                Move(says="the parser is half done", calls=HANDOVER.calls),
            ],
            "review:s1": ["1: NOT MET: there is no test", "1: MET"],
        },
    )
    add_team(studio, play, "ada", "bob", "cid", agents={"ada": CODER})

    result = await run_in(studio, repo)

    assert result.succeeded, result.error
    prompt = next(text for text in studio.heard("bob") if text.startswith("You own one step"))
    assert "> - it works: there is no test" in prompt
    summary = prompt.partition("[context for you only: earlier work by ada on this step]\n> Files")[2]
    assert summary.splitlines() == [
        " read (1):",
        "> - kept.txt",
        "> Files changed (1):",
        "> - a.txt",
        "> Tool calls (4):",
        "> - read_file path=kept.txt",
        "> - read_file path=missing.txt (failed)",
        "> - write_file path=a.txt content=x",
        "> - handoff_step to=bob reason=half",
        "> Replies (1):",
        "> - the parser is half done",
    ]
    assert "[context for you only: earlier work by ada on this step]\n> Replies (1):\n> - I will start" in prompt
    assert len(prompt) < 6_000


async def test_the_time_in_which_an_owner_waits_for_a_person_does_not_count_for_its_step(
    studio: Studio, repo: Path
) -> None:
    step = make_step("s1", "ada", policy={"seconds": 1})
    play = Play(
        plan=make_plan(step, make_step("s2", "bob")),
        **{
            "ada/step:s1": [use_tool("bash", command="touch a.txt"), "done"],
            "bob/step:s2": Move(says="done", delay=1.2),
        },
    )
    add_team(studio, play, "ada", "bob", agents={"ada": CODER})

    async with studio.app() as app:
        start = app.start(studio.agents["lead"], "ship it", agents=studio.agents.values(), repo=repo, is_attended=True)
        async with start as run:
            async for entry in run.entries():
                if isinstance(entry.event, PlanStepCompleted) and entry.event.step == "s2":
                    [asked] = studio.events(run.id, PermissionAsked)
                    await run.answer(asked.id, "deny", by="me")
            result = await run.result()

    assert result.succeeded, result.error
    [ended] = [one for one in studio.events(result, OperationEnded) if one.seconds]
    assert ended.seconds < 1


async def test_a_diff_of_a_checkout_that_other_steps_used_meanwhile_says_so(studio: Studio, repo: Path) -> None:
    play = Play(
        plan=make_plan(make_step("s1", "ada"), make_step("s2", "bob"), make_step("s3", "ada", "s1", "s2")),
        **{
            "ada/step:s1": [write("a.txt"), Move(says="done", delay=0.2)],
            "bob/step:s2": [write("b.txt"), "done"],
            "ada/step:s3": [write("c.txt"), "done"],
        },
    )
    add_team(studio, play, "ada", "bob", agents={"ada": CODER, "bob": CODER})

    result = await run_in(studio, repo)

    assert result.succeeded, result.error
    line = (
        "[step s2 used the same checkout at the same time, so this diff can contain changes from other steps. "
        "Files changed by the tools of other steps: b.txt (s2)]"
    )
    with StoreReader(studio.settings.store) as reader:
        diffs = {
            one.step: (reader.read_artifact(one.digest) or b"").decode()
            for one in studio.events(result, ArtifactStored)
            if one.kind == "diff"
        }
    assert diffs["s1"].startswith(f"{line}\ndiff --git")
    assert diffs["s3"].startswith("diff --git a/c.txt")
    review = next(text for text in studio.heard("bob") if text.startswith("Review one step") and "do s1" in text)
    assert f"[context for you only: changes]\n> {line}" in review


@pytest.mark.parametrize(
    ("commands", "problem"),
    [
        ([["checkout", "-q", "--detach"]], "no branch is checked out in"),
        ([["checkout", "-q", "--orphan", "new"]], "branch new in"),
    ],
)
async def test_work_that_could_not_be_merged_is_refused_before_anybody_plans(
    studio: Studio, repo: Path, commands: list[list[str]], problem: str
) -> None:
    for words in commands:
        subprocess.run(["git", "-C", repo, *words], check=True)
    add_team(studio, Play(), "ada", "bob", worktrees="each")

    result = await run_in(studio, repo)

    assert problem in str(result.error)
    assert studio.calls == []
