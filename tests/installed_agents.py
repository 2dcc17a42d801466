"""Find the real coding agents and clients for the tests that are marked `engines`, and install them.

`make agents` installs all of them from npm, in the versions with which they were tested. They take 2.2 GB.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from podium.engines.acp.agent_program import AGENT_PROGRAMS

FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "podium-test-agents"
NODE = "22.23.3"
"""A version of Node that all of them run with, because some do not run with the one that Debian has."""
CLIENTS = {"acpx": "0.19.1"}
"""Clients of the Agent Client Protocol, with their versions. Their packages have the same names."""
NODE_FOLDER = FOLDER / f"node-{NODE}" / "node_modules" / "node" / "bin"


def find_agent(name: str) -> str:
    """Return the path of an installed agent or client. Skip the test if it is not installed."""
    found = _locate_agent(name)
    if not found.exists():
        pytest.skip(f"{name} is not installed; run make agents, which needs npm")
    return str(found)


def _locate_agent(name: str) -> Path:
    """Return the path at which `make` installs an agent or client."""
    if name in CLIENTS:
        return FOLDER / f"{name}-{CLIENTS[name]}" / "node_modules" / ".bin" / name
    row = AGENT_PROGRAMS[name]
    modules = FOLDER / f"{name}-{row.version}" / "node_modules"
    return modules / row.package / row.binary if row.binary else modules / ".bin" / row.command[0]


def find_goose() -> str:
    """Return the goose that `make goose` installed. If it cannot be installed, skip the test, except in CI."""
    if os.environ.get("CI"):
        assert _locate_agent("goose").exists(), "goose is not installed; run make goose, which needs npm"
    return find_agent("goose")


def build_search_path() -> str:
    """Return a PATH on which the agents find the version of Node that they need."""
    return os.pathsep.join((str(NODE_FOLDER), os.environ["PATH"]))


def install_agents() -> None:
    """Install the agents and clients that are not installed yet."""
    npm = shutil.which("npm") or sys.exit("npm not found; install Node with npm first")
    packages = {"node": ("node", NODE), **{name: (name, version) for name, version in CLIENTS.items()}}
    packages |= {row.name: (row.package, row.version) for row in AGENT_PROGRAMS.values()}
    for name, (package, version) in packages.items():
        folder = FOLDER / f"{name}-{version}"
        if (folder / "node_modules" / package).exists():
            continue
        print(f"{package}@{version}", flush=True)
        options = ["--silent", "--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--prefix", str(folder)]
        environ = {**os.environ, "PATH": build_search_path()}
        subprocess.run([npm, "install", *options, f"{package}@{version}"], env=environ, check=True)


if __name__ == "__main__":
    install_agents()
