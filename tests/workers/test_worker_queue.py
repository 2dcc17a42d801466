from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from podium.values.phase import Phase
from podium.values.worker_task import WorkerTask
from podium.workers.unfinished_workers import plan_worker_starts


def make_task(*, after: tuple[str, ...] = (), parent: str = "", root: str = "") -> WorkerTask:
    return WorkerTask(root=root, path=root, after=after, parent=parent)


def test_workers_are_started_in_the_order_of_delegation_up_to_the_limit() -> None:
    tasks = {run: make_task() for run in "abcd"}

    plan = plan_worker_starts(tasks, phases={}, running=["a"], most=3)

    assert plan.start == ["b", "c"]
    assert plan.unstartable == []


def test_a_worker_waits_until_all_that_it_follows_have_succeeded() -> None:
    tasks = {"c": make_task(after=("a", "b"))}

    early = plan_worker_starts(tasks, phases={"a": "succeeded", "b": "running"}, running=["b"], most=4)
    late = plan_worker_starts(tasks, phases={"a": "succeeded", "b": "succeeded"}, running=[], most=4)

    assert early.start == []
    assert late.start == ["c"]


def test_workers_that_follow_a_failed_one_cannot_start_and_give_the_reason() -> None:
    tasks = {"b": make_task(after=("a",)), "c": make_task(after=("gone",))}

    plan = plan_worker_starts(tasks, phases={"a": "timed_out"}, running=[], most=4, end_texts={"a": "feat/a timed out"})

    assert plan.start == []
    assert plan.unstartable == [("b", "feat/a timed out"), ("c", "it depends on gone, which did not succeed")]


def test_paused_runs_and_those_of_another_process_are_skipped_and_do_not_count() -> None:
    tasks = {run: make_task() for run in "abc"}

    plan = plan_worker_starts(tasks, phases={"a": "paused", "b": "running"}, running=[], most=1)

    assert plan.start == ["c"]


@given(
    st.lists(st.sampled_from(["resumable", "paused", "running", "failed", "succeeded"]), max_size=12),
    st.integers(1, 5),
    st.data(),
)
def test_there_are_never_more_workers_running_than_the_limit(
    statuses: list[Phase], most: int, data: st.DataObject
) -> None:
    status_by_number = dict(enumerate(statuses))
    tasks = {
        str(n): make_task(after=tuple(map(str, data.draw(st.sets(st.integers(0, max(n - 1, 0)))))) if n else ())
        for n in status_by_number
    }
    running = {str(n) for n in status_by_number if status_by_number[n] == "resumable" and data.draw(st.booleans())}

    plan = plan_worker_starts(
        tasks, phases={str(n): one for n, one in status_by_number.items()}, running=running, most=most
    )

    assert len(plan.start) + len(running) <= max(most, len(running))
    assert not running & set(plan.start)
    assert not set(plan.start) & {run for run, _ in plan.unstartable}


def test_a_worker_whose_parent_waits_for_it_is_started_though_all_places_are_taken() -> None:
    tasks = {"child": make_task(parent="lead"), "other": make_task()}

    found = plan_worker_starts(tasks, phases={}, running=["lead"], most=1)

    assert found.start == ["child"]


def test_past_the_limit_a_parent_has_one_worker_at_work_and_the_next_when_that_is_over() -> None:
    tasks = {"lead": make_task(), **{str(n): make_task(parent="lead") for n in range(8)}}

    first = plan_worker_starts(tasks, phases={}, running=["lead"], most=1)
    meanwhile = plan_worker_starts(tasks, phases={}, running=["lead", "0"], most=1)
    then = plan_worker_starts(
        {run: task for run, task in tasks.items() if run != "0"}, phases={"0": "succeeded"}, running=["lead"], most=1
    )

    assert (first.start, meanwhile.start, then.start) == (["0"], [], ["1"])


@given(st.lists(st.integers(-1, 11), max_size=12), st.sets(st.integers(0, 11)), st.integers(1, 5))
def test_the_limit_is_passed_by_one_worker_for_each_parent_that_has_none(
    parents: list[int], at_work: set[int], most: int
) -> None:
    tasks = {str(n): make_task(parent=str(parent) if parent < n else "") for n, parent in enumerate(parents)}
    running = {run for run in tasks if int(run) in at_work}
    served_parents = {task.parent for run, task in tasks.items() if run in running}
    asking = {task.parent for run, task in tasks.items() if run not in running}
    waiting = (asking & running) - served_parents

    start = plan_worker_starts(tasks, phases={}, running=running, most=most).start

    assert len(running) + len(start) <= max(most, len(running)) + len(waiting)
    assert waiting <= {tasks[run].parent for run in start}


def test_a_repository_runs_no_more_workers_than_its_limit_and_delays_no_other() -> None:
    tasks = {run: make_task(root="here" if run in "abc" else "there") for run in "abcde"}

    found = plan_worker_starts(tasks, phases={}, running=["a"], most=4, within={"here": 2, "there": 9})

    assert found.start == ["b", "d", "e"]


def test_a_worker_whose_parent_waits_for_it_is_started_though_its_repository_has_no_place() -> None:
    tasks = {"lead": make_task(root="here"), **{run: make_task(parent="lead", root="here") for run in "ab"}}

    found = plan_worker_starts(tasks, phases={}, running=["lead"], most=4, within={"here": 1})

    assert found.start == ["a"]
