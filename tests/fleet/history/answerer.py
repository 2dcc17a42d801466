"""A process that answers open requests at random: `python -m tests.fleet.history.answerer SEED WITHIN LOG`.

Every attempt is a line in LOG before the answer is posted, and another one after it, with the answer that counts. Some
requests are answered twice, with different decisions. Several such processes can run at the same time.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from random import Random

import msgspec
from msgspec import Struct

from podium import Settings
from podium.store.mailbox import post_to_mailbox
from podium.store.request_list import OpenRequest, find_posted_answer, list_open_requests
from podium.values.errors import PodiumError
from podium.values.event import Decision, PermissionAnswered
from podium.values.store_address import StoreAddress

POLL_SECONDS = 0.2
ANSWERED_TWICE = 0.3
"""The share of requests that a process answers twice."""
DECISIONS: tuple[Decision, ...] = ("once", "once", "deny")


class Attempt(Struct, frozen=True, kw_only=True):
    """An answer that is about to be posted, or that was posted: `counts` is then the decision that counts."""

    request: str
    decision: str
    by: str
    counts: str = ""
    counts_by: str = ""


class Answerer:
    """Answers requests under the name `name`, each after up to `within` seconds."""

    def __init__(self, store: StoreAddress, name: str, within: float, log: Path) -> None:
        self._store = store
        self._name = name
        self._within = within
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._random = Random(name)
        self._due: dict[str, float] = {}
        self._number = 0

    def answer_forever(self) -> None:
        """Answer requests until the process is killed."""
        while True:
            try:
                for one in list_open_requests(self._store):
                    self._answer_when_due(one)
            except PodiumError as error:
                print(f"answerer {self._name}: {error}", file=sys.stderr)
            time.sleep(POLL_SECONDS)

    def _answer_when_due(self, one: OpenRequest) -> None:
        now = time.monotonic()
        if self._due.setdefault(one.asked.id, now + self._random.uniform(0, self._within)) > now:
            return
        for _ in range(2 if self._random.random() < ANSWERED_TWICE else 1):
            self._answer(one, self._random.choice(DECISIONS))

    def _answer(self, one: OpenRequest, decision: Decision) -> None:
        self._number += 1
        by = f"{self._name}-{self._number}"
        attempt = Attempt(request=one.asked.id, decision=decision, by=by)
        self._write(attempt)
        given = PermissionAnswered(id=one.asked.id, decision=decision, by=by, at=time.time())
        post_to_mailbox(self._store, one.summary.id, given, ref=given.id)
        counts = find_posted_answer(self._store, given.id, run=one.summary.id)
        assert isinstance(counts, PermissionAnswered)
        self._write(msgspec.structs.replace(attempt, counts=counts.decision, counts_by=counts.by))

    def _write(self, attempt: Attempt) -> None:
        os.write(self._log, msgspec.json.encode(attempt) + b"\n")


def read_attempts(log: Path) -> list[Attempt]:
    """Return what all processes wrote to a log."""
    lines = log.read_bytes().splitlines() if log.exists() else []
    return [msgspec.json.decode(line, type=Attempt) for line in lines]


if __name__ == "__main__":
    Answerer(Settings.load().store, sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])).answer_forever()
