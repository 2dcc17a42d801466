"""Provide pytest fixtures for tests of your own agents.

pytest imports this module at every start, even for test suites that do not use it. So it imports
nothing that pytest has not imported already, and each fixture imports what it needs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .scripted import Scripted
    from .served_model import ServedModel


# Module-scoped, so that it is resolved before a test's fixtures change PODIUM_HOME.
@pytest.fixture(scope="module")
def podium_repo(request: pytest.FixtureRequest) -> Path:
    """Return the test file's repository, from which agents are loaded. Override it to use another repository."""
    from ..system.locations import find_repo  # imported here to keep pytest's start-up fast

    return find_repo(request.path.parent)


@pytest.fixture
def podium_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a temporary PODIUM_HOME, in an environment without Podium settings or model keys."""
    from ..engines.model.providers import PROVIDERS  # imported here to keep pytest's start-up fast

    # Not tmp_path: it belongs to the test, and its path is too long for the store's sockets.
    home = tmp_path_factory.mktemp("podium")
    own = [name for name in os.environ if name.startswith("PODIUM_")]
    providers = [name for one in PROVIDERS.values() for name in (one.key_name, one.url_name, one.host_name) if name]
    for name in (*own, *providers):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PODIUM_HOME", str(home))
    yield home
    _remove_wakeup_folder(home / "podium.db")


@pytest.fixture
def scripted(
    podium_repo: Path, podium_home: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Scripted:
    """Return a runner for scripted agents. Define them with `agent` or `says`; then use `run`, `heard`, `entries`."""
    from ..files.settings import Settings  # imported here to keep pytest's start-up fast
    from .scripted import Scripted

    workspace = tmp_path_factory.mktemp("workspace")
    (workspace / ".podium").mkdir()  # makes the folder a separate repository, even inside another one
    report = partial(request.node.add_report_section, "call", "podium")
    settings = Settings.load(repo=podium_repo, store=podium_home / "podium.db")
    return Scripted(settings, repo=podium_repo, workspace=workspace, report=report)


@pytest.fixture
def model_server(podium_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedModel]:
    """Yield a scripted model server on loopback. The environment variables of every provider point to it."""
    from .served_model import serve_model  # imported here to keep pytest's start-up fast

    with serve_model() as model:
        for name, value in model.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("no_proxy", f"127.0.0.1,{os.environ.get('no_proxy') or os.environ.get('NO_PROXY', '')}")
        yield model


def _remove_wakeup_folder(store: Path) -> None:
    """Remove the folder with the store's sockets, which is in /tmp if the path of the store is too long."""
    if store.exists():
        from ..store.wakeup import ensure_socket_folder  # imported here to keep pytest's start-up fast

        with suppress(OSError):
            ensure_socket_folder(store).rmdir()
