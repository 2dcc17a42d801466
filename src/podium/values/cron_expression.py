"""Parse cron expressions, and find the times when they trigger in a time zone.

An expression has the five fields minute, hour, day of month, month and day of week. If both day fields are restricted,
a day has to match only one of them. Times are local times in the zone. If daylight saving time skips a matching time,
the expression triggers later by the length of the gap. If a matching time occurs twice, the expression triggers only
the first time, unless it matches every hour.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from functools import lru_cache

from .errors import Mistake

SHORTCUTS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MOST_DAYS = 8 * 366
"""How many days to look ahead: eight years, which is the longest time between two leap days."""
LONGEST_EXPRESSION = 200


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    first: int
    last: int
    words: tuple[str, ...] = ()


FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, MONTHS),
    _Field("day of week", 0, 7, WEEKDAYS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CronExpression:
    """A parsed expression. Sunday is 0. `is_either_day` is true if both day fields are restricted."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    is_either_day: bool

    @classmethod
    @lru_cache(maxsize=16)
    def parse(cls, text: str) -> CronExpression:
        """Parse an expression such as `0 9 * * 1-5` or `@daily`. Raise Mistake if it is invalid or never triggers."""
        words = SHORTCUTS.get(text.strip().lower(), text).split()
        if len(words) != len(FIELDS) or len(text) > LONGEST_EXPRESSION:
            raise Mistake(
                f"{text[:60]!r} is not a cron expression; expected five fields (minute hour day month weekday), "
                f"such as '0 9 * * 1-5', or one of {', '.join(SHORTCUTS)}"
            )
        minutes, hours, days, months, weekdays = map(_parse_field, words, FIELDS)
        expression = cls(
            minutes=minutes,
            hours=hours,
            days=days,
            months=months,
            weekdays=frozenset(number % 7 for number in weekdays),
            is_either_day=not words[2].startswith("*") and not words[4].startswith("*"),
        )
        leap = date(2000, 1, 1)
        if not any(expression._matches_day(leap + timedelta(days=number)) for number in range(366)):
            raise Mistake(f"{text!r} never triggers: the given days do not exist in the given months")
        return expression

    def find_next(self, after: float, zone: tzinfo) -> float:
        """Return the next time after `after` when the expression triggers, in seconds since the epoch."""
        day = datetime.fromtimestamp(after, zone).date()
        for number in range(MOST_DAYS):
            then = day + timedelta(days=number)
            if self._matches_day(then):
                times = _list_times(self, then, zone)
                place = bisect_right(times, after)
                if place < len(times):
                    return times[place]
        raise AssertionError("no next time was found for a valid cron expression")

    def _matches_day(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        is_day, is_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return is_day or is_weekday if self.is_either_day else is_day and is_weekday


@lru_cache(maxsize=16)
def _list_times(expression: CronExpression, day: date, zone: tzinfo) -> list[float]:
    """Return the times when the expression triggers on a matching day, in order."""
    folds = (0, 1) if len(expression.hours) == 24 else (0,)
    found = {
        datetime.combine(day, time(hour, minute, fold=fold), zone).timestamp()
        for hour in expression.hours
        for minute in expression.minutes
        for fold in folds
    }
    return sorted(found)


def _parse_field(text: str, field: _Field) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        range_text, slash, step_text = part.partition("/")
        step = _parse_number(step_text, 1, field.last, field, part) if slash else 1
        if range_text == "*":
            first, last = field.first, field.last
        else:
            start, dash, end = range_text.partition("-")
            first = _parse_number(start, field.first, field.last, field, part)
            last = _parse_number(end, field.first, field.last, field, part) if dash else field.last if slash else first
        if last < first:
            raise Mistake(f"{part[:30]!r} in the field {field.name} ends before it starts; put the smaller value first")
        found.update(range(first, last + 1, step))
    return frozenset(found)


def _parse_number(text: str, least: int, most: int, field: _Field, part: str) -> int:
    if text.lower() in field.words:
        return field.words.index(text.lower()) + field.first
    if text.isascii() and text.isdecimal() and len(text) <= 2 and least <= int(text) <= most:
        return int(text)
    raise Mistake(f"{part[:30]!r} is not valid in the field {field.name}; expected numbers from {least} to {most}")
