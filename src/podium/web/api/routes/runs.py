"""Routes for runs: list, read, start and steer runs."""

from __future__ import annotations

import time
from collections import Counter
from typing import Annotated, Any

from anyio import to_thread
from litestar import get, post
from litestar.exceptions import NotFoundException
from litestar.params import FromQuery, JSONBody, PathParameter, QueryParameter
from msgspec import Raw, Struct, convert

from ....core.journal_rows import GENESIS
from ....files.settings import Settings
from ....runs import find, run_steering
from ....runs.queries.cost_overview import CostNode, build_cost_tree
from ....runs.queries.run_listing import RUN_COLUMNS, make_run_row
from ....runs.queries.run_lookup import open_reader
from ....runs.queries.run_pages import RunFilter, RunTable
from ....runs.queries.watched_runs import MOST_CHANGES
from ....runs.run_fork import NewFork, NewRetry, fork_run, retry_run
from ....runs.run_options import RunOptions
from ....runs.run_start import resume_run
from ....store.entry_feed import EntryFeed
from ....store.reader import RunSummary
from ....values.actor import Actor
from ....values.agent import Budget
from ....values.column import Document, DocumentPart, encode_row
from ....values.errors import NoSuchRun
from ....values.phase import Phase
from ....values.request import as_attached_files
from ....values.team_modes import Mode
from ....values.usage import FullUsage
from ....views.run_state.tree import RunView
from ....workers.delegation import BackgroundRun, enqueue_background_run
from ..route_parameters import CurrentActor, IdempotencyKey, RunPrefix, Server, run_once
from ..scopes import ApiRequest, get_token, may, may_read, require_scope
from ..sent_entry import StoredEntries, StoredEntry, add_sentence
from ..server_context import ServerContext

MOST_ENTRIES = 20_000
LARGEST_SEQ = 2**53
MOST_RUNS = 200
MOST_LISTED_RUNS = 5000


class NewRun(Struct, forbid_unknown_fields=True):
    """A request to an agent. `repo` is a folder on the server's machine, by default the server's repository."""

    agent: str
    request: str
    repo: str = ""
    model: str = ""
    mode: Mode | None = None
    max_iterations: int | None = None
    constraints: tuple[str, ...] = ()
    budget: Budget | None = None


class NewFile(Struct, forbid_unknown_fields=True):
    """A file to send with a message. `data` is its content, encoded in Base64."""

    name: str
    data: bytes


class NewMessage(Struct, forbid_unknown_fields=True):
    """A message to an agent in a run, by default to its first agent."""

    text: str
    agent: str = ""
    files: tuple[NewFile, ...] = ()


class RunDetails(Document, frozen=True, kw_only=True):
    """A run: its row in a list, its request and the costs of its operations at the time `now`."""

    id: str
    state: Phase
    agent: str
    request: str
    repo: str
    forked_from: str
    started_at: float
    wakes_at: float | None
    seconds: float
    entries: int
    worker: bool
    usage: FullUsage
    tree: CostNode | None
    now: float


class EntryPage(Document, frozen=True, kw_only=True):
    """Entries of a run, and the cursor where the stream continues.

    Each entry is as it is stored, with a sentence about it in `text`, the same as in `podium logs`. `has_more` means
    that the page is full, and more entries may follow.
    """

    run: str
    state: Phase
    cursor: str
    has_more: bool
    entries: StoredEntries


class HashedEntry(Document, frozen=True, kw_only=True):
    """An entry of a run, with its hash and the hash of the entry before it."""

    run: str
    hash: str
    previous_hash: str
    entry: StoredEntry


class StartedRun(DocumentPart, frozen=True, kw_only=True):
    """A run that was started."""

    id: str


class StartedFork(StartedRun, frozen=True, kw_only=True):
    """A fork that was started, at a position of the original run."""

    at: int
    notices: tuple[str, ...] = ()


class SteeredRun(DocumentPart, frozen=True, kw_only=True):
    """A run that was steered, and what happens next."""

    run: str
    text: str


