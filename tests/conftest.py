from __future__ import annotations

import gc
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

from podium.engines.model.providers import PROVIDERS
from podium.testing import ModelServer
from podium.testing.postgres_cluster import PostgresCluster, run_cluster

from .studio import Studio

PROVIDER_VARIABLES = [
    name
    for provider in PROVIDERS.values()
    for name in (provider.key_name, provider.url_name, provider.host_name)
    if name is not None
]

# The same commit gives the same result. `--hypothesis-profile=default` tries new examples.
# A busy machine is no reason to fail, so an example may take any time.
settings.register_profile(
    "same-examples", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same-examples")

# `git bisect run` and git hooks name the repository in variables that git prefers to the folder in which it is called.
# They are dropped here, because fixtures of any scope call git.
for _name in [name for name in os.environ if name.startswith("GIT_")]:
    del os.environ[_name]


def pytest_collection_finish() -> None:
    """Let garbage collections skip the thousands of collected tests, which stay until the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def _receive_signals() -> None:
    """Let processes that tests start receive SIGINT and SIGHUP.

    A script's shell has what it runs in the background ignore SIGINT, and `nohup` has it ignore SIGHUP.
    """
    for sign, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(sign) is signal.SIG_IGN:
            signal.signal(sign, handler)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep tests from using the person's own settings, keys or runs."""
    for name in (
        "PODIUM_HOME",
        "PODIUM_STORE",
        "PODIUM_MODEL",
        "PODIUM_FAULT",
        "PODIUM_PERMISSION_MODE",
        *PROVIDER_VARIABLES,
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    """A model over HTTP that plays the scripts in the agents' prompts, and echoes other requests."""
    async with ModelServer() as server:
        yield server


@pytest.fixture
def studio(tmp_path: Path) -> Studio:
    return Studio(tmp_path / "home")


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[PostgresCluster]:
    """A PostgreSQL server that the tests of one process share. A test that stops a server starts its own."""
    with run_cluster() as cluster:
        yield cluster


@pytest.fixture
def postgres_url(postgres_cluster: PostgresCluster) -> Iterator[str]:
    """The URL of an empty database for one test."""
    name = f"test_{uuid4().hex}"
    yield postgres_cluster.create_database(name)
    postgres_cluster.drop_database(name)
