"""The stream of all runs, from a store in PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from podium.values.event import Noticed
from podium.values.store_address import PostgresAddress

from .api_client import ApiClient
from .conftest import open_site
from .test_event_stream import ENDED, STARTED, collect_entries


def test_a_client_gets_new_entries_at_once_and_what_it_missed(postgres_url: str) -> None:
    # Not in pytest's own folder, whose paths are too long for sockets.
    with TemporaryDirectory(prefix="pdm-") as folder:
        store = PostgresAddress(postgres_url, Path(folder, "runtime"))
        with open_site(Path(folder), store=store) as site, ApiClient(site) as client:
            with client.follow() as events:
                site.write_run("ccc1", STARTED, ENDED)
                first = next(event for event in events if event.name == "entries")
            site.write_run("ddd1", STARTED, Noticed(text="while nobody listened"), ENDED)

            assert collect_entries(client, first.cursor, 3)[-3:] == [("ddd1", 1), ("ddd1", 2), ("ddd1", 3)]
            assert {run["id"] for run in client.read("/api/runs")["runs"]} == {"ccc1", "ddd1"}
