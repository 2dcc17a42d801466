from __future__ import annotations

import msgspec

from podium.values.worker_task import WorkerTask


def test_an_errand_from_before_without_a_branch_is_a_readers() -> None:
    errand = msgspec.json.decode(b'{"root":"/shop","path":"/shop"}', type=WorkerTask)

    assert errand.is_reader
    assert not errand.has_checkout


def test_who_is_in_the_repository_itself_is_no_reader_and_has_no_checkout() -> None:
    errand = WorkerTask(root="/shop", path="/shop", is_here=True)

    assert not errand.is_reader
    assert not errand.has_checkout
