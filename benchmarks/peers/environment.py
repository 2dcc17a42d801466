"""The peers' environments: created when they are first needed, and separate from Podium's own."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent

PEERS = {"openai": "openai", "openai-agents": "openai_agents", "langgraph": "langgraph"}
"""Each peer's name and its module here; `NAME.txt` pins the packages of its environment."""


def ensure_interpreter(name: str) -> Path | None:
    """Return the interpreter of a peer's environment, creating it if needed; None if it cannot be created."""
    pins = (HERE / f"{name}.txt").read_text()
    folder = HERE / f".venv-{name}"
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if ready.exists() and ready.read_text() == pins:
        return python
    print(f"installing {name} into {folder} ...", file=sys.stderr)
    try:
        venv.create(folder, with_pip=True, clear=True)
        _run_pip(python, "install", "--requirement", str(HERE / f"{name}.txt"))
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{name} cannot be installed: {error}", file=sys.stderr)
        return None
    ready.write_text(pins)
    return python


def read_pinned_versions(name: str) -> dict[str, str]:
    """Return the packages in a peer's environment, with their versions."""
    pins = (HERE / f"{name}.txt").read_text().split()
    return {package: version for package, _, version in (pin.partition("==") for pin in pins)}


def _run_pip(python: Path, *arguments: str) -> None:
    options = ("--quiet", "--quiet", "--disable-pip-version-check", "--no-input")
    subprocess.run([str(python), "-m", "pip", *options, *arguments], check=True, timeout=600)
