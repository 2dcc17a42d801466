from __future__ import annotations

from pathlib import Path

import pytest
from anyio import create_task_group
from hypothesis import given
from hypothesis import strategies as st

from podium.core.journal_rows import GENESIS, JournalRow, chain_hash, compute_digest, find_chain_break
from podium.core.scope import Scope
from podium.core.timeline import Timeline
from podium.store.reader import StoreReader
from podium.store.run_store import RunStore
from podium.values.errors import JournalMismatch
from podium.values.event import HandedOff, ModelReplied, Noticed, Routed
from podium.values.usage import Usage


def make_root_scope(timeline: Timeline, about: str = "d") -> Scope:
    return Scope(timeline, "lead", operation="lead", digest=about)


async def load_timeline(store: RunStore, run: str = "r") -> Timeline:
    """Load the timeline as the next owner finds it."""
    timeline = Timeline(run, await store.claim_run(run))
    timeline.load(await store.read_rows(run))
    return timeline


def read_rows(path: Path, run: str = "r") -> list[JournalRow]:
    with StoreReader(path) as reader:
        return reader.read_rows(run)


async def test_a_step_with_an_outcome_is_not_carried_out_again(tmp_path: Path) -> None:
    done: list[str] = []

    async def act() -> Noticed:
        done.append("once")
        return Noticed(text="it happened")

    async with RunStore(tmp_path / "s.db") as store:
        first = (
            await make_root_scope(Timeline("r", lease := store.begin_run("r"))).next_child("call").step(act, Noticed)
        )
        store.release_run(lease)
        await lease.wait_written()
        second = await make_root_scope(await load_timeline(store)).next_child("call").step(act, Noticed)

    assert first == second == Noticed(text="it happened")
    assert done == ["once"]


async def test_parallel_branches_get_their_own_outcomes_whatever_the_order_they_start_in(tmp_path: Path) -> None:
    async def work(scope: Scope, name: str, seen: dict[str, str]) -> None:
        async def act() -> Noticed:
            return Noticed(text=f"{name}'s")

        seen[name] = (await scope.next_child(f"worker:{name}").next_child("call").step(act, Noticed)).text

    first: dict[str, str] = {}
    second: dict[str, str] = {}
    async with RunStore(tmp_path / "s.db") as store:
        scope = make_root_scope(Timeline("r", lease := store.begin_run("r")))
        async with create_task_group() as group:
            for name in ("a", "b", "c"):
                group.start_soon(work, scope, name, first)
        store.release_run(lease)
        await lease.wait_written()
        scope = make_root_scope(await load_timeline(store))
        async with create_task_group() as group:
            for name in ("c", "a", "b"):
                group.start_soon(work, scope, name, second)

    assert first == second == {"a": "a's", "b": "b's", "c": "c's"}


async def test_the_same_key_with_another_input_is_an_error_that_names_both(tmp_path: Path) -> None:
    async with RunStore(tmp_path / "s.db") as store:
        timeline = Timeline("r", store.begin_run("r"))
        make_root_scope(timeline, "first-input").next_child("call").record_outcome(Noticed(text="x"))

        with pytest.raises(JournalMismatch, match=r"lead/call#1 .*first-input.*other-input"):
            make_root_scope(timeline, "other-input").next_child("call").find_outcome(Noticed)


async def test_a_key_that_holds_another_kind_of_event_is_an_error(tmp_path: Path) -> None:
    async with RunStore(tmp_path / "s.db") as store:
        scope = make_root_scope(Timeline("r", store.begin_run("r")))
        scope.child("call#1").record_outcome(Noticed(text="x"))

        with pytest.raises(JournalMismatch, match=r"recorded noticed .* expected Routed"):
            scope.child("call#1").find_outcome(Routed)


async def test_a_fact_is_recorded_once_however_often_the_code_runs(tmp_path: Path) -> None:
    async with RunStore(tmp_path / "s.db") as store:
        lease = store.begin_run("r")
        timeline = Timeline("r", lease)
        make_root_scope(timeline).record(HandedOff(sender="a", receiver="b"))
        store.release_run(lease)
        await lease.wait_written()
        again = await load_timeline(store)
        make_root_scope(again).record(HandedOff(sender="a", receiver="b"))
        await again.wait_written()

    assert len(read_rows(tmp_path / "s.db")) == 1


