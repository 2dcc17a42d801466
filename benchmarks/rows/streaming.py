"""Many agents at once, each receiving 50 pieces a second, on one core; against the raw client doing the same."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ..harness import OURS, Bench, BenchmarkFailed, Child, Sample, interleave_samples, start_process
from ..result_line import Line, make_line, max_ratio
from .contest import start_contestants

ROUNDS = 5
WATCHED_ROUNDS = 3
AGENTS = 100
PIECES = 250
PACE = 0.02

FIGURES = (("seen", 0.5), ("seen", 0.95), ("on the timeline", 0.5), ("on the timeline", 0.95))
"""What happens to a piece, and the share of all pieces for which it has happened by the measured time."""

Late = dict[tuple[str, float], dict[str, list[Sample]]]


def lines(bench: Bench) -> Iterator[Line]:
    """Measure the processor time for all of it, and how old the pieces are when they are received."""
    agents, pieces = bench.scale_count(AGENTS, quick=10), bench.scale_count(PIECES, quick=10)
    what = f"{agents} agents streaming"
    with start_stamping_model(pieces) as url, start_contestants(bench, "streaming") as children:
        request = {"url": url, "agents": agents, "pieces": pieces}
        asked = {name: partial(one.ask, "stream", **request) for name, one in children.items()}
        taken = interleave_samples(asked, rounds=bench.scale_count(ROUNDS, quick=2))
        late = measure_lateness(children, request, rounds=bench.scale_count(WATCHED_ROUNDS, quick=1))
    yield make_line(
        bench,
        taken,
        row="streaming",
        what=f"{what}: processor",
        measure="cpu",
        goals=[max_ratio(2)],
        has_peers=True,
    )
    for (of, share), samples in late.items():
        yield make_line(bench, samples, row="streaming", what=f"{what}: {share:.0%} {of}", has_peers=of == "seen")


def measure_lateness(children: dict[str, Child], request: dict[str, Any], *, rounds: int) -> Late:
    """Measure how late the pieces are. Only Podium has a timeline."""
    late: Late = {figure: {} for figure in FIGURES}

    def take(name: str) -> Sample:
        sample = children[name].ask("watch", **request)
        for (of, share), samples in late.items():
            if of == "seen" or name == OURS:
                sent = request["agents"] * request["pieces"]
                samples.setdefault(name, []).append(children[name].ask("late", of=of, share=share, sent=sent))
        return sample

    interleave_samples({name: partial(take, name) for name in children}, rounds=rounds)
    return late


@contextmanager
def start_stamping_model(pieces: int) -> Iterator[str]:
    """Start a model server that stamps each piece with its sending time, and yield its address."""
    argv = [sys.executable, "-m", "benchmarks.children.stamping_model", str(pieces), str(PACE)]
    with start_process(argv) as process:
        assert process.stdout is not None
        said = process.stdout.readline().decode()
        if not said.startswith("listening on "):
            raise BenchmarkFailed(f"the model did not start: {said}")
        yield said.removeprefix("listening on ").strip()
