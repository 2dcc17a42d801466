from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from podium.workers.worker_queue import Job, RunStatus, plan_worker_starts


def test_workers_are_started_in_the_order_of_their_hiring_while_there_are_places() -> None:
    jobs = [Job(run, run) for run in "abcd"]

    taken = plan_worker_starts(jobs, statuses={}, running=["a"], most=3)

    assert taken.start == ["b", "c"]
    assert taken.unstartable == []


def test_a_worker_waits_until_all_that_it_follows_have_succeeded() -> None:
    jobs = [Job("c", "c", after=("a", "b"))]

    early = plan_worker_starts(jobs, statuses={"a": "succeeded", "b": "open"}, running=["b"], most=4)
    late = plan_worker_starts(jobs, statuses={"a": "succeeded", "b": "succeeded"}, running=[], most=4)

    assert early.start == []
    assert late.start == ["c"]


def test_one_that_failed_dooms_those_that_follow_it_and_they_say_why() -> None:
    jobs = [Job("b", "b", after=("a",)), Job("c", "c", after=("gone",))]

    taken = plan_worker_starts(
        jobs, statuses={"a": "timed_out"}, running=[], most=4, end_texts={"a": "feat/a timed out"}
    )

    assert taken.start == []
    assert taken.unstartable == [("b", "feat/a timed out"), ("c", "gone, which it was to follow, has not succeeded")]


def test_who_is_paused_or_somebody_elses_is_left_and_takes_no_place() -> None:
    jobs = [Job(run, run) for run in "abc"]

    taken = plan_worker_starts(jobs, statuses={"a": "paused", "b": "taken"}, running=[], most=1)

    assert taken.start == ["c"]


@given(
    st.lists(st.sampled_from(["open", "paused", "taken", "failed", "succeeded"]), max_size=12),
    st.integers(1, 5),
    st.data(),
)
def test_there_are_never_more_at_work_than_places(rests: list[RunStatus], most: int, data: st.DataObject) -> None:
    rest = dict(enumerate(rests))
    jobs = [
        Job(str(n), str(n), tuple(map(str, data.draw(st.sets(st.integers(0, max(n - 1, 0)))))) if n else ())
        for n in rest
    ]
    running = {str(n) for n in rest if rest[n] == "open" and data.draw(st.booleans())}

    taken = plan_worker_starts(jobs, statuses={str(n): one for n, one in rest.items()}, running=running, most=most)

    assert len(taken.start) + len(running) <= max(most, len(running))
    assert not running & set(taken.start)
    assert not set(taken.start) & {run for run, _ in taken.unstartable}


def test_a_worker_whose_parent_waits_for_it_is_started_though_all_places_are_taken() -> None:
    jobs = [Job("child", "feat/x", (), "lead"), Job("other", "feat/y")]

    found = plan_worker_starts(jobs, statuses={}, running=["lead"], most=1)

    assert found.start == ["child"]


def test_past_the_limit_a_parent_has_one_worker_at_work_and_the_next_when_that_is_over() -> None:
    jobs = [Job("lead", "lead"), *(Job(str(n), str(n), (), "lead") for n in range(8))]

    first = plan_worker_starts(jobs, statuses={}, running=["lead"], most=1)
    meanwhile = plan_worker_starts(jobs, statuses={}, running=["lead", "0"], most=1)
    then = plan_worker_starts(jobs[:1] + jobs[2:], statuses={"0": "succeeded"}, running=["lead"], most=1)

    assert (first.start, meanwhile.start, then.start) == (["0"], [], ["1"])


@given(st.lists(st.integers(-1, 11), max_size=12), st.sets(st.integers(0, 11)), st.integers(1, 5))
def test_the_limit_is_passed_by_one_worker_for_each_parent_that_has_none(
    parents: list[int], at_work: set[int], most: int
) -> None:
    jobs = [Job(str(n), str(n), (), str(parent) if parent < n else "") for n, parent in enumerate(parents)]
    running = {job.run for job in jobs if int(job.run) in at_work}
    attended = {job.parent for job in jobs if job.run in running}
    waiting = {job.parent for job in jobs if job.run not in running and job.parent in running} - attended

    start = plan_worker_starts(jobs, statuses={}, running=running, most=most).start

    assert len(running) + len(start) <= max(most, len(running)) + len(waiting)
    assert waiting <= {job.parent for job in jobs if job.run in start}


def test_a_repository_has_no_more_at_work_than_it_says_and_keeps_no_other_waiting() -> None:
    jobs = [*(Job(run, run, root="here") for run in "abc"), *(Job(run, run, root="there") for run in "de")]

    found = plan_worker_starts(jobs, statuses={}, running=["a"], most=4, within={"here": 2, "there": 9})

    assert found.start == ["b", "d", "e"]


def test_a_worker_whose_parent_waits_for_it_is_started_though_its_repository_has_no_place() -> None:
    jobs = [Job("lead", "lead", root="here"), *(Job(run, run, (), "lead", "here") for run in "ab")]

    found = plan_worker_starts(jobs, statuses={}, running=["lead"], most=4, within={"here": 1})

    assert found.start == ["a"]
