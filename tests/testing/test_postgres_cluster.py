from __future__ import annotations

import psycopg

from podium.testing.postgres_cluster import run_cluster


def test_a_cluster_keeps_its_data_and_its_port_over_a_crash() -> None:
    with run_cluster(is_durable=True) as cluster:
        url = cluster.create_database("kept")
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE notes (text text)")
            connection.execute("INSERT INTO notes VALUES ('here')")
        cluster.stop("immediate")
        cluster.start()
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT text FROM notes").fetchall() == [("here",)]


def test_a_cluster_is_gone_at_the_end() -> None:
    with run_cluster() as cluster:
        assert (cluster.folder / "data").exists()
    assert not cluster.folder.exists()
