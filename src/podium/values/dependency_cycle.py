"""Find a cycle among items that depend on each other, such as plan steps or branches."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def find_cycle(dependencies: Mapping[str, Collection[str]]) -> list[str]:
    """Return a cycle in which each item depends on the next, or an empty list if there is none.

    The first item is repeated at the end. Dependencies on items that are not in the mapping are ignored.
    """
    waiting = dict(dependencies)
    while ready := [item for item, before in waiting.items() if waiting.keys().isdisjoint(before)]:
        for item in ready:
            del waiting[item]
    if not waiting:
        return []
    way = [next(iter(waiting))]
    while (following := next(one for one in waiting[way[-1]] if one in waiting)) not in way:
        way.append(following)
    return [*way[way.index(following) :], following]
