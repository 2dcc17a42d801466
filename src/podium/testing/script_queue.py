"""Define a script set that a test can change while a run is in progress."""

from __future__ import annotations

from ..engines.script import Moves, ScriptSet, parse_script


class MutableScriptSet(ScriptSet):
    """Scripts that a test can set and replace at any time."""

    def set_script(self, agent: str, moves: Moves) -> None:
        """Set the script that an agent uses from now on. Every conversation starts at the first move."""
        self._by_agent[agent] = parse_script(moves)

    def set_default_script(self, moves: Moves) -> None:
        """Set the script for all agents that do not have their own."""
        self._default_script = parse_script(moves)
