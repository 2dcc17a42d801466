"""A cast: who says what, handed out while the play goes on."""

from __future__ import annotations

from ..engines.script import Moves, Repertoire, script


class Cast(Repertoire):
    """Scripts that a test may give, and give anew, at any moment."""

    def give(self, agent: str, moves: Moves) -> None:
        """What this agent says from now on, in every conversation from its beginning."""
        self._by_agent[agent] = script(moves)

    def give_all(self, moves: Moves) -> None:
        """What everybody says who has no script of their own."""
        self._for_all = script(moves)
