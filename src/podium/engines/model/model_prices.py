"""Look up the prices and context windows of models.

The data comes from the installed `genai-prices` package; nothing is fetched. Each model is looked up
once; after that, computing a cost takes a few multiplications.

Loading the price list takes 0.2 s of CPU time, longer than many servers take to reply. So the
prices of every model in use are stored in a file that takes less than a millisecond to read. The file
is valid for one version of the price list.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, structs

from ...values.usage import Usage
from .providers import PROVIDERS

if TYPE_CHECKING:
    from decimal import Decimal

    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ConditionalPrice, ModelInfo, ModelPrice
    from genai_prices.types import Provider as PriceListProvider

from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import msgspec

from ...system.whole_file import replace_file
from ...values.errors import Mistake

MAX_MODELS = 200


class _CachedPrices(Struct):
    """The contents of the file: the version of the price list, and the price and context window of each model."""

    price_list: str
    models: dict[str, ModelFacts]


class PriceCache:
    """A price cache in a file. If the file cannot be read or written, lookups still work but are slower."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def restore(self, provider: str, model: str) -> bool:
        """Load the price and context window of a model from the file into memory.

        Return False if the file does not contain the model.
        """
        facts = self._read().models.get(f"{provider}:{model}")
        if facts is None:
            return False
        _remember_model(provider, model, facts)
        return True

    def load_and_store(self, provider: str, model: str) -> None:
        """Load the price list, and store the price and context window of a model in the file.

        Nothing is stored if the price is unknown or depends on the time of day, or if the file is full.
        """
        facts = _describe_model(provider, model)
        content = self._read()
        if facts is None or len(content.models) >= MAX_MODELS:
            return
        content.models[f"{provider}:{model}"] = facts
        with suppress(OSError, Mistake):
            replace_file(self._path, msgspec.json.encode(content))

    def _read(self) -> _CachedPrices:
        """Return the contents of the file. If the file cannot be used, return contents with an empty list of models.

        The file cannot be used if it is unreadable or was written for another version of the price list.
        """
        current = _CachedPrices(price_list=_identify_price_list(), models={})
        try:
            content = msgspec.json.decode(self._path.read_bytes(), type=_CachedPrices)
        except (OSError, msgspec.MsgspecError):
            return current
        return content if content.price_list == current.price_list else current


MILLION = 1_000_000
_BASE = -1
"""The threshold of the base tier. Every call has more input tokens than this, so there is always a matching tier."""
_PRICE_LIST_NAMES = {"gemini": "google", "xai": "x-ai", "bedrock": "aws", "vertex": "google"}
"""Provider names in the price list that differ from Podium's."""


def calculate_cost(provider: str, model: str, usage: Usage, *, at: datetime | None = None) -> float | None:
    """Return the cost of one call in dollars at the time `at` (default: now), or None if the price is unknown.

    Models from providers that need no key cost nothing. The first lookup takes 0.2 s, because it loads all prices.
    """
    prices = _remembered_prices.get((provider, model)) or _find_model_prices(provider, model)
    if prices is None:
        return None
    return prices.calculate_cost(usage, at)


def add_cost(provider: str, model: str, usage: Usage, *, at: datetime | None = None) -> Usage:
    """Return the usage of one call with its cost, or marked as unpriced if the price is unknown.

    If the usage already contains a cost, that cost is kept.
    """
    if usage.usd:
        return usage
    usd = calculate_cost(provider, model, usage, at=at)
    if usd is None:
        return structs.replace(usage, unpriced=usage.calls)
    return structs.replace(usage, usd=usd, unpriced=0)


def load_prices() -> None:
    """Load all prices, so that the first lookup is as fast as the others."""
    _find_model_info("openai", "")


class ModelFacts(Struct, frozen=True):
    """The price and context window of a model whose price does not depend on the time of day."""

    rates: tuple[tuple[int, float, float, float, float], ...]
    window: int | None = None


def _describe_model(provider: str, model: str) -> ModelFacts | None:
    """Return the price and context window of a model, or None if its price is unknown or depends on the time of day."""
    prices = _find_model_prices(provider, model)
    if prices is None or prices.by_time:
        return None
    return ModelFacts(prices.default, find_context_window(provider, model))


def _remember_model(provider: str, model: str, facts: ModelFacts) -> None:
    """Store these facts about a model in memory, so that the price list need not be loaded for it."""
    _remembered_prices[provider, model] = _ModelPrices(tuple(_Rates(*rates) for rates in facts.rates))
    _remembered_windows[provider, model] = facts.window


def find_context_window(provider: str, model: str) -> int | None:
    """Return the context window of a model in tokens, or None if it is unknown."""
    if (provider, model) in _remembered_windows:
        return _remembered_windows[provider, model]
    found = _find_model_info(provider, model)
    return None if found is None else found.context_window


def _find_similar_models(provider: str, model: str) -> tuple[str, ...] | None:
    """Return the known models of a provider whose names are closest to an unknown name.

    Return None if the model is known, or if nothing is known about the provider's models. The first
    lookup takes 0.2 s, because it loads all prices.
    """
    known = PROVIDERS.get(_strip_account(provider))
    if known is None or known.key_name is None or model == known.default_model:
        return None
    if (provider, model) in _remembered_prices:
        return None
    seller = _find_seller(provider)
    if seller is None or _find_model_info(provider, model) is not None:
        return None
    from difflib import get_close_matches  # imported here to keep start-up fast: only unknown models need it

    return tuple(get_close_matches(model, [one.id for one in seller.models], n=3, cutoff=0.5))


