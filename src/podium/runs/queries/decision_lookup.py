"""Look up a repository's decisions across all runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...core.decision_state import DECISION_EVENTS
from ...store.reader import StoreReader
from ...values.errors import Mistake
from ...values.event import KINDS, Entry
from ...values.store_address import StoreAddress
from ...views.decision_record import DecisionRecord, collect_decisions
from .. import find


def find_decision_repo(folder: Path) -> str:
    """Return the path that identifies a folder's repository in decisions; it is the same for all worktrees.

    Outside a repository, it is the path of the folder itself.
    """
    return find.find_root(folder)


def select_decisions(entries: Iterable[Entry], repo: str) -> list[DecisionRecord]:
    """Return a repository's decisions in these entries, in the order in which they were proposed."""
    return [one for one in collect_decisions(entries) if one.state.proposal.repo == repo]


def list_decisions(store: StoreAddress, repo: str) -> list[DecisionRecord]:
    """Return a repository's decisions, oldest first, without their ballots."""
    if not store.exists():
        return []
    with StoreReader(store) as reader:
        return _without_shared(select_decisions(reader.read_decision_entries(), repo), reader)


def _without_shared(decisions: list[DecisionRecord], reader: StoreReader) -> list[DecisionRecord]:
    """Return the decisions, leaving out those that a fork copied from another run."""
    made: dict[tuple[object, ...], DecisionRecord] = {}
    for one in decisions:
        # A copy in a fork has the same timestamps as the original decision. Of such decisions, keep the one in the run
        # that started first, because a fork starts later than the run that it copies.
        other = made.setdefault((one.id, one.proposed_at, one.committed_at), one)
        if other is not one and reader.read_summary(one.run).first.at < reader.read_summary(other.run).first.at:
            made[one.id, one.proposed_at, one.committed_at] = one
    kept = {(one.run, one.id) for one in made.values()}
    return [one for one in decisions if (one.run, one.id) in kept]


def find_decision(store: StoreAddress, repo: str, prefix: str) -> DecisionRecord:
    """Return the decision in a repository whose id is `prefix` or starts with it, with its ballots.

    If several runs have decisions with the same id, `prefix` must have the form `RUN/ID`. Raise Mistake unless exactly
    one decision matches.
    """
    ref, _, id = prefix.rpartition("/")
    decisions = list_decisions(store, repo)
    if ref and decisions:
        run = find.resolve(store, ref, repo=Path(repo)).run
        decisions = [one for one in decisions if one.run == run]
    found = [one for one in decisions if one.id.startswith(id)] if id else []
    found = [one for one in found if one.id == id] or found
    if not found:
        raise Mistake(f"decision {prefix!r} not found in {repo}; run podium decisions to list the decisions")
    if len(found) > 1:
        is_same = len({one.id for one in found}) == 1
        ids = ", ".join(f"{one.run}/{one.id}" if is_same else f"{one.id} in run {one.run}" for one in found)
        what = "give the run as well, in the form RUN/ID" if is_same else "use more characters of the id"
        raise Mistake(f"{prefix!r} matches several decisions: {ids}; {what}")
    with StoreReader(store) as reader:
        own = reader.read_entries(found[0].run, kinds=[KINDS[kind] for kind in DECISION_EVENTS])
        others = [entry for entry in reader.read_decision_entries() if entry.run != found[0].run]
    whole = select_decisions([*others, *own], repo)
    return next(one for one in whole if (one.run, one.id) == (found[0].run, found[0].id))
