"""The state of a run is the same however it was reached: at once, by its changes, or from a stored state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podium.values.event import Entry, decode_entry
from podium.views.run_state import RunState, decode_state, encode_state

SAMPLES = sorted((Path(__file__).parents[1] / "samples").glob("timeline-*.jsonl"))


def read_sample(path: Path) -> list[Entry]:
    return [decode_entry(line) for line in path.read_bytes().splitlines()]


def as_document(state: RunState) -> Any:
    return omit_zeros(json.loads(encode_state(state)))


def omit_zeros(document: Any) -> Any:
    """Return a copy of a document in which no usage has amounts of zero, which may be left out."""
    if isinstance(document, list):
        return [omit_zeros(item) for item in document]
    if not isinstance(document, dict):
        return document
    amounts = {"own_usage", "usage"} & document.keys()
    used = {key: {name: amount for name, amount in document[key].items() if amount} for key in amounts}
    return {key: used[key] if key in used else omit_zeros(value) for key, value in document.items()}


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


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_the_changes_of_every_entry_lead_to_the_state_after_it(path: Path) -> None:
    entries = read_sample(path)
    document: dict[str, Any] = {}
    plain, recorded = RunState(), RunState()

    for entry, changes in zip(entries, recorded.apply_all(entries), strict=True):
        plain.apply(entry)
        apply_changes(document, changes)
        assert omit_zeros(document) == as_document(plain), f"after entry {entry.seq}"


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_stored_state_goes_on_as_if_it_had_never_been_stored(path: Path) -> None:
    entries = read_sample(path)
    plain, stored = RunState(), RunState()
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
