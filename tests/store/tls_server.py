"""A PostgreSQL server with a certificate of its own, for tests of encrypted connections."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from podium.testing.postgres_cluster import PostgresCluster, run_cluster


@contextmanager
def run_tls_cluster() -> Iterator[tuple[PostgresCluster, Path]]:
    """Start a server that offers TLS as `localhost`, and yield it with the file of its certificate."""
    with run_cluster() as cluster:
        certificate, key = make_certificate(cluster.folder, "server")
        if os.geteuid() == 0:
            shutil.chown(key, "postgres")
        with psycopg.connect(cluster.make_url(), autocommit=True) as connection:
            for name, value in (("ssl_cert_file", certificate), ("ssl_key_file", key), ("ssl", "on")):
                connection.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
        cluster.stop()
        cluster.start()
        yield cluster, certificate


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Create a self-signed certificate for `localhost`, and return its file and that of its key."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *files, *subject]
    subprocess.run(command, check=True, capture_output=True)
    key.chmod(0o600)
    return certificate, key
