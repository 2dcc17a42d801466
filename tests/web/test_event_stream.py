"""One stream for all runs: nothing is skipped, nothing is sent twice, and a slow reader delays nobody."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from anyio import sleep

from podium.store.entry_feed import EntryFeed
from podium.store.store_clients import list_clients
from podium.values.errors import Mistake
from podium.values.event import Noticed, RunEnded, RunStarted
from podium.values.request import Request
from podium.web.api import entry_hub
from podium.web.api import event_stream as connected_clients

from .api_client import ApiClient
from .conftest import Site

STARTED = RunStarted(agent="lead", request=Request(text="go"), agents=())
ENDED = RunEnded(outcome="succeeded")


def collect_entries(client: ApiClient, cursor: str | None, most: int, **query: str) -> list[tuple[str, int]]:
    """Return the run and number of the next entries."""
    found: list[tuple[str, int]] = []
    with client.follow(cursor, **query) as events:
        for event in events:
            if event.name == "entries":
                found += [(entry["run"], entry["seq"]) for entry in event.data]
            if len(found) >= most:
                return found
    return found


def test_the_stream_has_every_entry_of_all_runs_in_commit_order(site: Site) -> None:
    site.write_run("first1", STARTED)
    with EntryFeed(site.store) as feed:
        last = feed.find_end()
    assert last is not None
    site.write_run("aaa1", STARTED, Noticed(text="one"), ENDED)
    site.write_run("bbb1", STARTED, Noticed(text="line\nbreak \u2028 and \r return"), ENDED)

    with ApiClient(site) as client:
        found = collect_entries(client, last.cursor, 6)

    assert found == [(run, seq) for run in ("aaa1", "bbb1") for seq in (1, 2, 3)]


def test_a_client_that_reconnects_gets_exactly_what_it_missed(site: Site) -> None:
    with ApiClient(site) as client:
        with client.follow() as events:
            site.write_run("ccc1", STARTED, ENDED)
            first = next(event for event in events if event.name == "entries")
        site.write_run("ddd1", STARTED, Noticed(text="while nobody listened"), ENDED)

        assert collect_entries(client, first.cursor, 3)[-3:] == [("ddd1", 1), ("ddd1", 2), ("ddd1", 3)]


def test_other_runs_are_only_announced_to_a_client_that_follows_one(site: Site) -> None:
    with ApiClient(site) as client, client.follow(runs="fff1") as events:
        site.write_run("eee1", STARTED, ENDED)
        announced = next(events)
        site.write_run("fff1", STARTED, ENDED)
        followed = next(event for event in events if event.name == "entries")

    assert (announced.name, announced.data) == ("changes", {"eee1": ["run_ended", "run_started"]})
    assert [entry["run"] for entry in followed.data] == ["fff1", "fff1"]
    assert followed.cursor == "fff1:2"


def test_a_client_far_behind_reads_from_the_store(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_hub, "MOST_KEPT", 5)
    monkeypatch.setattr(entry_hub, "PAGE", 7)
    with ApiClient(site) as client, client.follow() as events:
        site.write_run("abc1", STARTED, *(Noticed(text=str(number)) for number in range(40)), ENDED)
        numbers: list[int] = []
        for event in events:
            numbers += [entry["seq"] for entry in event.data if entry["run"] == "abc1"]
            if numbers and numbers[-1] == 42:
                break

    assert numbers == list(range(1, 43))


def test_an_answer_that_no_run_has_received_yet_is_announced(site: Site) -> None:
    site.write_run("mail1", STARTED)
    with ApiClient(site) as client, client.follow(runs="mail1") as events:
        site.answer("mail1", "no-such-request")

        assert next(event for event in events if event.name == "mail").data == {}


@pytest.mark.parametrize("cursor", ["nowhere:1", "aaa1", "aaa1:x", "aaa1:99999999999999999999", ":::"])
def test_an_unknown_cursor_is_refused_with_what_to_do(site: Site, cursor: str) -> None:
    with ApiClient(site) as client:
        response = client.get("/api/events", headers={"Last-Event-ID": cursor})

    assert response.status_code == 422
    assert response.json()["detail"].endswith("is not in this store; read the current state and follow from its cursor")


def test_a_cursor_stays_valid_when_the_store_is_compacted(site: Site) -> None:
    site.write_run("vac1", STARTED, Noticed(text="one"), ENDED)
    site.write_run("vac2", STARTED, ENDED)
    with EntryFeed(site.store) as feed:
        before = [row.cursor for row in feed.read_after(feed.find_position("vac1:2"), 3)]
    connection = sqlite3.connect(site.store)
    connection.execute("VACUUM")
    connection.close()

    with EntryFeed(site.store) as feed:
        assert [row.cursor for row in feed.read_after(feed.find_position("vac1:2"), 3)] == before
        with pytest.raises(Mistake):
            feed.find_position("vac1:77")


def test_entries_of_a_run_come_with_a_cursor_from_which_the_stream_continues(site: Site) -> None:
    site.write_run("page1", STARTED, Noticed(text="one"), ENDED)
    with ApiClient(site) as client:
        read = client.read("/api/runs/page1/entries", after=1)
        site.write_run("later1", STARTED)

        assert [entry["seq"] for entry in read["entries"]] == [2, 3]
        assert collect_entries(client, read["cursor"], 1) == [("later1", 1)]


def test_a_stream_ends_when_its_token_is_revoked(site: Site) -> None:
    with ApiClient(site) as client, client.follow(runs="") as events:
        site.server.context.tokens.revoke_token(client.token.id)
        site.write_run("secret1", STARTED)

        assert list(events) == []


def test_an_open_stream_counts_as_somebody_who_can_answer(site: Site) -> None:
    before = list_clients(site.store)
    with ApiClient(site) as client:
        with client.follow("", client="true", runs="") as events:
            next(events)
            while_open = list_clients(site.store)
        with client.follow("", client="true", runs="") as events:
            next(events)
            opened_again = list_clients(site.store)

    assert len(while_open - before) == 1
    assert opened_again == while_open


def test_a_client_that_opens_no_other_stream_is_gone_after_a_moment(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connected_clients, "GRACE_SECONDS", 0)
    before = list_clients(site.store)
    with ApiClient(site) as client, client.follow("", client="true", runs="") as events:
        next(events)
        while_open = list_clients(site.store)

    assert while_open - before
    site.portal.call(wait_without, site, while_open - before)


async def test_the_grace_period_of_a_client_starts_again_when_it_reconnects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = connected_clients.ConnectedClients(tmp_path / "podium.db")
    monkeypatch.setattr(connected_clients, "GRACE_SECONDS", 0)
    with clients.connect("tab"):
        connected = list_clients(tmp_path / "podium.db")

    monkeypatch.setattr(connected_clients, "GRACE_SECONDS", 600)
    with clients.connect("tab"):
        pass
    await sleep(0.01)  # the timer of the first grace period would have been called before this one

    assert len(connected) == 1
    assert list_clients(tmp_path / "podium.db") == connected
    clients.close()


async def wait_without(site: Site, clients: set[str]) -> None:
    """Wait until none of these clients is connected."""
    while list_clients(site.store) & clients:  # noqa: ASYNC110 - clients are files
        await sleep(0.02)
