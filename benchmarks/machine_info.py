"""The machine that the figures were measured on, without which they mean nothing."""

from __future__ import annotations

import os
import platform
import resource
import sqlite3
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("podium", "aiohttp", "anyio", "msgspec")


def describe_machine() -> dict[str, Any]:
    """Return the processor, the system and the versions of the software involved."""
    return {
        "processor": _read_processor_name(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "sqlite": sqlite3.sqlite_version,
        "packages": {name: version(name) for name in PACKAGES},
        "event loop": "asyncio for all that are measured; uvloop, where there is one, for the model server",
        "open files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }


def raise_open_files() -> int:
    """Raise the limit of open files for this process and its children as far as possible, and return the limit.

    A thousand calls at once are a thousand connections, and the usual limit is 1,024.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def read_load_averages() -> list[float]:
    """Return the load averages of the last 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def _read_processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
