"""Store and describe the results of tests of models' abilities in `model_abilities.json` in Podium's home folder.

A model can have different abilities on different servers, so results are stored per address and model.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
from msgspec import Struct

from ..values.model_abilities import UNTESTED, ModelAbilities

NAME = "model_abilities.json"
LOCK = ".model_abilities.lock"


class AbilityRecord(Struct, frozen=True, kw_only=True):
    """What a model can do on one server.

    `url` has no credentials, and `at` is the time of the test in seconds since 1970.
    """

    url: str
    provider: str
    model: str
    at: float
    abilities: ModelAbilities


class AbilityRecords(Struct, frozen=True, kw_only=True):
    """The results of all tests, newest last."""

    models: tuple[AbilityRecord, ...] = ()


def load_ability_records(home: Path) -> tuple[AbilityRecord, ...]:
    """Load the results of all tests. A missing or invalid file counts as empty."""
    try:
        return msgspec.json.decode((home / NAME).read_bytes(), type=AbilityRecords).models
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return ()


def find_ability_record(home: Path, url: str, model: str) -> AbilityRecord | None:
    """Return the result of the last test of a model on the server at this address, or None if it was not tested."""
    return next((one for one in load_ability_records(home) if (one.url, one.model) == (url, model)), None)


def save_ability_record(home: Path, record: AbilityRecord) -> None:
    """Save the result of a test, replacing any earlier result for the same server and model."""
    # Imported here to keep start-up fast: many commands read this file, but only one writes it.
    from ..system.file_lock import hold_file_lock
    from ..system.whole_file import replace_file

    path = home / NAME
    with hold_file_lock(home / LOCK, protects=path):
        others = tuple(one for one in load_ability_records(home) if (one.url, one.model) != (record.url, record.model))
        content = AbilityRecords(models=(*others, record))
        replace_file(path, msgspec.json.format(msgspec.json.encode(content)) + b"\n")


def describe_test(record: AbilityRecord) -> str:
    """Return the date of a model test and the abilities that it found."""
    return f"{time.strftime('%Y-%m-%d', time.localtime(record.at))}: {_describe_abilities(record.abilities)}"


def _describe_abilities(abilities: ModelAbilities) -> str:
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
