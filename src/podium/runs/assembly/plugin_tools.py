"""Find the tools provided by plug-ins."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...core.gate import ActingTool
from ...system.installed_plugins import find_plugin_part
from ...tools.toolset import function_tools
from ...values.errors import Mistake


def find_plugin_tools(names: Sequence[str], notice: Callable[[str], object]) -> dict[str, ActingTool]:
    """Return the plug-in tools with these names. If one cannot be used, `notice` is called with the reason."""
    found: dict[str, ActingTool] = {}
    for name in names:
        try:
            if (function := find_plugin_part("tools", name)) is not None:
                (found[name],) = function_tools([function])
        except Mistake as error:
            notice(f"{error}.")
    return found