async def test_keys_count_inside_their_parent_and_attempts_are_told_apart(tmp_path: Path) -> None:
    async with RunStore(tmp_path / "s.db") as store:
        scope = make_root_scope(Timeline("r", store.begin_run("r")))

        paths = [scope.next_child("turn").path, scope.next_child("turn").path, scope.next_child("advice:legal").path]

    assert paths == ["lead/turn#1", "lead/turn#2", "lead/advice:legal#1"]
    assert scope.child("turn#2").for_attempt(2).path == "lead/turn#2~2"
    assert scope.child("turn#2").for_attempt(1).path == "lead/turn#2"


async def test_a_digest_covers_the_input_of_a_scope_and_of_the_scopes_above_it(tmp_path: Path) -> None:
    async with RunStore(tmp_path / "s.db") as store:
        timeline = Timeline("r", store.begin_run("r"))

        plain, about = make_root_scope(timeline).child("x"), make_root_scope(timeline).child("x", "this")

    assert plain.digest == "d"
    assert about.digest not in ("d", make_root_scope(timeline).child("x", "that").digest)
    assert compute_digest({"b": 1, "a": 2}) == compute_digest({"a": 2, "b": 1})


async def test_usage_is_summed_by_operation_and_survives_a_new_owner(tmp_path: Path) -> None:
    async with RunStore(tmp_path / "s.db") as store:
        lease = store.begin_run("r")
        timeline = Timeline("r", lease)
        for path in ("lead", "lead/advice:legal#1", "lead/advice:legal#10"):
            place = Scope(timeline, f"{path}/call#1", operation=path, digest="")
            place.record_outcome(ModelReplied(model="m", usage=Usage(calls=1, input_tokens=10)))
        store.release_run(lease)
        await lease.wait_written()

        again = await load_timeline(store)

    assert timeline.index.usage_below() == again.index.usage_below() == Usage(calls=3, input_tokens=30)
    assert again.index.usage_below("lead/advice:legal#1").calls == 1


def make_rows(texts: list[str]) -> list[JournalRow]:
    """Return a timeline's rows as the store returns them."""
    written: list[JournalRow] = []

    class MemoryLease:
        epoch = 1

        def append(self, row: JournalRow, *, survives_power_loss: bool, mail: int | None) -> None:
            written.append(row)

        async def wait_written(self, *, is_alone: bool = True) -> None: ...

    timeline = Timeline("r", MemoryLease(), clock=lambda: 0.0)
    for text in texts:
        timeline.append(Noticed(text=text), scope="")
    return written


def test_an_untouched_timeline_is_whole() -> None:
    assert find_chain_break(make_rows(["a", "b", "c"])) is None
    assert find_chain_break([]) is None


@given(st.integers(0, 4), st.sampled_from(["edit", "delete", "swap", "insert", "refile"]), st.data())
def test_every_edit_deletion_swap_and_insertion_shows(place: int, kind: str, data: st.DataObject) -> None:
    rows = make_rows(["a", "b", "c", "d", "e", "f"])
    row = rows[place]
    match kind:
        case "edit":
            at = data.draw(st.integers(0, len(row.line) - 1))
            flipped = bytes([row.line[at] ^ data.draw(st.integers(1, 255))])
            rows[place] = row._replace(line=row.line[:at] + flipped + row.line[at + 1 :])
        case "delete":
            del rows[place]
        case "swap":
            rows[place], rows[place + 1] = rows[place + 1], rows[place]
        case "insert":
            rows.insert(place, row)
        case "refile":
            rows[place] = row._replace(kind="run_ended")

    assert find_chain_break(rows) is not None


def test_a_chain_that_was_rebuilt_from_an_edit_on_shows_at_an_anchor_kept_elsewhere() -> None:
    original, forged = make_rows(["a", "b", "c"]), make_rows(["a", "X", "c"])

    assert find_chain_break(forged) is None
    assert original[-1].hash != forged[-1].hash
    assert chain_hash(GENESIS, original[0].line) == original[0].hash
