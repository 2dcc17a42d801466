"""Parse and format budgets on the command line, e.g. `usd=2,tokens=200000`."""

from __future__ import annotations

from math import inf, isfinite
from typing import Any

import click
import msgspec

from ...values.agent import MAX_LIMIT, Budget
from ...values.agent import format_limits as format_limits

FRACTIONS = ("usd", "seconds")
"""The limits that need not be whole numbers."""


class BudgetParamType(click.ParamType[Budget]):
    """A parameter type for limits: `NAME=AMOUNT`, separated by commas. A bare number is an amount in dollars."""

    name = "limits"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Budget:
        if isinstance(value, Budget):
            return value
        try:
            return _parse_budget(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _parse_budget(text: str) -> Budget:
    """Parse a budget. Raise ValueError with the reason if it is invalid."""
    limits: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, equals, amount = part.partition("=")
        limits[name.strip() or "?" if equals else "usd"] = amount.strip() if equals else name
    known = Budget.__struct_fields__
    if unknown := next((name for name in limits if name not in known), None):
        raise ValueError(f"unknown limit {unknown!r}; available: {', '.join(known)}")
    wrong = next(
        (_describe_invalid_limit(name, amount) for name, amount in limits.items() if not _is_valid_limit(name, amount)),
        None,
    )
    if wrong or not limits:
        raise ValueError(f"{text!r} is not a budget: {wrong or 'it has no limit'}; use e.g. usd=2,tokens=200000")
    return msgspec.convert(limits, Budget, strict=False)


def _is_valid_limit(name: str, amount: str) -> bool:
    try:
        limit = getattr(msgspec.convert({name: amount}, Budget, strict=False), name)
    except msgspec.ValidationError:
        return False
    return limit is not None and isfinite(limit) and 0 < limit <= MAX_LIMIT


def _describe_invalid_limit(name: str, amount: str) -> str:
    kind = "a number" if name in FRACTIONS else "a whole number"
    most = f", up to {MAX_LIMIT}" if _is_huge(amount) else ""
    return f"{name} must be {kind} above zero{most}, got {amount!r}"


def _is_huge(amount: str) -> bool:
    try:
        return MAX_LIMIT < float(amount) < inf
    except ValueError:
        return False
