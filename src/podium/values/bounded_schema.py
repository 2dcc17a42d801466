"""Validate values against untrusted JSON schemas, in bounded time, whatever the schema contains.

A regular expression can take forever on a short text, and nested alternatives can take exponential time. So patterns
are not checked, and the number of checks is limited. The server that sent the schema checks the values again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

MOST_CHECKS = 20_000
UNBOUNDED_KEYWORDS = frozenset(
    ("pattern", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames")
)
"""Keywords whose checks can run regular expressions."""


class TooComplex(Exception):
    """The schema needs more checks than are allowed."""


def iter_schema_errors(schema: Mapping[str, Any], value: object) -> Iterator[tuple[str, str]]:
    """Yield the location and message of each error in a value.

    Raise TooComplex if the schema needs too many checks, and Unresolvable if a reference in it cannot be resolved.
    """
    # Imported here for start-up time: the import takes longer than starting most runs.
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend, validator_for
    from referencing import Registry

    base = validator_for(schema, default=Draft202012Validator)
    checks = 0

    def count_checks(check: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            nonlocal checks
            checks += 1
            if checks > MOST_CHECKS:
                raise TooComplex
            return check(*arguments)

        return counted

    def skip(*arguments: Any) -> None:
        """Report no errors."""

    def check_additional(validator: Any, allowed: Any, instance: Any, inner: Mapping[str, Any]) -> Any:
        return (
            None
            if "patternProperties" in inner
            else base.VALIDATORS["additionalProperties"](validator, allowed, instance, inner)
        )

    bounded = {
        keyword: skip if keyword in UNBOUNDED_KEYWORDS else count_checks(check)
        for keyword, check in base.VALIDATORS.items()
    }
    bounded["additionalProperties"] = count_checks(check_additional)
    # With an empty registry, a schema cannot cause another schema to be fetched from the network.
    validator = extend(base, bounded)(schema, registry=Registry())  # type: ignore[no-untyped-call]
    try:
        for error in validator.iter_errors(value):
            yield ".".join(str(part) for part in error.absolute_path), error.message
    except RecursionError:
        raise TooComplex from None
