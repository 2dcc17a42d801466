"""Describe what models can do, according to their tests."""

from __future__ import annotations

import time

from ...files.tested_models import AbilityRecord
from ...values.model_abilities import UNTESTED, ModelAbilities


def describe_test(record: AbilityRecord) -> str:
    """Return the date of a model test and the abilities that it found."""
    return f"{time.strftime('%Y-%m-%d', time.localtime(record.at))}: {describe_abilities(record.abilities)}"


def describe_abilities(abilities: ModelAbilities) -> str:
    """Describe the abilities that a model test found."""
    if abilities == UNTESTED:
        return "the test was inconclusive"
    named = {
        "streaming": abilities.streaming,
        "system prompt": abilities.system_prompt,
        "native tool calls": abilities.native_calls,
        "tool calls as text": abilities.written_calls,
        "JSON schema": abilities.json_schema,
    }
    can, cannot = ([name for name, shown in named.items() if shown is value] for value in (True, False))
    parts = [", ".join(can)] if can else []
    parts += [f"no {', no '.join(cannot)}"] if cannot else []
    if abilities.window is not None:
        parts.append(f"{abilities.window:,} tokens of context")
    if abilities.tokens_per_second is not None:
        parts.append(f"{abilities.tokens_per_second:g} tokens/s")
    if abilities.concurrent is not None:
        parts.append(
            "only one call at a time" if abilities.concurrent == 1 else f"{abilities.concurrent} calls at once"
        )
    return "; ".join(parts)
