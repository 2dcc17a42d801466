from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from .worker_lab import WorkerLab, open_worker_lab


@pytest.fixture
async def lab() -> AsyncIterator[WorkerLab]:
    async with open_worker_lab(WorkerLab) as lab:
        yield lab
