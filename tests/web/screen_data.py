"""Runs, plans, decisions and workers for the tests of the screens, written entry by entry into a real store."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from podium import Agent
from podium.store.worker_index import build_worker_insert
from podium.testing import run_git
from podium.values.errors import Failure
from podium.values.event import (
    ArtifactStored,
    BallotCast,
    BallotRefused,
    Checked,
    DecisionCommitted,
    DecisionProposed,
    Event,
    ModelReplied,
    OperationEnded,
    OperationStarted,
    PlanCommitted,
    PlanDrafted,
    PlanStepBlocked,
    PlanStepCompleted,
    PlanStepFailed,
    PlanStepReviewed,
    PlanStepStarted,
    PlanStepSubmitted,
    RunEnded,
    RunResumed,
    RunStarted,
    SnapshotTaken,
    TeamFormed,
    TurnStarted,
    VoteClosed,
    WorkCommitted,
    WorkerPlaced,
    WorkStateChanged,
)
from podium.values.event.plan_events import FormedMember
from podium.values.event.worker_events import AlsoCommitted, AlsoPlaced
from podium.values.plan import Criterion, Finding, PlanStep, StepPolicy, WorkPlan
from podium.values.request import Request
from podium.values.usage import Usage
from podium.values.worker_task import RunCheckout, WorkerTask

from .conftest import Site

PLAN_RUN = "aa01"
VOTE_RUN = "aa02"
DECIDED_RUN = "aa03"
BUDGET_RUN = "cc03"
CSV_RUN, TSV_RUN, READER_RUN = "bb01", "bb02", "bb03"


def git(repo: Path, *words: str) -> str:
    return run_git(repo, *words).strip()


def start(site: Site, text: str, agent: str = "lead", **keys: Any) -> list[Event]:
    """Return the first entries of a run."""
    request = Request(text=text)
    return [
        RunStarted(agent=agent, request=request, repo=str(site.repo), **keys),
        OperationStarted(agent=agent, trigger="request", request=request),
    ]


def reply(**usage: Any) -> ModelReplied:
    return ModelReplied(model="m", usage=Usage(**usage))


def end(text: str = "done") -> list[Event]:
    return [OperationEnded(outcome="succeeded", text=text), RunEnded(outcome="succeeded")]


# Plans


def make_step(id: str, *depends_on: str, owner: str = "ada", **keys: Any) -> PlanStep:
    known: dict[str, Any] = {"description": f"Do {id}.", "acceptance": (Criterion(text=f"{id} works"),)}
    return PlanStep(id=id, owner=owner, depends_on=depends_on, **(known | keys))


STEPS = (
    make_step(
        "parse",
        description="Parse the options of the export command and check them.",
        acceptance=(Criterion(text="it exports", command="grep -q csv app.py"), Criterion(text="it has tests")),
    ),
    make_step("write", "parse", owner="bob"),
    make_step("check", "parse", policy=StepPolicy(tools=("read_file",), seconds=600, tokens=50_000, files=3)),
    make_step("quote", "parse", owner="bob"),
    make_step("docs", "write", "check"),
    make_step("ship", "docs", "quote", policy=StepPolicy(approval="ask", allow=("Bash(git push:*)",))),
    make_step("announce", owner="bob"),
)


def write_plan(site: Site, run: str = PLAN_RUN, *, goal: str = "Export to CSV") -> None:
    """Write a run whose plan has steps in every state."""
    plan = WorkPlan(goal=goal, steps=STEPS)
    met = (Finding(criterion="it exports", is_met=True, by="check"), Finding(criterion="it has tests", is_met=True))
    missed = (Finding(criterion="quote works", is_met=False, reason="quotes are doubled", by="ada"),)
    site.write_run(
        run,
        *start(site, goal),
        TeamFormed(goal=goal, members=(FormedMember(name="ada"), FormedMember(name="bob"))),
        WorkStateChanged(state="planning"),
        PlanDrafted(version=1, plan=plan, by="ada"),
        PlanCommitted(version=1, plan=plan, by="ada"),
        WorkStateChanged(state="executing"),
        PlanStepStarted(step="parse", owner="ada"),
        PlanStepSubmitted(step="parse", author="ada", branch="feat/parse"),
        PlanStepReviewed(step="parse", reviewer="bob", attempt=1, passed=True, findings=met),
        PlanStepCompleted(step="parse", owner="ada"),
        SnapshotTaken(name="after parse"),
        PlanStepStarted(step="write", owner="bob", attempt=2),
        PlanStepStarted(step="check", owner="ada"),
        ("lead/plan_step:check/member:ada#1", reply(calls=1, input_tokens=12_000, output_tokens=500)),
        PlanStepSubmitted(step="check", author="ada"),
        PlanStepStarted(step="quote", owner="bob"),
        PlanStepSubmitted(step="quote", author="bob"),
        PlanStepReviewed(step="quote", reviewer="ada", attempt=1, passed=False, findings=missed),
        PlanStepFailed(step="quote", reason="it did not pass its review 3 times"),
        PlanStepBlocked(step="ship", reason="it depends on quote, which failed"),
        ArtifactStored(kind="document", name="notes.md", digest="0" * 64, size=12, author="ada", step="parse"),
        reply(calls=2, input_tokens=1200, output_tokens=300, cached_tokens=200, usd=0.0125),
    )


# Decisions


def propose(site: Site, id: str, topic: str, **keys: Any) -> DecisionProposed:
    known: dict[str, Any] = {
        "options": ("comma", "tab"),
        "eligible": ("ada", "bob", "cy"),
        "evidence": "RFC 4180",
        "window": 3600.0,
        "by": "ada",
        "repo": str(site.repo),
    }
    return DecisionProposed(id=id, topic=topic, **(known | keys))


def write_decisions(site: Site) -> None:
    """Write a decision that another one supersedes, and an open vote."""
    site.write_run(
        DECIDED_RUN,
        *start(site, "Decide"),
        propose(site, "d1", "Which separator?", step="parse"),
        BallotCast(decision="d1", voter="ada", option="comma", reason="everybody reads it"),
        BallotCast(decision="d1", voter="bob", option="comma", reason=""),
        BallotCast(decision="d1", voter="cy"),
        VoteClosed(decision="d1", why="decided"),
        BallotRefused(decision="d1", voter="dan", option="tab", reason="the vote is closed"),
        DecisionCommitted(
            decision="d1", option="comma", how="majority", rationale="It is the default.", consequences="Quote it."
        ),
        propose(site, "d2", "Which separator now?", supersedes="d1", eligible=()),
        VoteClosed(decision="d2", why="decided"),
        DecisionCommitted(decision="d2", option="tab", how="decided by person", by="ada"),
        *end(),
    )
    site.write_run(
        VOTE_RUN,
        *start(site, "Vote"),
        propose(site, "d3", "Quote every field?", options=("yes", "no"), weights={"ada": 2.0}),
        BallotCast(decision="d3", voter="ada", option="yes", reason="it is safe"),
    )


# Workers


def write_worker(
    site: Site,
    run: str,
    branch: str,
    task: str,
    *,
    change: tuple[int, int] = (0, 0),
    name: str = "",
    fails: str = "",
    answer: str | None = "It is done.",
    checks: tuple[bool, ...] = (),
    context: int = 0,
    also: Path | None = None,
    parent: str = "",
    operation: str = "",
) -> None:
    """Write the run of a worker; without an answer, it has not ended. Its branch, if it has one, exists already.

    `parent` and `operation` are the run and the operation for which it worked. `context` is the number of tokens in its
    conversation with a model that has a known window, and `also` is another repository in which it changed one file.
    """
    base = git(site.repo, "rev-parse", "main")
    worker_task = WorkerTask(
        root=str(site.repo),
        path=str(site.repo / ".none"),
        branch=branch,
        name=name,
        base=base,
        parent=parent,
        operation=operation,
    )
    if also is not None:
        other = RunCheckout(root=str(also), path=f"{also}-worker", base=base)
        worker_task = worker_task.with_checkouts(worker_task.checkouts[0], other)
    events = start(site, task, "worker", errand=worker_task, agents=(Agent(name="worker", engine="scripted"),))
    if branch:
        commit = git(site.repo, "rev-parse", branch)
        events += [
            WorkerPlaced(
                path=worker_task.path,
                branch=branch,
                base=base,
                also=tuple(AlsoPlaced(root=one.root, path=one.path, base=base) for one in worker_task.checkouts[1:]),
            ),
            WorkCommitted(
                branch=branch,
                commit=commit,
                commits=(commit,),
                added=change[0],
                removed=change[1],
                also=tuple(
                    AlsoCommitted(root=one.root, commit=commit, files=("b.txt",)) for one in worker_task.checkouts[1:]
                ),
            ),
        ]
    events += [Checked(commands=("make test",), passed=passed) for passed in checks]
    if answer is None:
        events.append(RunResumed(host="elsewhere", pid=1))
    events.append(reply(calls=1, input_tokens=100, output_tokens=50, usd=0.5))
    if context:
        turn = TurnStarted(agent="worker", engine="openai:gpt-4o", prompt=task)
        events += [turn, ModelReplied(model="gpt-4o", usage=Usage(calls=1, input_tokens=context))]
    if fails:
        failure = Failure(kind="failed", agent="worker", message=fails)
        events += [OperationEnded(outcome="failed", failure=failure), RunEnded(outcome="failed", failure=failure)]
    elif answer is not None:
        events += end(answer)
    site.write_run(run, *events)
    _index_worker(site, run, worker_task)


def _index_worker(site: Site, run: str, worker_task: WorkerTask) -> None:
    statement, values = build_worker_insert(run, worker_task)
    with closing(sqlite3.connect(site.store)) as connection:
        connection.execute(statement, values)
        # No commander may start the worker.
        connection.execute("UPDATE worker SET is_open = 0")
        connection.commit()


def make_branch(repo: Path, branch: str, files: dict[str, str | bytes]) -> None:
    """Commit these files on a new branch from main."""
    git(repo, "checkout", "-q", "-b", branch, "main")
    for name, content in files.items():
        (repo / name).parent.mkdir(exist_ok=True)
        (repo / name).write_bytes(content.encode() if isinstance(content, str) else content)
    git(repo, "--literal-pathspecs", "add", "--", *files)
    git(repo, "commit", "-qm", f"Work on {branch}")
    git(repo, "checkout", "-q", "main")


def write_workers(site: Site) -> None:
    """Write two workers whose branches conflict with each other, and a read-only worker that failed."""
    repo = site.repo
    git(repo, "symbolic-ref", "HEAD", "refs/heads/main")
    (repo / "app.py").write_text("def export():\n    return ''\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "Start")
    make_branch(repo, "feat/csv", {"app.py": "def export():\n    return 'a,b'\n", "notes.md": "# Notes\r\nשלום\n"})
    make_branch(repo, "feat/tsv", {"app.py": "def export():\n    return 'a\\tb'\n"})
    write_worker(site, CSV_RUN, "feat/csv", "Export to CSV", change=(3, 1), checks=(True, True), context=96_000)
    write_worker(site, TSV_RUN, "feat/tsv", "Export to TSV", change=(1, 1))
    write_worker(site, READER_RUN, "", "Read the docs", name="reader", fails="the model refused")


def write_costs(site: Site) -> None:
    """Write a run that was rehearsed, one whose price is unknown, and one of two agents with a budget."""
    site.write_run("cc01", *start(site, "Rehearse"), reply(rehearsed_calls=3, rehearsed_input_tokens=900), *end())
    request = Request(text="Write")
    site.write_run(
        BUDGET_RUN,
        RunStarted(agent="lead", request=request, repo=str(site.repo), settings={"budget": {"usd": 2.0}}),
        OperationStarted(agent="lead", trigger="request", request=request),
        reply(calls=2, input_tokens=400, output_tokens=100, usd=0.37),
        OperationStarted(agent="scribe", trigger="member", request=request),
        reply(calls=1, input_tokens=40, output_tokens=10, usd=0.11),
        *end(),
    )
    site.write_run("cc02", *start(site, "Ask"), reply(calls=7, input_tokens=10, unpriced=7), *end())


# Hostile text


def write_hostile_runs(site: Site, evil: str) -> None:
    """Write a plan, a decision and a worker that have a text in every field that an agent can fill."""
    step = PlanStep(
        id=evil,
        owner=evil,
        description=evil,
        acceptance=(Criterion(text=evil, command=evil),),
        policy=StepPolicy(tools=(evil,), allow=(evil,)),
    )
    plan = WorkPlan(goal=evil, steps=(step,))
    finding = Finding(criterion=evil, is_met=False, reason=evil, by=evil)
    site.write_run(
        "ee01",
        *start(site, evil, evil),
        TeamFormed(goal=evil, members=(FormedMember(name=evil),)),
        WorkStateChanged(state="planning"),
        PlanCommitted(version=1, plan=plan, by=evil),
        WorkStateChanged(state="executing"),
        PlanStepStarted(step=evil, owner=evil),
        PlanStepSubmitted(step=evil, author=evil, branch=evil),
        PlanStepReviewed(step=evil, reviewer=f"reviewer {evil}", attempt=1, passed=False, findings=(finding,)),
        PlanStepFailed(step=evil, reason=evil),
        SnapshotTaken(name=evil),
        ArtifactStored(kind="document", name=evil, digest="0" * 64, size=1, author=evil, step=evil),
        propose(site, "d9", evil, options=(evil, "no"), eligible=(evil,), evidence=evil, by=evil, step=evil),
        BallotCast(decision="d9", voter=evil, option=evil, reason=evil),
        BallotRefused(decision="d9", voter=evil, option=evil, reason=evil),
        VoteClosed(decision="d9", why="decided"),
        DecisionCommitted(decision="d9", option=evil, how=evil, by=evil, rationale=evil, consequences=evil),
    )
    branch = "feat/<img/src=x/onerror=alert(1)>"
    make_branch(site.repo, branch, {f"{evil.replace('/', '')[:90]}.py": f"{evil}\n", "x.txt": f"{evil}\r\n"})
    write_worker(site, "ee02", branch, evil, change=(2, 0), answer=evil)
    write_worker(site, "ee03", "", evil, name=evil, fails=evil)
