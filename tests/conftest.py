from __future__ import annotations

from pathlib import Path

import pytest

from .studio import Studio


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test uses the person's own settings, keys or runs."""
    for name in ("PODIUM_HOME", "PODIUM_STORE", "PODIUM_MODEL", "PODIUM_FAULT", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def studio(tmp_path: Path) -> Studio:
    return Studio(tmp_path / "home")
