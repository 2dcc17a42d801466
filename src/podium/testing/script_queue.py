"""A cast: who says what, handed out while the play goes on."""

from __future__ import annotations

from ..engines.script import Moves, ScriptSet, parse_script


class MutableScriptSet(ScriptSet):
    """Scripts that a test may give, and give anew, at any moment."""

    def set_script(self, agent: str, moves: Moves) -> None:
        """What this agent says from now on, in every conversation from its beginning."""
        self._by_agent[agent] = parse_script(moves)

    def set_default_script(self, moves: Moves) -> None:
        """What everybody says who has no script of their own."""
        self._default_script = parse_script(moves)
