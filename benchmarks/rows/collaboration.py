"""What a collaborating team adds to the bare calls: time for each step of its plan, with few and with many steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from ..harness import LIMIT, OURS, Bench, interleave_samples, start_child, start_model
from ..result_line import Line, Unit, make_line

TIMES = 7
STEPS = (2, 5, 10, 20)
FEW_STEPS = (2, 4)


def lines(bench: Bench) -> Iterator[Line]:
    """If the cost is linear in the number of steps, the time for a step does not depend on it."""
    with ExitStack() as stack:
        url = stack.enter_context(start_model("benchmarks.children.collaborating_model"))
        children = {
            OURS: stack.enter_context(start_child("children.podium_collaboration", name="podium")),
            LIMIT: stack.enter_context(start_child("children.raw_collaboration", name="raw aiohttp")),
        }
        for one in children.values():
            one.ask("collaborate", url=url, steps=1)  # load what is only loaded once
        for steps in FEW_STEPS if bench.is_quick else STEPS:
            asked = {name: partial(one.ask, "collaborate", url=url, steps=steps) for name, one in children.items()}
            taken = interleave_samples(asked, rounds=bench.scale_count(TIMES, quick=1))
            unit = Unit("ms", 1e3 / steps)
            yield make_line(bench, taken, row="collaboration", what=f"{steps} steps: time for a step", unit=unit)
