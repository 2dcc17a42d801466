"""What a model call costs, and how much a model can read at once.

The numbers are those of `genai-prices`, as they came with the package: nothing is fetched. They are
looked up once for each model; after that a price is a handful of multiplications.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from ...values.usage import Usage
from .providers import PROVIDERS

if TYPE_CHECKING:
    from decimal import Decimal

    from genai_prices.types import ConditionalPrice, ModelInfo, ModelPrice

MILLION = 1_000_000

_BASE = -1
"""Every call has more input tokens than this."""

_PRICE_LIST_NAMES = {"gemini": "google", "xai": "x-ai", "bedrock": "aws", "vertex": "google"}
"""What a provider is called there, where it is not its name here."""


def calculate_cost(provider: str, model: str, usage: Usage, *, at: datetime | None = None) -> float | None:
    """What one call cost in dollars, by the prices of that moment (now); None where nobody knows.

    Models on one's own machines cost nothing. The first question takes a fifth of a second, for
    reading all prices there are.
    """
    prices = _find_model_prices(provider, model)
    if prices is None:
        return None
    return prices.calculate_cost(usage, at)


def add_cost(provider: str, model: str, usage: Usage, *, at: datetime | None = None) -> Usage:
    """The usage of one call with its money, or counted as unpriced where nobody knows the price.

    Whoever told the usage may have told the money too; then it is left as it is.
    """
    if usage.usd:
        return usage
    usd = calculate_cost(provider, model, usage, at=at)
    if usd is None:
        return structs.replace(usage, unpriced=usage.calls)
    return structs.replace(usage, usd=usd, unpriced=0)


def load_prices() -> None:
    """Read all prices there are, so that the first question is as fast as the others."""
    _find_model_info("openai", "")


def find_context_window(provider: str, model: str) -> int | None:
    """How many tokens the model can read at once; None where nobody knows."""
    found = _find_model_info(provider, model)
    return None if found is None else found.context_window


class _Rates(NamedTuple):
    """Dollars a token, for calls with more input tokens than `above`."""

    above: int
    fresh: float
    cached: float
    written: float
    output: float


@dataclass(frozen=True, slots=True)
class _ModelPrices:
    """The prices of one model. `by_time` are those with a condition, the last that holds first; `usual` holds else."""

    default: tuple[_Rates, ...]
    by_time: tuple[tuple[ConditionalPrice, tuple[_Rates, ...]], ...] = ()

    def calculate_cost(self, usage: Usage, at: datetime | None) -> float:
        tiers = self._find_tiers(at or datetime.now(UTC)) if self.by_time else self.default
        # A tier holds for the whole call, not only for the tokens above its start.
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


_FREE = _ModelPrices((_Rates(_BASE, 0.0, 0.0, 0.0, 0.0),))


@lru_cache(maxsize=1024)
def _find_model_prices(provider: str, model: str) -> _ModelPrices | None:
    known = PROVIDERS.get(provider.lower())
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
    """The base rates and those of each tier above it; None for what is not sold by tokens in and out."""
    from genai_prices.types import TieredPrices

    fresh, output = prices.input_mtok, prices.output_mtok
    if fresh is None or output is None:
        return None
    # Without a price of its own, the cache costs what other input costs.
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
    # All prices of the world take 0.2 s to import, which only those pay who ask.
    from genai_prices.data_snapshot import get_snapshot

    name = provider.lower()
    providers = get_snapshot().providers
    # By the exact id: the package's own search would take any name that contains a provider's.
    seller = next((one for one in providers if one.id == _PRICE_LIST_NAMES.get(name, name)), None)
    return None if seller is None else seller.find_model(model, all_providers=providers)
