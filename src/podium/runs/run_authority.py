"""Decide what a run may do on this machine, given who created it.

A run's first entry contains its settings and agents. If a person's login created the run, they apply as recorded. A
host of a fleet creates runs too, for the workers of the runs that it executes, and a compromised host can write
anything into them. So a machine that executes a run created by another host derives it from the record of the run's
parent. Addresses of providers never come from a host, and a host uses only its own addresses.
"""

from __future__ import annotations

import msgspec
from msgspec import structs

from ..store.reader import StoreReader
from ..store.run_creators import RunCreator, find_foreign_creator
from ..values.agent import Agent
from ..values.errors import Mistake, NoSuchRun, RunNotConfirmed, RunRefused
from ..values.event import RunStarted
from ..values.store_address import PostgresAddress, StoreAddress

MOST_PARENTS = 20


def load_run_start(store: StoreAddress, run: str) -> RunStarted:
    """Return the first event of a run, as this machine may execute it.

    Raise RunRefused if a host created the run and the run cannot be derived from a person's record, and RunNotConfirmed
    if it is not known who created it.
    """
    started = _read_start(store, run)
    if not isinstance(store, PostgresAddress):
        return started
    from ..store.postgres.login import find_host_name  # imported here because it needs optional packages

    started = _derive_start(store, run, started, depth=0)
    if find_host_name(store) and "base_url" in started.settings:
        # The key of this machine goes only to the address that the settings of this machine name.
        started = structs.replace(started, settings={**started.settings, "base_url": ""})
    return started


def _read_start(store: StoreAddress, run: str) -> RunStarted:
    with StoreReader(store) as reader:
        return reader.read_summary(run).started


def _derive_start(store: PostgresAddress, run: str, started: RunStarted, *, depth: int) -> RunStarted:
    creator = find_foreign_creator(store, run)
    if creator is None:
        return started
    if creator.is_unknown:
        raise RunNotConfirmed(
            f"run {run} is older than the record of who created it, and a host of the fleet may have; to let it "
            f"continue, look at it with podium show {run} and confirm it with podium resume {run}"
        )
    if creator.is_own:
        return started  # this machine has written the record itself
    why = _explain_orphan(started, creator, depth)
    if why:
        raise RunRefused(f"run {run}, which host {creator.host} created, {why}")
    assert creator.parent is not None
    try:
        above = _read_start(store, creator.parent)
    except NoSuchRun as error:
        raise RunRefused(f"run {run}, which host {creator.host} created, has lost its parent: {error}") from error
    parent = _derive_start(store, creator.parent, above, depth=depth + 1)
    from .foreign_worker import WorkerDerivation  # imported here to keep start-up fast: few runs are from a host

    try:
        return WorkerDerivation(store, creator.parent, parent, started).derive()
    except (Mistake, msgspec.MsgspecError, TypeError) as error:
        raise RunRefused(
            f"run {run}, which host {creator.host} created, differs from its parent {creator.parent} in what a host "
            f"cannot choose: {error}"
        ) from error


def _explain_orphan(started: RunStarted, creator: RunCreator, depth: int) -> str:
    """Return why a run has no parent that it can be derived from, or an empty string if it has one."""
    if not creator.parent:
        return "belongs to no run of a person, so only that host can execute it"
    if started.errand is None or started.errand.parent != creator.parent:
        return f"does not name the run {creator.parent} as its parent, for which the host created it"
    if depth >= MOST_PARENTS:
        return "is nested too deeply"
    return ""


def make_powerless(started: RunStarted) -> RunStarted:
    """Return the start of a run that is only recorded as ended or paused: without settings, hooks, tools or a place."""
    return RunStarted(
        agent=started.agent, request=started.request, agents=(Agent(name=started.agent),), version=started.version
    )
