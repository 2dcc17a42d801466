"""Open the store for reading, and derive the states of runs. These functions never create a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...store.progress_files import require_no_recorded_runs
from ...store.reader import RunSummary, StoreReader
from ...values.agent import collect_agent_names
from ...values.errors import Mistake, NoSuchRun
from ...values.event import LimitReached, RunPaused, RunStarted
from ...values.store_address import StoreAddress

NO_RUNS = 'no runs yet; start one with: podium run AGENT "request"'


@contextmanager
def open_reader(store: StoreAddress) -> Iterator[StoreReader]:
    """Open the store for reading.

    Raise NoSuchRun if the store does not exist yet, and StoreCorrupt if it was deleted.
    """
    if not store.exists():
        require_no_recorded_runs(store)
        raise NoSuchRun(NO_RUNS)
    with StoreReader(store) as reader:
        yield reader


def find_main_folder(started: RunStarted) -> str:
    """Return the folder of a run. For a worker or a fork, return the corresponding folder in the main checkout."""
    if started.errand is not None:
        return started.errand.root
    if not started.forked_from or not started.repo:
        return started.repo
    from ...workspace.git.repository import Repository  # imported here to keep start-up fast: most runs are not forks

    folder = Path(started.repo).resolve()
    try:
        repository = Repository.at(folder)
        return str(repository.main_folder / folder.relative_to(repository.root))
    except Mistake:
        return started.repo  # without git, a fork works in the folder itself


def find_wakeup_time(summary: RunSummary) -> float | None:
    """Return when a run that is waiting for a provider's limit to reset will continue, in seconds since the epoch.

    Return None if the run is not waiting for a limit to reset. A process may still work on the run while it waits.
    """
    match summary.last.event:
        case RunPaused(until=until) if until:
            return until
        case LimitReached(until=until) if summary.lease == "held":
            return until
    return None


def resolve_recipient(summary: RunSummary, agent: str) -> str:
    """Return the agent that receives a message, by default the first agent.

    Raise Mistake if the run has ended or has no such agent.
    """
    from difflib import get_close_matches  # imported here to keep start-up fast: needed only for an unknown name

    if summary.is_over:
        raise Mistake(f"run {summary.id} has ended ({summary.phase}), so its agents cannot receive messages")
    started = summary.started
    names = collect_agent_names(started.agents)
    if not agent or agent in names:
        return agent or started.agent
    close = get_close_matches(agent, names, n=1)
    there_are = f"did you mean {close[0]}?" if close else f"available: {', '.join(names)}"
    raise Mistake(f"run {summary.id} has no agent {agent!r}; {there_are}")
