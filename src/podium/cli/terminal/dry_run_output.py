"""Format the estimate that `podium run --dry-run` prints: the usage and cost of the real run."""

from __future__ import annotations

from ...runs.queries.dry_run_estimate import RunEstimate
from ...values.plain_text import format_count, join_words
from .text import format_money

BASIS = (
    "estimated from simulated replies, at four characters per token; real replies are usually longer; "
    "no model was called"
)


def format_estimate(estimate: RunEstimate) -> str:
    """Return the estimate of a dry run as one line."""
    amount = f"{format_count(estimate.calls, 'model call')} and about {format_count(estimate.tokens, 'token')}"
    known, unknown = _format_known_cost(estimate), _format_unknown_cost(estimate)
    cost = f", {known}" if known else ""
    cost += f"{', and' if known else ';'} {unknown}" if unknown else ""
    return f"dry run: {amount}{cost}; {BASIS}"


def _format_known_cost(estimate: RunEstimate) -> str:
    """Format the cost of the models whose prices are known. Return an empty string if no price is known."""
    if estimate.usd is None:
        return ""
    shares = [f"{format_money(one.usd)} with {one.model}" for one in estimate.models if one.usd is not None]
    if not estimate.usd:
        return f"no cost for {join_words([one.model for one in estimate.models if one.usd is not None])}"
    if len(shares) == 1:
        return f"about {shares[0]}"
    return f"about {format_money(estimate.usd)} ({', '.join(shares)})"


def _format_unknown_cost(estimate: RunEstimate) -> str:
    """Return why part of the cost is not known, or an empty string if the whole cost is known."""
    names = [one.model for one in estimate.models if one.usd is None]
    if not names:
        return ""
    if not any(one.model for one in estimate.models):
        return "no model is configured, so the cost is not known"
    return f"the price of {join_words([name or 'the default model (not set)' for name in names])} is not known"