class RunDocument(Document, frozen=True, kw_only=True):
    """The state of a run after an entry as a document, to which the changes of later entries can be applied."""

    run: str
    state: Phase
    document: Annotated[Raw, dict[str, Any]]


class RunChanges(Document, frozen=True, kw_only=True):
    """What entries of a run change in its document: a list for each entry after the entry `after`, in order.

    A change is `[PLACE, "set", FIELDS]`, `[PLACE, "add", TEXT_OR_ITEMS]` or `[PLACE, "drop"]`, where PLACE is a list of
    keys. `has_more` means that more entries follow.
    """

    run: str
    state: Phase
    after: int
    has_more: bool
    changes: list[Annotated[Raw, list[Any]]]


@get("/api/runs", guards=[may_read], sync_to_thread=True)
def list_runs(
    server: Server,
    run_state: Annotated[str, QueryParameter(name="state")] = "",
    text: FromQuery[str] = "",
    group: FromQuery[str] = "",
    agent: FromQuery[str] = "",
    since: FromQuery[float] = 0.0,
    needs_person: FromQuery[bool] = False,
    archived: FromQuery[bool] = False,
    offset: FromQuery[int] = 0,
    limit: FromQuery[int] = MOST_RUNS,
) -> RunTable:
    """List runs with their groups: pinned ones first, then the newest, a page at a time.

    `text` is searched for in the id, agent, request, repository and name; `group` is the id of a group, and `since` is
    a time in seconds. Archived runs and the runs of archived groups are listed only with `archived`.
    """
    now = time.time()
    wanted = RunFilter(
        state=run_state,
        text=text,
        group=group,
        agent=agent,
        since=since,
        needs_person=needs_person,
        has_archived=archived,
    )
    waiting = Counter(one.summary.id for one in server.overview.load(now=now).waiting)
    first, most = max(offset, 0), min(max(limit, 1), MOST_LISTED_RUNS)
    return server.run_table.read(wanted, waiting, now=now, first=first, most=most)


@get("/api/runs/{run:str}", guards=[may_read], sync_to_thread=True)
def read_run(run: RunPrefix, server: Server) -> RunDetails:
    """Return a run: its state, its request and the costs of its operations."""
    now = time.time()
    with open_reader(server.store) as reader:
        summary = reader.read_summary(find.resolve(reader, run, repo=server.repo).run)
        view = RunView.from_entries(reader.read_entries(summary.id))
    state = summary.phase
    costs = build_cost_tree(view, state=state, now=now if state == "running" else view.at)
    row = encode_row(make_run_row(summary, now=now), RUN_COLUMNS)
    return convert(
        row | {"worker": summary.is_worker, "usage": costs.usage, "tree": costs.tree, "now": now}, RunDetails
    )


@get("/api/runs/{run:str}/entries", guards=[may_read], sync_to_thread=True)
def read_entries(run: RunPrefix, server: Server, after: FromQuery[int] = 0, until: FromQuery[int] = 0) -> EntryPage:
    """Return a run's entries after a sequence number. `until` is the last one to return; 0 means no limit."""
    with open_reader(server.store) as reader, EntryFeed(server.store) as feed:
        id = find.resolve(reader, run, repo=server.repo).run
        # Read the cursor before the entries, so that no entry is missed: an entry that is written in between is both in
        # this response and in the stream.
        last = feed.find_end()
        first = max(after, 0)
        lines = reader.read_lines(id, first, min(max(until - first, 0), MOST_ENTRIES) if until else MOST_ENTRIES)
        state = reader.read_summary(id).phase
    cursor = "" if last is None else last.cursor
    return EntryPage(
        run=id,
        state=state,
        cursor=cursor,
        has_more=len(lines) == MOST_ENTRIES,
        entries=Raw(b"[%s]" % b",".join([add_sentence(line, kind, user=server.user) for kind, line in lines])),
    )


