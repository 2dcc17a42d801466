from __future__ import annotations

import msgspec

from podium.values.worker_task import WorkerTask


def test_a_worker_task_stored_without_a_branch_is_for_a_reader() -> None:
    worker_task = msgspec.json.decode(b'{"root":"/shop","path":"/shop"}', type=WorkerTask)

    assert worker_task.is_reader
    assert not worker_task.has_checkout


def test_a_worker_task_in_the_repository_itself_is_not_for_a_reader_and_has_no_checkout() -> None:
    worker_task = WorkerTask(root="/shop", path="/shop", is_here=True)

    assert not worker_task.is_reader
    assert not worker_task.has_checkout
