"""Check whether releases of Podium, such as 0.4.1, can work on the same runs, and say how to install extras."""

from __future__ import annotations

import re


def are_compatible(one: str, other: str) -> bool:
    """Return whether two releases can work on the same runs.

    They can if their major versions are equal and, before 1.0, their minor versions too. An empty release is compatible
    with every other, because runs from old releases do not say which release wrote them.
    """
    return not one or not other or find_series(one) == find_series(other)


def find_series(release: str) -> str:
    """Return the part of a version number that all compatible releases share: `0.4` for 0.4.1, and `2` for 2.5.0."""
    numbers = re.match(r"(0\.\d+|[1-9]\d*)", release)
    return numbers[0] if numbers else release


def format_install_commands(extras: str) -> str:
    """Return the commands that install Podium with these extras, for each of the usual installers."""
    package = f"'podium[{extras}]'"
    return f"uv tool install {package}, pipx install --force {package} or pip install {package}"