@get("/api/runs/{run:str}/state", guards=[may_read], sync_to_thread=True)
def read_state(run: RunPrefix, server: Server, at: FromQuery[int] = 0) -> RunDocument:
    """Return the state of a run as a document, now or after the entry `at`."""
    with open_reader(server.store) as reader:
        id = find.resolve(reader, run, repo=server.repo).run
        document = server.run_states.read_state(reader, id, at=max(at, 0))
        return RunDocument(run=id, state=reader.read_summary(id).phase, document=Raw(document))


@get("/api/runs/{run:str}/changes", guards=[may_read], sync_to_thread=True)
def read_changes(run: RunPrefix, server: Server, after: FromQuery[int] = 0, until: FromQuery[int] = 0) -> RunChanges:
    """Return what the entries after a sequence number change in a run's document.

    `until` is the last sequence number; 0 means no limit.
    """
    with open_reader(server.store) as reader:
        id = find.resolve(reader, run, repo=server.repo).run
        first = max(after, 0)
        changes = server.run_states.read_changes(reader, id, after=first, until=max(until, 0))
        return RunChanges(
            run=id,
            state=reader.read_summary(id).phase,
            after=first,
            has_more=len(changes) == MOST_CHANGES,
            changes=[Raw(one) for one in changes],
        )


@get("/api/runs/{run:str}/entries/{seq:int}", guards=[may_read], sync_to_thread=True)
def read_entry(run: RunPrefix, seq: Annotated[int, PathParameter(ge=1, le=LARGEST_SEQ)], server: Server) -> HashedEntry:
    """Return one entry of a run, with its hash and the hash of the entry before it.

    A hash covers its entry, without the sentence in `text`, and all entries before it. For the first entry,
    `previous_hash` is all zeros.
    """
    with open_reader(server.store) as reader:
        id = find.resolve(reader, run, repo=server.repo).run
        rows = reader.read_rows(id, max(seq - 2, 0), 2)
    hashes = {0: GENESIS} | {row.seq: row.hash for row in rows}
    for wanted in (seq, seq - 1):
        if wanted not in hashes:
            raise NotFoundException(f"run {id} has no entry {wanted}")
    wanted_row = next(row for row in rows if row.seq == seq)
    return HashedEntry(
        run=id,
        hash=hashes[seq].hex(),
        previous_hash=hashes[seq - 1].hex(),
        entry=Raw(add_sentence(wanted_row.line, wanted_row.kind, user=server.user)),
    )


@post("/api/runs", guards=[may(enqueue_background_run)])
async def start_run(
    data: JSONBody[NewRun],
    request: ApiRequest,
    actor: CurrentActor,
    server: Server,
    idempotency_key: IdempotencyKey = None,
) -> StartedRun:
    """Start a run in the background, in its own process."""
    place = await to_thread.run_sync(lambda: server.find_place(data.repo, by=get_token(request)))
    settings = Settings.load(
        repo=place, store=server.store, home=server.settings.home, model=data.model or None, budget=data.budget
    )

    options: RunOptions = {
        "mode": data.mode,
        "max_iterations": data.max_iterations,
        "constraints": data.constraints,
    }
    new = BackgroundRun(agent=data.agent, request=data.request, place=place, options=options)

    async def start(id: str) -> StartedRun:
        return StartedRun(id=await enqueue_background_run(server.runs, settings, new, by=actor, run=id))

    return await run_once(server.store, idempotency_key, data, start)


@post("/api/runs/{run:str}/messages", guards=[may(run_steering.send_message)], status_code=200, sync_to_thread=True)
def send(
    run: RunPrefix,
    data: JSONBody[NewMessage],
    actor: CurrentActor,
    server: Server,
    idempotency_key: IdempotencyKey = None,
) -> SteeredRun:
    """Send a message to an agent in a run."""
    files = as_attached_files((one.name, one.data) for one in data.files)
    message = run_steering.NewMessage(text=data.text, agent=data.agent, files=files, ref=idempotency_key or "")
    return SteeredRun.of(run_steering.send_message(server.store, _read_summary(server, run), message, by=actor))


@post("/api/runs/{run:str}/pause", guards=[may(run_steering.pause_run)], status_code=200)
async def pause(run: RunPrefix, actor: CurrentActor, server: Server) -> SteeredRun:
    """Pause a run; its current steps finish first."""
    return SteeredRun.of(await run_steering.pause_run(server.runs, _find_run(server, run), by=actor))


