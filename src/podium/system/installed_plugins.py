"""Find the plug-ins in installed Python packages.

The search takes tens of milliseconds, so it runs only for names that are not built in, such as the name of an engine
or of a command. Packages in the current folder are ignored, because otherwise code in a repository could run without
consent.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..values.errors import Mistake
from ..values.plugin import Plugin

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "podium.plugins"

PluginPart = Literal["engines", "tools", "patterns", "commands"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPlugins:
    """The loaded plug-ins, and the errors of plug-ins that could not be loaded, both keyed by name."""

    plugins: Mapping[str, Plugin] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)


@cache
def _load_plugins() -> InstalledPlugins:
    """Load all plug-ins. If loading one raises an error, the error is returned in `broken`."""
    plugins: dict[str, Plugin] = {}
    broken: dict[str, str] = {}
    for entry in _find_entry_points():
        try:
            found = entry.load()
            plugin = found if isinstance(found, Plugin) else found()
            if not isinstance(plugin, Plugin):
                raise TypeError(f"{entry.value} is not a podium.Plugin")
            plugins[entry.name] = plugin
        except Exception as error:
            # A plug-in is third-party code; a broken one must not stop the others.
            broken[entry.name] = f"{type(error).__name__}: {error}"
    return InstalledPlugins(plugins=plugins, broken=broken)


def _find_entry_points() -> list[EntryPoint]:
    from importlib.metadata import distributions  # imported here for start-up time: few runs need plug-ins

    here = Path.cwd()
    folders = [entry for entry in sys.path if entry and Path(entry).resolve() != here]
    found = (entry for one in distributions(path=folders) for entry in one.entry_points if entry.group == GROUP)
    return list({entry.name: entry for entry in found}.values())


def find_plugin(name: str) -> Plugin:
    """Return the plug-in with this name. Raise Mistake if it is not installed or cannot be loaded."""
    found = _load_plugins()
    if name in found.plugins:
        return found.plugins[name]
    if name in found.broken:
        raise Mistake(f"the plug-in {name} cannot be loaded: {found.broken[name]}")
    raise Mistake(f"plug-in {name!r} not found; installed: {', '.join(found.plugins) or 'none'}")


def find_plugin_part(part: PluginPart, name: str) -> Any:
    """Return the engine, tool, pattern or command with this name, or None if no plug-in provides it.

    Raise Mistake if it is not found and a plug-in that might provide it cannot be loaded.
    """
    found = _load_plugins()
    for plugin in found.plugins.values():
        parts = getattr(plugin, part)
        named = parts if isinstance(parts, Mapping) else {getattr(one, "__name__", ""): one for one in parts}
        if name in named:
            return named[name]
    for broken, why in found.broken.items():
        raise Mistake(f"{name!r} not found, and the plug-in {broken} cannot be loaded: {why}")
    return None
