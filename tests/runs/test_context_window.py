from __future__ import annotations

from pathlib import Path

from podium.files.settings import Settings
from podium.files.tested_models import AbilityRecord, save_ability_record
from podium.runs.queries.context_window import add_context_windows, find_context_window
from podium.runs.queries.overview import ShownContext
from podium.values.model_abilities import ModelAbilities
from podium.views.run_state.model_usage import ContextUse


def test_a_test_of_the_model_takes_precedence_over_the_price_list(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, store=tmp_path / "s")
    known = find_context_window("openai:gpt-4o", settings, {})
    record = AbilityRecord(
        url="http://127.0.0.1:9/v1", provider="openai", model="gpt-4o", at=1.0, abilities=ModelAbilities(window=4096)
    )
    save_ability_record(tmp_path, record)

    assert known == 128_000
    assert find_context_window("openai:gpt-4o", settings, {"OPENAI_BASE_URL": record.url}) == 4096
    assert find_context_window("openai:gpt-4o", settings, {}) == known


def test_an_unknown_model_has_no_window_and_a_run_without_calls_stays_as_it_is(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, store=tmp_path / "s")
    context = ContextUse(agent="a", model="ollama:none", tokens=5)

    assert add_context_windows([context, None], settings, {}) == [ShownContext.of(context, window=None), None]
    assert find_context_window("local:none", settings, {}) is None
    assert find_context_window("nowhere:x", settings, {}) is None
