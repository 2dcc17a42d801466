"""File descriptors of this process: how many are open, and running with only a few."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def count_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are enough


@contextmanager
def few_descriptors(free: int) -> Iterator[int]:
    """Leave this many descriptors for the block, and yield the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(int(name) for name in os.listdir("/proc/self/fd")) + 20  # noqa: PTH208 - names are enough
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    held: list[int] = []
    try:
        with suppress(OSError):
            while True:
                held.append(os.dup(0))
        for _ in range(free):
            os.close(held.pop())
        yield limit
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
