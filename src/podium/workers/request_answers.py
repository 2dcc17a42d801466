"""Answer permission requests from a commander's workers.

The worker announces a request over the wire. The commander reads the request from the timeline and, if the current
rules decide it, posts the answer to the mailbox of the worker's run. Otherwise the commander notifies a person, whose
answer goes to the same mailbox, and denies the request if no answer is given in time. Time counts only while a client
is connected. While no client is connected, a request waits, for days if necessary.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf

from anyio import Event, move_on_after, sleep, to_thread

from ..core.open_requests import compute_seconds_left, describe_timeout
from ..runs.answers import NewAnswer, answer_request, get_shown
from ..store.request_list import find_open_permission
from ..store.store_clients import list_clients
from ..values.actor import Actor, Channel
from ..values.errors import AlreadyAnswered, PodiumError, StoreUnreachable
from ..values.event import PermissionAsked
from ..values.store_address import StoreAddress
from .active_worker import ActiveWorker
from .current_rules import COMMANDER, decide_by_rules
from .settings_cache import SettingsCache
from .worker_notifications import WorkerLogs, WorkerNotifications

AWAY_SECONDS = 1.0
"""How long to wait before listing the clients again if the store's server cannot be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """A request that is denied if nobody answers it in time.

    `allowed` returns how many seconds a person has to answer the request.
    """

    by: str
    asked: float
    allowed: Callable[[], float]
    deny: Callable[[float], Awaitable[None]]


class ApprovalDeadlines:
    """The deadlines of all requests from one store's workers."""

    def __init__(self, store: StoreAddress) -> None:
        self._store = store
        self._open: dict[str, PendingRequest] = {}
        self._clients_since: dict[str, float] = {}
        """When each connected client was first seen. The times are monotonic, because the system time can change."""
        self._changed = Event()

    def add_request(
        self, id: str, *, by: str, allowed: Callable[[], float], deny: Callable[[float], Awaitable[None]]
    ) -> None:
        """Add a request. `deny` is called at its deadline, and has no effect if the request has been answered."""
        self._open[id] = PendingRequest(by=by, asked=time.monotonic(), allowed=allowed, deny=deny)
        self.recheck()

    def discard_requests(self, by: str) -> None:
        """Discard the requests from a worker whose connection has closed."""
        self._open = {id: one for id, one in self._open.items() if one.by != by}

    @property
    def has_requests(self) -> bool:
        """Whether any requests are waiting for an answer."""
        return bool(self._open)

    def recheck(self) -> None:
        """Have `enforce_forever` check the connected clients and the deadlines again now."""
        self._changed.set()

    async def enforce_forever(self) -> None:
        """Enforce the deadlines until cancelled."""
        while True:
            self._changed = changed = Event()
            try:
                clients = await to_thread.run_sync(list_clients, self._store)
            except StoreUnreachable:
                await sleep(AWAY_SECONDS)
                continue
            now, left = time.monotonic(), inf
            self._clients_since = {one: self._clients_since.get(one, now) for one in clients}
            since = min(self._clients_since.values(), default=inf)
            for id, one in tuple(self._open.items()):
                seconds = one.allowed()
                remaining = compute_seconds_left(one.asked, seconds, watched_since=since, now=now)
                left = min(left, remaining) if remaining > 0 else left
                if remaining <= 0 and id in self._open:
                    del self._open[id]
                    await one.deny(seconds)
            with move_on_after(None if left == inf else left):
                await changed.wait()


class RequestAnswers:
    """Answers the requests from one commander's workers.

    On a host, this class does not apply the rules: it only denies requests that nobody has answered in time.
    """

    def __init__(
        self,
        store: StoreAddress,
        settings_cache: SettingsCache,
        logs: WorkerLogs,
        notifications: WorkerNotifications,
        *,
        is_host: bool = False,
    ) -> None:
        self._is_host = is_host
        self._store = store
        self._notifications = notifications
        self._settings_cache = settings_cache
        self._logs = logs
        self.deadlines = ApprovalDeadlines(store)

    async def handle_request(self, worker: ActiveWorker, id: str) -> None:
        """Answer a worker's request according to the rules, or notify a person and set a deadline for the answer.

        For a question, only notify a person. Ignore an id that is not open in the worker's own run.
        """
        try:
            asked = await to_thread.run_sync(find_open_permission, self._store, worker.run, id)
        except PodiumError as error:
            self._logs.write_line(worker.run, f"request {id} cannot be read, so a person must decide: {error}")
            return
        if asked is not None:
            # A host does not apply the rules here: its worker has read the saved rules itself, and the store lets a
            # host only deny requests, not allow them.
            answer = None if self._is_host else self._decide_by_rules(worker, asked)
            if answer is not None:
                await self._submit_answer(worker, asked, answer, "rule")
                return
            self.deadlines.add_request(
                id,
                by=worker.run,
                allowed=partial(self._read_approval_seconds, worker),
                deny=partial(self._deny_late_request, worker, asked),
            )
        await self._notifications.notify_request(worker.run, id)

    def _decide_by_rules(self, worker: ActiveWorker, asked: PermissionAsked) -> NewAnswer | None:
        """Return an answer according to the current rules, or None if a person must decide."""
        try:
            settings = self._settings_cache.get_settings(worker.worker_task.root)
            return decide_by_rules(asked, settings, worker.restrictions, run=worker.run)
        except PodiumError as error:
            self._logs.write_line(worker.run, f"the rules cannot be read, so a person must decide: {error}")
            return None

    def _read_approval_seconds(self, worker: ActiveWorker) -> float:
        if self._is_host:
            return worker.approval_seconds
        try:
            return self._settings_cache.get_settings(worker.worker_task.root).approval_seconds
        except PodiumError:
            return inf

    async def _deny_late_request(self, worker: ActiveWorker, asked: PermissionAsked, seconds: float) -> None:
        denial = NewAnswer(shown=get_shown(asked), decision="deny", comment=describe_timeout(seconds))
        await self._submit_answer(worker, asked, denial, "timeout")

    async def _submit_answer(
        self, worker: ActiveWorker, asked: PermissionAsked, answer: NewAnswer, channel: Channel
    ) -> None:
        """Answer a request of the worker's run. Only the first answer to a request counts."""
        by = Actor(name=COMMANDER, channel=channel)
        submit = partial(answer_request, self._store, worker.run, asked, answer, by=by, home=None)
        try:
            with suppress(AlreadyAnswered):
                await to_thread.run_sync(submit)
        except PodiumError as error:
            self._logs.write_line(worker.run, f"request {asked.id} could not be answered: {error}")
