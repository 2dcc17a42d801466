"""Format the question of whether to save a rule, with examples of what the rule allows and what it does not."""

from __future__ import annotations

from collections.abc import Sequence

from ...policy.rule_examples import find_rule_examples
from ...values.event import PermissionAsked
from ...views.request_text import escape_in_line


def format_rule_question(asked: PermissionAsked) -> str:
    """Return the text that asks whether to save a rule, with examples and the keys for the answer."""
    examples = find_rule_examples(asked.always, asked.action)
    return "\n".join(
        [
            f"Save the rule {escape_in_line(asked.always)}? Everything that it matches will be allowed without asking.",
            *_format_examples("It allows, for example:", examples.covered),
            *_format_examples("It does not allow, for example:", examples.not_covered),
            "[y] save the rule and allow this action  [n] back",
        ]
    )


def _format_examples(title: str, examples: Sequence[str]) -> list[str]:
    return [f"  {title}", *(f"    {escape_in_line(example)}" for example in examples)] if examples else []
