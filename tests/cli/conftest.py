"""Fixtures for calling `podium`: a temporary repository and a temporary Podium home."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
from click.testing import CliRunner
from click.testing import Result as Invoked

from podium.cli.root import podium
from podium.store.reader import RunSummary, StoreReader
from podium.testing import Move, ServedModel, format_script
from podium.testing.served_model import serve_model

from ..conftest import PROVIDER_VARIABLES
from ..preloaded_podium import ForkedCommand, run_podium_command, start_podium_command

TOO_LONG = 120.0
"""Seconds after which a test's process is killed, so that the test fails instead of hanging."""

SLOW: dict[str, Any] = {"silent": True}
"""The script step of an agent that waits until it is interrupted."""


@dataclass(frozen=True)
class Desk:
    """A repository and a home in which a test calls `podium`."""

    repo: Path
    home: Path
    environment: dict[str, str]

    @property
    def store(self) -> Path:
        return self.home / "podium.db"

    def write_agent(self, name: str, *moves: Move | str | dict[str, Any], **keys: Any) -> None:
        """Write an agent that follows these script steps."""
        front = "\n".join(f"{key}: {json.dumps(value)}" for key, value in {"engine": "scripted", **keys}.items())
        folder = self.repo / ".podium" / "agents"
        folder.mkdir(parents=True, exist_ok=True)
        text = f"---\ndescription: {name}\n{front}\n---\n{format_script(*moves)}\n"
        (folder / f"{name}.md").write_text(text, encoding="utf-8")

    def run_podium(
        self, *arguments: str, input: str | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Call podium in a separate process, and wait for its end."""
        environment = {**self.environment, **variables}
        return run_podium_command(arguments, cwd=self.repo, env=environment, input=input, timeout=TOO_LONG)

    @contextmanager
    def start_podium(self, *arguments: str, **variables: str) -> Iterator[ForkedCommand]:
        """Call podium in a separate process that runs during the block."""
        with start_podium_command(arguments, cwd=self.repo, env={**self.environment, **variables}) as process:
            watchdog = threading.Timer(TOO_LONG, process.kill)
            watchdog.start()
            try:
                yield process
            finally:
                watchdog.cancel()
                process.kill()

    def invoke(self, *arguments: str, input: str | None = None, **variables: str) -> Invoked:
        """Call podium in this process."""
        return CliRunner().invoke(podium, list(arguments), input=input, env=variables)

    def runs(self) -> list[RunSummary]:
        with StoreReader(self.store) as reader:
            return reader.list_runs()

    def run_id(self) -> str:
        """The id of the newest run."""
        return self.runs()[0].id

    def kinds(self, run: str) -> list[str]:
        """Return the kinds of the events on a run's timeline."""
        with StoreReader(self.store) as reader:
            return [row.kind for row in reader.read_rows(run)]


def wait_for(stream: IO[str] | None, words: str) -> str:
    """Return the first line that contains these words; earlier lines are discarded."""
    assert stream is not None
    said = []
    for line in stream:
        said.append(line)
        if words in line:
            return line
    raise AssertionError(f"no line with {words!r} in:\n{''.join(said)}")


def read_until_exit(process: subprocess.Popen[str] | ForkedCommand) -> tuple[str, str]:
    """Return the remaining output of a process on both streams.

    Popen.communicate would lose the lines that `wait_for` has read ahead.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    said = process.stdout.read(), process.stderr.read()
    process.wait()
    return said


@pytest.fixture(scope="module")
def model() -> Iterator[ServedModel]:
    """A model over HTTP whose replies a test can set, for programs that the test starts."""
    with serve_model() as served:
        yield served


@pytest.fixture
def desk(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Desk:
    repo, home = (tmp_path_factory.mktemp(name) for name in ("repo", "home"))
    (repo / ".git").mkdir()
    own = {"PODIUM_HOME": str(home), "COLUMNS": "100"}
    foreign = [name for name in os.environ if name in PROVIDER_VARIABLES or name.startswith(("PODIUM_", "NO_COLOR"))]
    for name in foreign:
        monkeypatch.delenv(name)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(repo)
    # Every process would compile the sources again if it could not keep the result.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return Desk(repo=repo, home=home, environment=kept)


@pytest.fixture
def make_interrupted_run(desk: Desk) -> Callable[[], str]:
    """Make a run that died in the middle, and return its id."""

    def make() -> str:
        desk.write_agent("lead", "the answer", advisors=["helper"])
        desk.write_agent("helper", "some advice")
        died = desk.run_podium("run", "lead", "do it", PODIUM_FAULT="8")
        assert died.returncode == 137, died.stderr
        return desk.run_id()

    return make
