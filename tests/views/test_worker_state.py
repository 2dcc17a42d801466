"""The state of a worker: a fold over the timeline of its run, and the combined state of several workers."""

from __future__ import annotations

import pytest

from podium.values.action import Action
from podium.values.errors import Failure
from podium.values.event import (
    ActionBegan,
    Checked,
    Entry,
    Event,
    ModelReplied,
    Noticed,
    OperationEnded,
    OperationStarted,
    PermissionAnswered,
    PermissionAsked,
    QuestionAsked,
    RunEnded,
    RunPaused,
    RunResumed,
    RunStarted,
    StopAsked,
    ToolAnswered,
    ToolCalled,
    TurnEnded,
    TurnResumed,
    TurnStarted,
    WorkCommitted,
    WorkerPlaced,
    WorkerReturned,
    WorkerSent,
)
from podium.values.request import Outcome, Request
from podium.values.usage import Usage
from podium.values.worker_task import WorkerTask
from podium.views.run_state.sent_workers import SentWorker, SentWorkers
from podium.views.run_state.worker_record import CheckRun
from podium.views.worker_state import SharedFile, WorkersSummary, WorkerState, WorkerStatus, build_worker_state

REQUEST = Request(text="Build it.")
TURN = "worker/turn#1"
CALL = f"{TURN}/call#1/tool#1"


class TimelineBuilder:
    """Builds a worker's timeline by hand, with one second between entries."""

    def __init__(self, branch: str = "feat/a", run: str = "a1") -> None:
        self.run = run
        self.entries: list[Entry] = []
        self.add(
            RunStarted(
                agent="worker", request=REQUEST, errand=WorkerTask(root="/shop", path=f"/shop-{branch}", branch=branch)
            )
        )

    def add(self, event: Event, scope: str = "") -> TimelineBuilder:
        seq = len(self.entries) + 1
        operation = scope.split("/turn")[0]
        self.entries.append(Entry(run=self.run, seq=seq, at=float(seq), scope=scope, operation=operation, event=event))
        return self

    def start(self) -> TimelineBuilder:
        self.add(RunResumed(host="here", pid=1))
        return self.add(OperationStarted(agent="worker", trigger="request", request=REQUEST), "worker")

    def start_turn(self) -> TimelineBuilder:
        return self.start().add(TurnStarted(agent="worker", engine="scripted", prompt="Build it."), TURN)

    def call_tool(self, tool: str = "write_file") -> TimelineBuilder:
        return self.start_turn().add(ToolCalled(id="c1", action=make_action(tool)), CALL)

    def ask_permission(self) -> TimelineBuilder:
        return self.call_tool().add(PermissionAsked(id="p1", action=make_action("write_file"), reason="no rule"), CALL)

    def state(self, *, owner_alive: bool = True) -> WorkerState:
        return build_worker_state(self.entries, "held" if owner_alive else "none")

    def status(self, *, owner_alive: bool = True) -> WorkerStatus:
        return self.state(owner_alive=owner_alive).state


def make_action(tool: str, **arguments: str) -> Action:
    return Action(run="a1", agent="worker", tool=tool, arguments=dict(arguments))


def test_a_worker_that_has_not_started_is_queued_whatever_was_noted() -> None:
    written = TimelineBuilder()
    assert written.status(owner_alive=False) == "queued"

    written.add(Noticed(text="This run is rehearsed."))

    assert written.status(owner_alive=False) == "queued"
    assert written.state(owner_alive=False).why == "it has not started yet"


def test_the_status_of_a_working_worker_says_what_it_does() -> None:
    assert TimelineBuilder().start().status() == "starting"
    assert TimelineBuilder().start_turn().status() == "thinking"
    assert (TimelineBuilder().call_tool().status(), TimelineBuilder().call_tool("bash").state().tool) == (
        "tool_call",
        "bash",
    )
    assert TimelineBuilder().call_tool().add(ToolAnswered(id="c1", text="ok"), CALL).status() == "thinking"
    assert TimelineBuilder().start_turn().add(TurnEnded(outcome="succeeded", text="done"), TURN).status() == "idle"


def test_one_that_waits_for_workers_of_its_own_says_so() -> None:
    written = TimelineBuilder().start().add(WorkerSent(run="b2"), "worker")
    waiting = build_worker_state(written.entries, "held")
    returned = build_worker_state(written.add(WorkerReturned(run="b2", outcome="succeeded"), "worker").entries, "held")

    assert (waiting.state, waiting.tool) == ("tool_call", "workers")
    assert (returned.state, returned.tool) == ("starting", "")


