"""Decide which files are hidden from agents.

Hidden files do not appear in search results, and are not read as instructions or skills.
"""

from __future__ import annotations

from collections.abc import Callable

from ...policy import Rules, check
from ...values.action import Action


def make_hidden_test(rules: Rules) -> Callable[[str], bool]:
    """Return a function that tells whether a path, relative to the checkout, is hidden from agents with these rules.

    A file is hidden if files with such a name usually contain secrets, or if the rules forbid agents to read it.
    """
    from ...tools.file_listing import holds_secrets  # imported here to keep start-up fast: not every run has tools

    def is_hidden(path: str) -> bool:
        read = Action(run="", agent="", tool="read_file", arguments={"path": path})
        return holds_secrets(path) or check(read, rules).decision == "deny"

    return is_hidden if rules.deny else holds_secrets
