from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from podium.testing import ModelServer

from .worker_lab import WorkerLab


@pytest.fixture
async def lab() -> AsyncIterator[WorkerLab]:
    # Not in pytest's own folder, whose paths are too long for sockets.
    with TemporaryDirectory(prefix="pdm-") as folder:
        async with ModelServer() as server:
            lab = WorkerLab(Path(folder).resolve(), server)
            try:
                yield lab
            finally:
                await lab.close()