@post("/api/runs/{run:str}/resume", guards=[may(resume_run)], status_code=200)
async def resume(run: RunPrefix, actor: CurrentActor, server: Server) -> SteeredRun:
    """Resume a paused or interrupted run. Workers are resumed by a commander, other runs by the server itself."""
    id = _find_run(server, run)
    await server.resume_run(id, by=actor)
    return SteeredRun(run=id, text=f"run {id} continues")


@post("/api/runs/{run:str}/stop", guards=[may(run_steering.stop_run)], status_code=200)
async def stop(run: RunPrefix, actor: CurrentActor, server: Server) -> SteeredRun:
    """Stop a run and keep its partial results."""
    return SteeredRun.of(await run_steering.stop_run(server.runs, _find_run(server, run), by=actor))


@post("/api/runs/{run:str}/budget", guards=[may(run_steering.change_budget)], status_code=200, sync_to_thread=True)
def change_budget(run: RunPrefix, data: JSONBody[Budget], actor: CurrentActor, server: Server) -> SteeredRun:
    """Change a run's limits. A time limit applies at once; other limits apply from the next model call.

    Limits that are not given do not change.
    """
    return SteeredRun.of(run_steering.change_budget(server.store, _read_summary(server, run), data, by=actor))


@post("/api/runs/{run:str}/fork", guards=[may(fork_run)])
async def fork(
    run: RunPrefix,
    data: JSONBody[NewFork],
    request: ApiRequest,
    actor: CurrentActor,
    server: Server,
    idempotency_key: IdempotencyKey = None,
) -> StartedFork:
    """Start a run that shares the timeline of another one up to a position.

    Changing a decision is an answer in the person's name, so `decision` needs the scope `approve`.
    """
    if data.decision:
        require_scope(request, "approve", to="changing a decision")
    source = _find_run(server, run)

    async def start(id: str) -> StartedFork:
        if (known := await _continue_fork(server, id, by=actor)) is not None:
            return known
        forked = await fork_run(server.runs, source, data, by=actor, id=id)
        await server.resume_run(forked.id, by=actor)
        return StartedFork.of(forked)

    return await run_once(server.store, idempotency_key, (source, data), start)


@post("/api/runs/{run:str}/retry", guards=[may(retry_run)])
async def retry(
    run: RunPrefix,
    data: JSONBody[NewRetry],
    actor: CurrentActor,
    server: Server,
    idempotency_key: IdempotencyKey = None,
) -> StartedFork:
    """Retry a run from just before it failed or was stopped, or from a plan step or an agent."""
    source = _find_run(server, run)

    async def start(id: str) -> StartedFork:
        if (known := await _continue_fork(server, id, by=actor)) is not None:
            return known
        forked = await retry_run(server.runs, source, data, by=actor, id=id)
        await server.resume_run(forked.id, by=actor)
        return StartedFork.of(forked)

    return await run_once(server.store, idempotency_key, (source, data), start)


async def _continue_fork(server: ServerContext, id: str, *, by: Actor) -> StartedFork | None:
    """Continue and return the fork with this id, which an earlier attempt at the same request created.

    Return None if there is no such fork.
    """
    if not id:
        return None
    try:
        summary = _read_summary(server, id)
    except NoSuchRun:
        return None
    if summary.phase == "resumable":
        await server.resume_run(id, by=by)
    return StartedFork(id=id, at=int(summary.started.forked_from.rpartition("@")[2]))


def _find_run(server: ServerContext, run: str) -> str:
    return _read_summary(server, run).id


def _read_summary(server: ServerContext, run: str) -> RunSummary:
    with open_reader(server.store) as reader:
        return reader.read_summary(find.resolve(reader, run, repo=server.repo).run)


ROUTES = (
    list_runs,
    read_run,
    read_entries,
    read_state,
    read_changes,
    read_entry,
    start_run,
    send,
    pause,
    resume,
    stop,
    change_budget,
    fork,
    retry,
)
