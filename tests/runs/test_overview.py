from __future__ import annotations

from podium.runs.queries.overview import ACTIVITY_PARTS, count_activity


def test_activity_is_counted_in_parts_of_the_last_three_minutes_oldest_first() -> None:
    counts = count_activity([800.0, 821.0, 985.5, 999.0, 1000.0, 1001.0], now=1000.0)

    assert len(counts) == ACTIVITY_PARTS
    assert counts[0] == 1
    assert counts[-1] == 3
    assert sum(counts) == 4
