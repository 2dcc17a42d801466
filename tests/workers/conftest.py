from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from podium.testing import ModelServer

from .worker_lab import Yard


@pytest.fixture
async def yard() -> AsyncIterator[Yard]:
    # Not in pytest's own folder, whose paths are too long for sockets.
    with TemporaryDirectory(prefix="pdm-") as folder:
        async with ModelServer() as server:
            yard = Yard(Path(folder).resolve(), server)
            try:
                yield yard
            finally:
                await yard.close()
