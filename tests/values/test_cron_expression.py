"""Cron expressions: which times they name, clock changes, and what is refused."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from podium.values.cron_expression import CronExpression
from podium.values.errors import Mistake

BERLIN = ZoneInfo("Europe/Berlin")


def list_times(text: str, start: str, count: int = 3, zone: ZoneInfo = BERLIN) -> list[str]:
    """Return the next times after `start`, with their offset from UTC in hours."""
    at, found = datetime.fromisoformat(start).replace(tzinfo=zone).timestamp(), []
    for _ in range(count):
        at = CronExpression.parse(text).find_next(at, zone)
        found.append(f"{datetime.fromtimestamp(at, zone):%m-%d %H:%M%z}"[:-2])
    return found


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        ("0 9 * * 1-5", "2026-11-20 09:00", ["11-23 09:00+01", "11-24 09:00+01", "11-25 09:00+01"]),
        ("*/20 8-9 * * *", "2026-01-01 08:30", ["01-01 08:40+01", "01-01 09:00+01", "01-01 09:20+01"]),
        ("0 0 1,15 jan *", "2026-01-02 00:00", ["01-15 00:00+01", "01-01 00:00+01", "01-15 00:00+01"]),
        ("0 12 13 * fri", "2026-02-01 00:00", ["02-06 12:00+01", "02-13 12:00+01", "02-20 12:00+01"]),
        ("0 6 * * 7", "2026-01-01 00:00", ["01-04 06:00+01", "01-11 06:00+01", "01-18 06:00+01"]),
        ("5/20 0 * * *", "2026-01-01 00:00", ["01-01 00:05+01", "01-01 00:25+01", "01-01 00:45+01"]),
        ("@weekly", "2026-01-01 00:00", ["01-04 00:00+01", "01-11 00:00+01", "01-18 00:00+01"]),
        ("0 0 29 2 *", "2026-01-01 00:00", ["02-29 00:00+01", "02-29 00:00+01", "02-29 00:00+01"]),
    ],
)
def test_the_next_times_are_found(text: str, start: str, expected: list[str]) -> None:
    assert list_times(text, start) == expected


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        # On 29 March 2026, the clock goes from 02:00 to 03:00.
        ("30 2 * * *", "2026-03-28 03:00", ["03-29 03:30+02", "03-30 02:30+02", "03-31 02:30+02"]),
        ("0 * * * *", "2026-03-29 00:30", ["03-29 01:00+01", "03-29 03:00+02", "03-29 04:00+02"]),
        # On 25 October 2026, the clock goes from 03:00 back to 02:00.
        ("30 2 * * *", "2026-10-24 03:00", ["10-25 02:30+02", "10-26 02:30+01", "10-27 02:30+01"]),
        ("30 * * * *", "2026-10-25 01:45", ["10-25 02:30+02", "10-25 02:30+01", "10-25 03:30+01"]),
    ],
)
def test_no_time_is_lost_or_doubled_when_the_clock_changes(text: str, start: str, expected: list[str]) -> None:
    assert list_times(text, start) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a cron expression; expected five fields"),
        ("0 9 * *", "is not a cron expression; expected five fields"),
        ("@often", "or one of @hourly"),
        ("60 9 * * *", "'60' is not valid in the field minute; expected numbers from 0 to 59"),
        ("0 9 * * 5-1", "'5-1' in the field day of week ends before it starts"),
        ("*/0 9 * * *", "not valid in the field minute"),
        ("0 9 1;rm * *", "'1;rm' is not valid in the field day of month"),
        ("0 ٣ * * *", "not valid in the field hour"),
        ("0 0 30 2 *", "never triggers"),
    ],
)
def test_an_invalid_expression_is_explained(text: str, why: str) -> None:
    with pytest.raises(Mistake, match=why):
        CronExpression.parse(text)
