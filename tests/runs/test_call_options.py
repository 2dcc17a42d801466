"""How a model is called: by the settings, by what a test has shown, and by the place of its server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from podium import Settings
from podium.engines.engine_choice import CallOptions, ModelAddress
from podium.engines.model.providers import PROVIDERS
from podium.files.settings_document import ProviderLimits
from podium.files.tested_models import AbilityRecord, load_ability_records, save_ability_record
from podium.runs.assembly.engine_lookup import find_call_options
from podium.values.model_abilities import UNTESTED, ModelAbilities
from podium.values.usage import LOCAL_CALL_LIMITS, NO_CALL_LIMITS, CallLimits

HERE = "http://127.0.0.1:11434/v1"


def find_options(home: Path, provider: str, url: str, **limits: Any) -> CallOptions:
    settings = structs.replace(Settings.load({}, home=home), providers={provider: ProviderLimits(**limits)})
    return find_call_options(settings, ModelAddress(provider=PROVIDERS[provider], url=url, model="small"))


@pytest.mark.parametrize(
    ("provider", "url", "limits", "concurrent"),
    [
        ("ollama", HERE, LOCAL_CALL_LIMITS, 1),
        ("vllm", "http://me:secret@localhost:8000/v1", LOCAL_CALL_LIMITS, 1),
        ("ollama", "http://box.test:11434/v1", NO_CALL_LIMITS, None),
        ("openai", "https://api.openai.com/v1", NO_CALL_LIMITS, None),
        ("openai", "http://127.0.0.1:4000/v1", NO_CALL_LIMITS, None),
    ],
)
def test_only_a_keyless_server_on_this_machine_gets_one_call_at_a_time_and_more_time(
    tmp_path: Path, provider: str, url: str, limits: CallLimits, concurrent: int | None
) -> None:
    options = find_options(tmp_path, provider, url)

    assert (options.limits, options.concurrent, options.abilities) == (limits, concurrent, UNTESTED)


def test_a_test_can_show_that_a_server_answers_several_calls_at_once_and_the_settings_overrule_it(
    tmp_path: Path,
) -> None:
    shown = ModelAbilities(concurrent=4, json_schema=False)
    for url, model, abilities in ((HERE, "other", UNTESTED), (HERE, "small", UNTESTED), (HERE, "small", shown)):
        record = AbilityRecord(url=url, provider="ollama", model=model, at=1.0, abilities=abilities)
        save_ability_record(tmp_path, record)

    tested = find_options(tmp_path, "ollama", HERE.replace("//", "//me:secret@"))
    overruled = find_options(tmp_path, "ollama", HERE, concurrent=2, silence_timeout=9.5)

    assert (tested.concurrent, tested.abilities) == (4, shown)
    assert (overruled.concurrent, overruled.limits) == (2, CallLimits(first_token=300.0, silence=9.5))
    assert len(load_ability_records(tmp_path)) == 2


@pytest.mark.parametrize("content", [b"", b"[]", b'{"models": [{"url": 1}]}', b"\xff"])
def test_a_damaged_file_of_test_results_counts_as_empty(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model_abilities.json").write_bytes(content)

    assert find_options(tmp_path, "ollama", HERE).abilities == UNTESTED