def test_a_worker_that_asks_waits_since_then_until_it_is_answered() -> None:
    asking = TimelineBuilder().ask_permission()

    waiting = asking.state()
    asking.add(PermissionAnswered(id="p1", decision="once"))

    assert (waiting.state, waiting.tool) == ("waiting_permission", "write_file")
    assert (waiting.waiting_since, waiting.waiting_for) == (6.0, ("p1",))
    assert (asking.status(), asking.state().waiting_since) == ("tool_call", 0.0)


def test_a_question_is_waited_for_like_a_request() -> None:
    asked = TimelineBuilder().start_turn().add(QuestionAsked(id="q1", text="Red or blue?"), TURN).state()

    assert (asked.state, asked.tool) == ("waiting_permission", "ask_person")


def test_an_operation_that_has_ended_waits_for_nothing() -> None:
    written = TimelineBuilder().start()
    written.add(OperationStarted(agent="helper", trigger="member", request=REQUEST), "worker/helper")
    written.add(PermissionAsked(id="p1", action=make_action("bash"), reason="no rule"), "worker/helper")
    assert written.status() == "waiting_permission"

    written.add(OperationEnded(outcome="timed_out"), "worker/helper")

    assert written.status() == "starting"


def test_a_request_stays_open_when_the_workers_process_dies() -> None:
    asking = TimelineBuilder().ask_permission()

    assert asking.status(owner_alive=False) == "resumable"
    assert asking.state(owner_alive=False).waiting_since == 6.0
    asking.add(RunResumed(host="here", pid=2))
    assert asking.status() == "waiting_permission"
    assert asking.state().restarts == 1


def test_the_next_process_has_nothing_in_hand_at_first() -> None:
    written = TimelineBuilder().call_tool().add(RunResumed(host="here", pid=2))
    assert written.status() == "starting"

    written.add(TurnResumed(), TURN)

    assert written.status() == "thinking"


def test_going_on_after_a_pause_is_no_restart() -> None:
    written = TimelineBuilder().start_turn().add(RunPaused())
    assert (written.status(owner_alive=False), written.status()) == ("paused", "paused")

    written.add(RunResumed(host="here", pid=2)).add(RunResumed(host="here", pid=3))

    assert (written.status(), written.state().restarts) == ("starting", 0)
    assert written.status(owner_alive=False) == "resumable"


@pytest.mark.parametrize(
    ("outcome", "word"),
    [("succeeded", "complete"), ("failed", "failed"), ("timed_out", "failed"), ("cancelled", "cancelled")],
)
def test_the_final_status_does_not_depend_on_whether_the_owner_is_alive(outcome: Outcome, word: WorkerStatus) -> None:
    written = TimelineBuilder().ask_permission().add(RunEnded(outcome=outcome))

    assert (written.status(), written.status(owner_alive=False)) == (word, word)
    assert (written.state().waiting_since, written.state().tool) == (0.0, "")


LATER: tuple[Event, ...] = (
    RunPaused(),
    RunResumed(host="here", pid=9),
    TurnStarted(agent="worker", engine="scripted", prompt="Build it."),
    ToolCalled(id="c9", action=make_action("bash")),
    PermissionAsked(id="p9", action=make_action("bash"), reason="no rule"),
)


@pytest.mark.parametrize("later", LATER, ids=lambda event: type(event).__name__)
def test_a_final_state_never_changes_and_any_other_may(later: Event) -> None:
    outcomes: tuple[Outcome, ...] = ("succeeded", "failed", "cancelled")
    ended = [TimelineBuilder().start_turn().add(RunEnded(outcome=outcome)) for outcome in outcomes]
    before = [written.status() for written in ended]

    assert [written.add(later, CALL).status() for written in ended] == before == ["complete", "failed", "cancelled"]
    assert TimelineBuilder().start().add(later, CALL).status() not in before


def test_it_says_why_there_is_no_answer() -> None:
    failure = Failure(kind="failed", agent="worker", message="process exited with code 9")
    failed = TimelineBuilder().start_turn().add(RunEnded(outcome="failed", failure=failure)).state()
    stopped = (
        TimelineBuilder().add(StopAsked(by="ada")).add(StopAsked(by="commander")).add(RunEnded(outcome="cancelled"))
    )

    assert failed.answer is None
    assert "process exited with code 9" in failed.why
    assert stopped.state().why == "it was stopped by ada"


