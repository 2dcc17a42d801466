from __future__ import annotations

from podium.core.plan_state import StepProgress, WorkProgress
from podium.values.action import Action
from podium.values.event import (
    ActionBegan,
    Entry,
    Event,
    ModelReplied,
    OperationEnded,
    OperationStarted,
    PermissionAnswered,
    PermissionAsked,
    WorkerReturned,
)
from podium.values.plan import PlanStep
from podium.values.request import Request
from podium.values.usage import Usage
from podium.views.run_state.plans import RunPlans, StepUse, TeamWork

OWNER = "lead/plan_step:s1/member:ada#1"
STARTED = OperationStarted(agent="ada", trigger="member", request=Request(text="go"))
ENDED = OperationEnded(outcome="succeeded")


def make_work(version: int = 1, *, is_done: bool = False) -> TeamWork:
    step = PlanStep(id="s1", owner="ada", description="Do it.", acceptance=())
    progress = StepProgress(step=step, state="done" if is_done else "running")
    return TeamWork(operation="lead", progress=WorkProgress(version=version, steps={"s1": progress}))


def read_use(work: TeamWork, *events: tuple[float, str, Event], until: float = 100.0) -> StepUse:
    plans = RunPlans()
    for seq, (at, path, event) in enumerate(events, 1):
        plans.apply(Entry(run="r", seq=seq, at=at, scope=path, operation=path, event=event))
    return plans.measure_steps(work, until=until)["s1"]


def reply(tokens: int) -> ModelReplied:
    return ModelReplied(model="m", usage=Usage(calls=1, input_tokens=tokens))


def edit(path: str) -> ActionBegan:
    return ActionBegan(action=Action(run="r", agent="ada", tool="edit", outputs={path: "new"}), allowed_by="rule")


def ask(id: str) -> PermissionAsked:
    return PermissionAsked(id=id, action=Action(run="r", agent="ada", tool="bash"), reason="no rule")


def test_everything_that_happens_for_a_step_counts_and_nothing_else() -> None:
    returned = WorkerReturned(run="w", outcome="succeeded", files=("a.py", "b.py"), usage=Usage(input_tokens=30))
    used = read_use(
        make_work(),
        (1.0, OWNER, reply(100)),
        (2.0, "lead/plan_step:s1/review#1/member:bob#1", reply(20)),
        (3.0, f"{OWNER}/tool:helper#1", edit("a.py")),
        (4.0, OWNER, returned),
        (5.0, "lead", reply(1000)),
        (6.0, "lead/plan_step:s10/member:ada#1", reply(1000)),
        (7.0, "lead/member:other#1/plan_step:s1/member:ada#1", reply(1000)),
    )

    assert used == StepUse(tokens=150, files=2)


def test_the_owners_time_does_not_include_waiting_for_a_person() -> None:
    first = ((10.0, OWNER, STARTED), (12.0, OWNER, ask("p1")), (13.0, OWNER, ask("p2")))
    answers = [(at, OWNER, PermissionAnswered(id=id, decision="once")) for at, id in ((20.0, "p1"), (30.0, "p2"))]

    assert read_use(make_work(), *first).seconds == 2
    assert read_use(make_work(), *first, *answers, until=35.0).seconds == 7
    assert read_use(make_work(), *first, *answers, (31.0, OWNER, ENDED)).seconds == 3
    limited = OperationEnded(outcome="succeeded", seconds=2.5)
    assert read_use(make_work(), *first, *answers, (31.0, OWNER, limited)).seconds == 2.5


def test_a_step_of_a_second_plan_starts_again_unless_it_was_done_before() -> None:
    earlier = (1.0, OWNER, reply(100))

    assert read_use(make_work(2), earlier).tokens == 0
    assert read_use(make_work(2, is_done=True), earlier).tokens == 100
    assert read_use(make_work(2), earlier, (2.0, "lead/plan_step:s1~2/member:ada#1", reply(7))).tokens == 7
