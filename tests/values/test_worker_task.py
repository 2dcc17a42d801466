from __future__ import annotations

import msgspec

from podium.values.worker_task import RunCheckout, WorkerTask


def test_a_worker_task_stored_without_a_branch_is_for_a_reader() -> None:
    worker_task = msgspec.json.decode(b'{"root":"/shop","path":"/shop"}', type=WorkerTask)

    assert worker_task.is_reader
    assert not worker_task.has_checkout


def test_a_worker_task_in_the_repository_itself_is_not_for_a_reader_and_has_no_checkout() -> None:
    worker_task = WorkerTask(root="/shop", path="/shop", is_here=True)

    assert not worker_task.is_reader
    assert not worker_task.has_checkout


def test_a_worker_task_stored_without_further_checkouts_has_one() -> None:
    line = b'{"root":"/shop","path":"/shop-worker","branch":"feat/one","base":"c0ffee"}'

    worker_task = msgspec.json.decode(line, type=WorkerTask)

    assert worker_task.checkouts == (RunCheckout(root="/shop", path="/shop-worker", base="c0ffee"),)
    assert msgspec.json.encode(worker_task) == line


def test_the_checkouts_of_a_stored_worker_task_begin_with_the_primary_one() -> None:
    line = (
        b'{"root":"/shop","path":"/shop-worker","branch":"feat/one","base":"c0ffee",'
        b'"also":[{"root":"/lib","path":"/lib-worker","base":"beef","checks":{"test":["make"]}}]}'
    )

    worker_task = msgspec.json.decode(line, type=WorkerTask)

    first, second = worker_task.checkouts
    assert (first.path, second) == (
        "/shop-worker",
        RunCheckout(root="/lib", path="/lib-worker", base="beef", checks={"test": ("make",)}),
    )
    assert msgspec.json.encode(WorkerTask(root="", path="", branch="feat/one").with_checkouts(first, second)) == line


def test_a_worker_task_with_the_commits_of_its_branch_is_otherwise_the_same() -> None:
    other = RunCheckout(root="/lib", path="/lib-worker", checks={"test": ("make",)})
    worker_task = WorkerTask(root="/shop", path="/shop-worker", branch="feat/one", others=(other,))

    placed = worker_task.with_bases(["c0ffee", "beef"])

    assert [one.base for one in placed.checkouts] == ["c0ffee", "beef"]
    assert placed.with_bases(["", ""]) == worker_task
    assert WorkerTask(root="/shop", path="/shop").with_bases([]) == WorkerTask(root="/shop", path="/shop")
