"""Run a private PostgreSQL server for a test, on loopback, with its data in a temporary folder.

The server is stopped even if the process that started it is killed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

USER = "podium"
_STOP_AND_DELETE = """
pid=$(head -n 1 "$1/data/postmaster.pid")
kill -QUIT "$pid"
while kill -0 "$pid"; do sleep 0.1; done
rm -rf "$1"
"""
"""A shell script that immediately stops the server in a folder, and deletes the folder."""
_FAST_OPTIONS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")


class PostgresMissing(Exception):
    """There is no PostgreSQL server program on this machine."""


@dataclass(frozen=True, slots=True)
class PostgresCluster:
    """A private server, which can be stopped, killed and started again on the same port with the same data."""

    folder: Path
    programs: Path
    port: int
    options: tuple[str, ...] = ()

    def make_url(self, database: str = "postgres", *, user: str = USER, password: str = "") -> str:
        """Return the URL of one of the server's databases."""
        credentials = f"{user}:{password}" if password else user
        return f"postgresql://{credentials}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL."""
        self._run_as_owner([str(self.programs / "createdb"), *self._address, name])
        return self.make_url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, even if clients are connected to it."""
        self._run_as_owner([str(self.programs / "dropdb"), *self._address, "--force", "--if-exists", name])

    def start(self) -> None:
        """Start the server and return once it accepts connections."""
        settings = (
            f"port={self.port}",
            "listen_addresses=127.0.0.1",
            f"unix_socket_directories={self.folder}",
            *self.options,
        )
        flags = " ".join(f"-c {setting}" for setting in settings)
        self._run_pg_ctl("start", "-l", str(self.folder / "log"), "-o", flags)

    def stop(self, mode: str = "fast") -> None:
        """Stop the server. If the mode is `immediate`, it recovers at the next start, as after a crash."""
        self._run_pg_ctl("stop", "-m", mode)

    @property
    def _address(self) -> Sequence[str]:
        return ("-h", "127.0.0.1", "-p", str(self.port), "-U", USER)

    def _run_pg_ctl(self, verb: str, *arguments: str) -> None:
        self._run_as_owner(
            [str(self.programs / "pg_ctl"), verb, "-w", "-s", "-D", str(self.folder / "data"), *arguments]
        )

    def _run_as_owner(self, command: Sequence[str]) -> None:
        run_as_postgres(command, self.folder)


@contextmanager
def run_cluster(*options: str, is_durable: bool = False) -> Iterator[PostgresCluster]:
    """Create a server, run it until the block ends or this process is killed, then delete it.

    Commits are synced to disk only if `is_durable`. Raise PostgresMissing if PostgreSQL is not installed.
    """
    programs = find_server_programs()
    folder = Path(mkdtemp(prefix="podium-pg-"))
    folder.chmod(0o755)
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    cluster = PostgresCluster(folder, programs, _find_free_port(), (*(() if is_durable else _FAST_OPTIONS), *options))
    try:
        with clean_up_when_killed(_STOP_AND_DELETE, str(folder)):
            initdb = [str(programs / "initdb"), "-A", "trust", "-U", USER, "-E", "UTF8", "--locale=C", "--no-sync"]
            run_as_postgres([*initdb, "-D", str(folder / "data")], folder)
            cluster.start()
            try:
                yield cluster
            finally:
                if (folder / "data" / "postmaster.pid").exists():
                    cluster.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def find_server_programs() -> Path:
    """Return the folder that contains `initdb` and `pg_ctl`, which Debian does not put on PATH."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    if folders:
        return folders[-1]
    if (found := shutil.which("initdb")) is not None:
        return Path(found).resolve().parent
    raise PostgresMissing("no PostgreSQL server found; on Debian: apt-get install postgresql")


def run_as_postgres(command: Sequence[str], folder: Path) -> None:
    """Run a server program, as the user `postgres` if this process is root, since PostgreSQL refuses to run as root."""
    prefix = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    done = subprocess.run([*prefix, *command], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{Path(command[0]).name} failed: {done.stderr.strip() or done.stdout.strip()}")


def _find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def clean_up_when_killed(script: str, *arguments: str) -> Iterator[None]:
    """Make sure that a shell script runs, with these arguments, if this process is killed during the block."""
    # The shell waits for a line of input. If this process is killed, the operating system closes that input, so the
    # shell stops waiting and runs the script.
    with subprocess.Popen(
        ["sh", "-c", f"read -r _ && exit\n{script}", "sh", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as waiting:
        try:
            yield
        finally:
            waiting.communicate(b"\n")
