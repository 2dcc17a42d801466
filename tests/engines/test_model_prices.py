from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest
from genai_prices import Usage as Theirs
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelInfo, Provider
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from podium.engines.model.model_prices import add_cost, calculate_cost, find_context_window
from podium.engines.model.providers import ALIASES, PROVIDERS, parse_model
from podium.values.usage import Usage

CALL = Usage(calls=1, input_tokens=1_000_000, cached_tokens=400_000, output_tokens=100_000)
NIGHT = datetime(2026, 11, 2, 23, 0, tzinfo=UTC)
MORNING = datetime(2026, 11, 2, 7, 0, tzinfo=UTC)


def test_cached_tokens_are_among_the_input_and_cost_less() -> None:
    cost = calculate_cost("openai", "gpt-5-mini", CALL)

    assert cost == pytest.approx(0.6 * 0.25 + 0.4 * 0.025 + 0.1 * 2)


def test_tokens_written_to_a_cache_have_a_price_of_their_own() -> None:
    cost = calculate_cost("anthropic", "claude-sonnet-5-5", structs.replace(CALL, written_tokens=500_000))

    assert cost == pytest.approx(0.1 * 2 + 0.5 * 2.5 + 0.4 * 0.1 + 0.1 * 10)


@pytest.mark.parametrize("provider", ["ollama", "vllm", "llamacpp", "lmstudio"])
def test_local_models_cost_nothing(provider: str) -> None:
    assert calculate_cost(provider, "whatever", CALL) == 0.0
    assert find_context_window(provider, "whatever") is None


def test_every_default_and_alias_with_a_fixed_model_has_a_price() -> None:
    names = [provider.name for provider in PROVIDERS.values() if provider.default_model] + list(ALIASES)

    meant = [parse_model(name) for name in names]

    # OpenRouter's choice of a provider, and so the price, is known only afterwards.
    assert [f"{p.name}:{m}" for p, m in meant if calculate_cost(p.name, m, CALL) is None] == [
        "openrouter:openrouter/auto"
    ]


def test_the_context_window_is_returned_where_it_is_known() -> None:
    assert find_context_window("anthropic", "claude-sonnet-5-5") == 1_000_000
    assert find_context_window("openai", "nobody-knows-this") is None


def test_a_dated_name_has_the_price_of_its_model() -> None:
    dated = calculate_cost("anthropic", "claude-sonnet-4-5-20250929", CALL)

    assert dated
    assert dated == calculate_cost("anthropic", "claude-sonnet-4-5", CALL)


def test_a_long_call_is_priced_by_its_tier_as_a_whole() -> None:
    short, long = (
        calculate_cost("xai", "grok-4.3", Usage(calls=1, input_tokens=count)) for count in (199_000, 200_001)
    )

    assert short == pytest.approx(0.199 * 1.25)
    assert long == pytest.approx(0.200001 * 2.5)


def test_the_hour_of_the_call_decides_where_prices_change_over_the_day() -> None:
    call = Usage(calls=1, input_tokens=1_000_000)

    assert calculate_cost("deepseek", "deepseek-flash", call, at=NIGHT) == pytest.approx(0.15)
    assert calculate_cost("deepseek", "deepseek-flash", call, at=MORNING) == pytest.approx(0.3)


def test_free_models_cost_nothing() -> None:
    assert calculate_cost("openrouter", "qwen/qwen3-coder:free", CALL) == 0.0


@given(st.text(max_size=40), st.text(max_size=40))
def test_odd_names_have_no_price_and_break_nothing(provider: str, model: str) -> None:
    for known in (provider, *PROVIDERS):
        found = calculate_cost(known, f"odd {model}", CALL)

        assert found is None or PROVIDERS[known].key_name is None


def test_a_name_that_only_contains_a_providers_name_has_no_price() -> None:
    assert calculate_cost("my-openai-proxy", "gpt-5-mini", CALL) is None


def list_models_with_providers() -> list[tuple[str, Provider, ModelInfo]]:
    """List every model of the known providers, by our name for the provider."""
    names = {"gemini": "google", "xai": "x-ai"}
    ours = {names.get(name, name): name for name in PROVIDERS}
    return [(ours[one.id], one, model) for one in get_snapshot().providers if one.id in ours for model in one.models]


def test_prices_are_those_of_the_package_for_every_model_it_knows() -> None:
    wrong, checked = [], 0
    for name, provider, model in list_models_with_providers():
        for tokens in (1_000, 1_000_000):
            usage = Usage(calls=1, input_tokens=tokens, cached_tokens=tokens // 4, output_tokens=tokens // 10)
            ours = calculate_cost(name, model.id, usage, at=MORNING)
            if ours is None or provider.find_model(model.id) is not model:
                continue
            theirs = model.calc_price(
                Theirs(input_tokens=tokens, cache_read_tokens=tokens // 4, output_tokens=tokens // 10),
                provider,
                genai_request_timestamp=MORNING,
            )
            checked += 1
            if ours != pytest.approx(float(theirs.total_price), rel=1e-9):
                wrong.append((name, model.id, ours, theirs.total_price))

    assert wrong == []
    assert checked > 1000


def test_usage_is_priced_or_counted_as_unpriced() -> None:
    guessed = Usage(calls=1, input_tokens=1_000_000, estimated=1, unpriced=1)

    known = add_cost("openai", "gpt-5-mini", guessed)
    unknown = add_cost("openai", "nobody-knows-this", Usage(calls=2, input_tokens=5))

    assert known.usd == pytest.approx(0.25)
    assert (known.unpriced, known.estimated) == (0, 1)
    assert (unknown.usd, unknown.unpriced, unknown.input_tokens) == (0.0, 2, 5)


def test_a_cost_that_was_reported_is_kept() -> None:
    reported = Usage(calls=1, input_tokens=5, usd=0.5)

    assert add_cost("openai", "gpt-5-mini", reported) is reported
    assert add_cost("openai", "nobody-knows-this", reported) is reported


OFFLINE_PROGRAM = """
import sys, threading

def deny(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        sys.exit(f"the network was used: {event} {arguments}")

sys.addaudithook(deny)
import podium.engines.model.model_prices as prices
from podium.values.usage import Usage

assert not any(name.startswith("genai_prices") for name in sys.modules), "imported before it was needed"
assert prices.calculate_cost("openai", "gpt-5-mini", Usage(calls=1, input_tokens=1))
assert threading.enumerate() == [threading.main_thread()]
"""


def test_prices_need_no_network_and_are_read_only_when_asked_for() -> None:
    said = subprocess.run([sys.executable, "-c", OFFLINE_PROGRAM], capture_output=True, text=True)

    assert (said.returncode, said.stderr) == (0, "")
