from __future__ import annotations

import pytest

from podium.values.fleet_job import are_compatible


@pytest.mark.parametrize(
    ("one", "other", "is_compatible"),
    [
        ("0.1.0", "0.1.7", True),
        ("0.1.0", "0.2.0", False),
        ("0.1.0", "0.10.0", False),
        ("0.9.0", "1.0.0", False),
        ("1.0.0", "1.4.2", True),
        ("1.0.0", "10.0.0", False),
        ("1.0.0rc1", "1.0.0", True),
        ("", "1.0.0", True),
        ("unknown", "1.0.0", False),
    ],
)
def test_releases_are_compatible_within_a_series(one: str, other: str, is_compatible: bool) -> None:
    assert are_compatible(one, other) is are_compatible(other, one) is is_compatible
