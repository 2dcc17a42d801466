"""Ask the person at a client to answer a run's requests: permission requests, and questions from agents.

The same requests are in the inbox. The first answer counts: when somebody answers elsewhere, the client's prompt is
withdrawn. If the client cannot ask, or the person gives no answer, the request stays in the inbox.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from anyio import CancelScope, sleep, to_thread
from anyio.abc import TaskGroup
from msgspec import structs

from ..core.open_requests import Asked
from ..runs.answers import NewAnswer, answer_request, get_shown
from ..runs.queries.inbox import WorkerRequestWatcher
from ..values.actor import Actor
from ..values.errors import AlreadyAnswered, Mistake
from ..values.event import (
    Decision,
    Entry,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    WorkerSent,
)
from ..values.operation_path import parse_agent_name
from ..values.store_address import StoreAddress
from ..views.request_text import escape_hidden_text, escape_in_line, format_request_lines

SETTLE_SECONDS = 0.2
"""How long a request must be open before it is sent to the client.

Rules answer many requests immediately, and those requests are never sent.
"""

DECISIONS: dict[str, Decision] = {"once": "once", "run": "run", "deny": "deny"}
"""The decisions that a client can make about a permission request, keyed by name. A client cannot save rules."""

AskClient = Callable[[Entry, Asked, str], Awaitable[str | None]]
"""Shows a request, as text, to the client's user.

Returns a key of DECISIONS or the answer to a question, or None if the user does not answer.
"""


class ClientRequests:
    """Shows the requests from one run and its workers to a client's user, and sends the answers to the run.

    `tasks` is the task group in which requests are sent to the client. The caller cancels it to stop sending requests.
    """

    def __init__(self, tasks: TaskGroup, store: StoreAddress, run: str, ask: AskClient, *, by: Actor) -> None:
        self._tasks = tasks
        self._store = store
        self._by = by
        self._watcher = WorkerRequestWatcher(store, self, sent_by=run)
        self._is_watching = False
        self._ask_client = ask
        self._open: dict[str, CancelScope] = {}

    def handle_entry(self, entry: Entry, worker: str = "") -> None:
        """Handle an entry of the run, or a request from one of its workers."""
        match entry.event:
            case PermissionAsked() | QuestionAsked() as asked if asked.id not in self._open:
                self._open[asked.id] = CancelScope()
                self._tasks.start_soon(self._ask, entry, asked, worker)
            case PermissionAnswered(id=id) | QuestionAnswered(id=id):
                self.withdraw_request(id, "")
            case WorkerSent():
                self.watch_workers()

    def watch_workers(self) -> None:
        """Start handling the requests from the run's workers, unless they are already being handled."""
        if not self._is_watching:
            self._is_watching = True
            self._tasks.start_soon(self._watcher.watch_requests)

    def withdraw_request(self, id: str, how: str) -> None:
        """Stop asking about a request that is no longer open."""
        if id in self._open:
            self._open[id].cancel()

    async def _ask(self, entry: Entry, asked: Asked, worker: str) -> None:
        with self._open[asked.id]:
            await sleep(SETTLE_SECONDS)
            given = await self._ask_client(entry, asked, format_request(entry, asked, worker))
            if given is not None:
                await submit_client_answer(self._store, entry.run, asked, given, by=self._by)


async def submit_client_answer(store: StoreAddress, run: str, asked: Asked, given: str, *, by: Actor) -> None:
    """Submit the answer from a client's user: a decision on a permission request, or the answer to a question.

    An answer that the request does not allow is ignored, so the request stays in the inbox.
    """
    if isinstance(asked, QuestionAsked):
        answer = NewAnswer(shown=get_shown(asked), text=given)
    elif given in DECISIONS:
        answer = NewAnswer(shown=get_shown(asked), decision=DECISIONS[given])
    else:
        return
    with suppress(AlreadyAnswered, Mistake):
        await to_thread.run_sync(partial(answer_request, store, run, asked, answer, by=by, home=None))


def format_request(entry: Entry, asked: Asked, worker: str = "") -> str:
    """Return a request as text for the person who answers it, with hidden characters escaped."""
    who = escape_in_line(parse_agent_name(entry.operation))
    where = f" (worker {escape_in_line(worker)})" if worker else ""
    if isinstance(asked, PermissionAsked):
        offered = structs.replace(asked, always="")  # a client cannot save a rule, so none is offered
        return "\n".join([f"{who}{where} requests permission:", *format_request_lines(offered)])
    return "\n\n".join(
        filter(None, [f"{who}{where} asks: {escape_hidden_text(asked.text)}", escape_hidden_text(asked.shown)])
    )