def finish_worker(branch: str, run: str, *files: str) -> WorkerState:
    written = TimelineBuilder(branch, run).start().add(WorkerPlaced(path="/x", branch=branch, base="b0"))
    written.add(TurnStarted(agent="worker", engine="scripted", prompt="Build it."), TURN)
    written.add(ModelReplied(model="m", usage=Usage(input_tokens=10, output_tokens=2, calls=1, usd=0.5)), TURN)
    written.add(ToolCalled(id="c0", action=make_action("run_checks")), CALL)
    written.add(ToolAnswered(id="c0", text="Check 'x' not found.", is_error=True), CALL)
    written.add(ToolCalled(id="c1", action=make_action("run_checks")), CALL)
    written.add(ActionBegan(action=make_action("run_checks", name="tests, lint"), allowed_by="a rule"), CALL)
    said = "PASS tests, FAIL lint\n\nPASS tests [exit code 0]\nPASS lint\n\nFAIL lint [exit code 1]"
    written.add(ToolAnswered(id="c1", text=said, is_error=True), CALL)
    written.add(Checked(commands=("make test", "make lint"), passed=True), "worker")
    written.add(OperationEnded(outcome="succeeded", text="built"), "worker")
    written.add(WorkCommitted(branch=branch, commit="c9", commits=("c9",), files=files, added=3, removed=1))
    return written.add(RunEnded(outcome="succeeded")).state()


def test_the_state_of_a_finished_worker_has_its_answer_commit_and_checks() -> None:
    worker = finish_worker("feat/a", "a1", "a.py")

    assert (worker.name, worker.answer, worker.why) == ("feat/a", "built", "")
    assert (worker.base, worker.commit, worker.files) == ("b0", "c9", ("a.py",))
    assert (worker.added, worker.removed, worker.usage.tokens, worker.usage.usd) == (3, 1, 12, 0.5)
    assert worker.checks == (
        CheckRun(name="tests", passed=True),
        CheckRun(name="lint", passed=False),
        CheckRun(name="make test; make lint", passed=True),
    )
    assert worker.seconds == 13.0


def test_what_is_on_a_branch_that_several_share_counts_once() -> None:
    one, two = finish_worker("feat/a", "a1", "a.py"), finish_worker("feat/a", "a2", "a.py", "b.py")

    summary = WorkersSummary.from_workers([one, two])

    assert (summary.added, summary.removed) == (two.added, two.removed)


def test_several_workers_come_to_one_report() -> None:
    reader = build_worker_state(TimelineBuilder("", "r1").start().add(RunEnded(outcome="failed")).entries, "none")

    summary = WorkersSummary.from_workers(
        [finish_worker("feat/a", "a1", "a.py", "b.py"), finish_worker("feat/b", "b1", "b.py"), reader]
    )

    assert summary.shared == (SharedFile(path="b.py", workers=("feat/a", "feat/b")),)
    assert (summary.added, summary.removed, summary.usage.calls) == (6, 2, 2)
    assert summary.list_branches() == {"feat/a": "b0", "feat/b": "b0"}


def test_each_worker_that_a_run_sent_is_listed_once() -> None:
    written = TimelineBuilder().add(WorkerSent(run="x", branch="feat/x", task="build")).add(Noticed(text="…"))
    written.add(WorkerSent(run="y")).add(WorkerSent(run="x"))
    written.add(WorkerReturned(run="y", outcome="failed", error="no worker could be sent"))

    workers = SentWorkers()
    for entry in written.entries:
        workers.apply(entry)
    assert [*workers.sent.values()] == [
        SentWorker(run="x", branch="feat/x", task="build"),
        SentWorker(run="y", branch="", task="", why="no worker could be sent"),
    ]


def test_what_a_worker_of_a_worker_used_counts_once() -> None:
    inner = finish_worker("feat/b", "b1", "b.py")
    outer = TimelineBuilder("feat/a", "a1").start().add(WorkerSent(run="b1"))
    outer.add(WorkerReturned(run="b1", outcome="succeeded", usage=inner.usage), "worker")

    summary = WorkersSummary.from_workers([outer.state(), inner])

    assert outer.state().counts == ("b1",)
    assert summary.usage.calls == 1
    assert summary.seconds == inner.at - inner.begun_at