def suggest_models(provider: str, model: str) -> str:
    """Return a hint if a model is unknown, or an empty string if it is known or its provider is unknown."""
    similar = _find_similar_models(provider, model)
    if similar is None:
        return ""
    if not similar:
        return "run podium models to list the providers' default models"
    return f"similar models: {', '.join(similar)}"


def describe_unknown_model(provider: str, model: str) -> str | None:
    """Return a message about an unknown model, with a hint, or None if there is no hint."""
    hint = suggest_models(provider, model)
    return f"{model!r} is not a known model of {provider}; {hint}" if hint else None


class _Rates(NamedTuple):
    """Dollars per token, for calls with more than `above` input tokens."""

    above: int
    fresh: float
    cached: float
    written: float
    output: float


@dataclass(frozen=True, slots=True)
class _ModelPrices:
    """The prices of one model. The first entry of `by_time` whose condition is met applies, otherwise `default`."""

    default: tuple[_Rates, ...]
    by_time: tuple[tuple[ConditionalPrice, tuple[_Rates, ...]], ...] = ()

    def calculate_cost(self, usage: Usage, at: datetime | None) -> float:
        tiers = self._find_tiers(at or datetime.now(UTC)) if self.by_time else self.default
        # A tier applies to the whole call, not only to the tokens above its threshold.
        rates = tiers[0]
        for tier in tiers[1:]:
            if usage.input_tokens > tier.above:
                rates = tier
        fresh = max(usage.input_tokens - usage.cached_tokens - usage.written_tokens, 0)
        return (
            fresh * rates.fresh
            + usage.written_tokens * rates.written
            + usage.cached_tokens * rates.cached
            + usage.output_tokens * rates.output
        )

    def _find_tiers(self, at: datetime) -> tuple[_Rates, ...]:
        for condition, tiers in self.by_time:
            if condition.constraint is None or condition.constraint.active(at):
                return tiers
        return self.default


_remembered_prices: dict[tuple[str, str], _ModelPrices] = {}
_remembered_windows: dict[tuple[str, str], int | None] = {}
_FREE = _ModelPrices((_Rates(_BASE, 0.0, 0.0, 0.0, 0.0),))


@lru_cache(maxsize=1024)
def _find_model_prices(provider: str, model: str) -> _ModelPrices | None:
    known = PROVIDERS.get(_strip_account(provider))
    if known is not None and known.key_name is None:
        return _FREE
    found = _find_model_info(provider, model)
    if found is None:
        return None
    if found.id.endswith(":free"):
        return _FREE
    conditions = found.prices if isinstance(found.prices, list) else []
    default = _build_rates(conditions[0].prices if isinstance(found.prices, list) else found.prices)
    by_time = (
        [(condition, _build_rates(condition.prices)) for condition in reversed(conditions)] if conditions[1:] else []
    )
    if default is None or any(tiers is None for _, tiers in by_time):
        return None
    return _ModelPrices(default, tuple((condition, tiers) for condition, tiers in by_time if tiers is not None))


def _build_rates(prices: ModelPrice) -> tuple[_Rates, ...] | None:
    """Return the base rates and those of each higher tier, or None if the price is not per input and output token."""
    from genai_prices.types import TieredPrices

    fresh, output = prices.input_mtok, prices.output_mtok
    if fresh is None or output is None:
        return None
    # Without a separate price, cached tokens cost as much as other input.
    cached = fresh if prices.cache_read_mtok is None else prices.cache_read_mtok
    written = fresh if prices.cache_write_mtok is None else prices.cache_write_mtok
    sold = (fresh, cached, written, output)
    starts = {tier.start for one in sold if isinstance(one, TieredPrices) for tier in one.tiers}

    def price_per_token(one: Decimal | TieredPrices, above: int) -> float:
        if isinstance(one, TieredPrices):
            one = next((tier.price for tier in reversed(one.tiers) if tier.start <= above), one.base)
        return float(one) / MILLION

    return tuple(_Rates(above, *(price_per_token(one, above) for one in sold)) for above in (_BASE, *sorted(starts)))


@lru_cache(maxsize=1024)
def _find_model_info(provider: str, model: str) -> ModelInfo | None:
    seller = _find_seller(provider)
    return None if seller is None else seller.find_model(model, all_providers=_load_snapshot().providers)


def _find_seller(provider: str) -> PriceListProvider | None:
    name = _strip_account(provider)
    # Compare the exact id: the package's own search accepts any name that contains a provider's name.
    wanted = _PRICE_LIST_NAMES.get(name, name)
    return next((one for one in _load_snapshot().providers if one.id == wanted), None)


def _load_snapshot() -> DataSnapshot:
    # Importing all prices takes 0.2 s, so it happens only when a price is needed.
    from genai_prices.data_snapshot import get_snapshot

    return get_snapshot()


def _strip_account(provider: str) -> str:
    """Return the name of a provider without the account name, because all accounts pay the same prices."""
    return provider.lower().partition("@")[0]


def _identify_price_list() -> str:
    """Return an identifier for the installed version of the price list, without importing the list."""
    found = find_spec("genai_prices")
    places = [] if found is None else list(found.submodule_search_locations or ())
    try:
        state = (Path(places[0]) / "data.py").stat()
    except (IndexError, OSError):
        return ""
    return f"{state.st_size}-{state.st_mtime_ns}"
