"""The state of a run is the same however it was reached: at once, by its changes, or from a stored state."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from podium.core.edits import RecordedEdits
from podium.values.event import Entry, decode_entry, event_kind
from podium.values.usage import Usage
from podium.views.run_state import RunState
from podium.views.run_state.activity import RunActivity
from podium.views.run_state.model_usage import RunUsage
from podium.views.run_state.page_state import PageState, decode_state, encode_state
from podium.views.run_state.plans import RunPlans
from podium.views.run_state.results import RunResults
from podium.views.run_state.sent_workers import SentWorkers
from podium.views.run_state.tree import RunView
from podium.views.run_state.worker_record import WorkerRecord

SAMPLES = sorted((Path(__file__).parents[1] / "samples").glob("timeline-*.jsonl"))


def read_sample(path: Path) -> list[Entry]:
    return [decode_entry(line) for line in path.read_bytes().splitlines()]


def as_document(state: RunState) -> Any:
    return omit_zeros(json.loads(msgspec.json.encode(state)))


def omit_zeros(document: Any) -> Any:
    """Return a copy of a document in which no usage has amounts of zero, which may be left out."""
    if isinstance(document, list):
        return [omit_zeros(item) for item in document]
    if not isinstance(document, dict):
        return document
    if document.keys() <= set(Usage.__struct_fields__):
        return {name: amount for name, amount in document.items() if amount}
    return {key: omit_zeros(value) for key, value in document.items()}


def apply_changes(document: Any, changes: bytes) -> None:
    """Apply changes to a document, as their description in `core/edits.py` says."""
    for place, change, *values in json.loads(changes):
        if change == "set":
            target = document
            for key in place:
                target = target.setdefault(key, {})
            target.update(values[0])
        else:
            *above, last = place
            target = document
            for key in above:
                target = target[key]
            if change == "add":
                target[last] += values[0]
            else:
                del target[last]


REDUCERS = (RunView, RunActivity, RunUsage, RunPlans, WorkerRecord, SentWorkers, RunResults)


def find_in(document: Any, place: tuple[str, ...]) -> Any:
    for key in place:
        document = document[key]
    return document


def check_reducer(kind: type[RunState], entries: Sequence[Entry]) -> None:
    """Check that a part of the state is the same at every entry, however it was reached.

    It is applied plainly, with recorded changes, to a state that is stored and read after every entry, and only for the
    kinds of entries that it names.
    """
    plain, recorded, stored, chosen = kind(), kind(), kind(), kind()
    edits = RecordedEdits()
    document = as_document(plain)
    for key in reversed(plain.place):
        document = {key: document}

    for entry in entries:
        plain.apply(entry)
        recorded.apply(entry, edits)
        apply_changes(document, edits.take_changes())
        stored = msgspec.json.decode(msgspec.json.encode(stored), type=kind)
        stored.apply(entry)
        if not kind.KINDS or event_kind(entry.event) in kind.KINDS:
            chosen.apply(entry)

        expected = as_document(plain)
        assert omit_zeros(find_in(document, plain.place)) == expected, f"{kind.__name__} after entry {entry.seq}"
        assert as_document(stored) == as_document(chosen) == expected, f"{kind.__name__} after entry {entry.seq}"


@pytest.mark.parametrize("kind", REDUCERS)
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_part_of_the_state_is_the_same_however_it_was_reached(path: Path, kind: type[RunState]) -> None:
    check_reducer(kind, read_sample(path))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_the_changes_of_every_entry_lead_to_the_state_after_it(path: Path) -> None:
    entries = read_sample(path)
    document: dict[str, Any] = {}
    plain, recorded = PageState(), PageState()

    for entry, changes in zip(entries, recorded.apply_all(entries), strict=True):
        plain.apply(entry)
        apply_changes(document, changes)
        assert omit_zeros(document) == as_document(plain), f"after entry {entry.seq}"


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_stored_state_goes_on_as_if_it_had_never_been_stored(path: Path) -> None:
    entries = read_sample(path)
    plain, stored = PageState(), PageState()
    late = []

    for entry in entries:
        plain.apply(entry)
        stored = decode_state(encode_state(stored))
        stored.apply(entry)
        assert as_document(stored) == as_document(plain), f"after entry {entry.seq}"
        if entry.seq % 20 == 0:
            late.append(encode_state(stored))

    for one in late:
        state = decode_state(one)
        for entry in entries[state.seq :]:
            state.apply(entry)
        assert as_document(state) == as_document(plain)
        assert state.view.build_result() == plain.view.build_result()
        assert state.view.collect_parts() == plain.view.collect_parts()
