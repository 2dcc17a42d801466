"""Fixtures for attack tests: the usual desk, studio and repository, plus an ordinary user besides root."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from podium.testing import make_repository

from ..cli.conftest import desk
from ..cli.test_trust import Listener, hostile, listener
from ..workspace.sandboxed import WHO, Place, new_place, ordinary_user
from ..workspace.test_sandbox import warm_up

__all__ = ["Listener", "desk", "hostile", "listener"]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Make a repository with one commit."""
    return make_repository(tmp_path / "repo", {"a.txt": "one\n"})


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    # Import lazily loaded modules now, because an ordinary user may not be able to read them.
    anyio.run(warm_up, tmp_path_factory.mktemp("warm"))
    with ordinary_user():
        yield


@pytest.fixture(params=WHO)
def place(request: pytest.FixtureRequest, user: None) -> Iterator[Place]:
    with new_place(request.param) as made:
        yield made
