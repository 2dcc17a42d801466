"""The dashboard's server: opening a long run, from append to the client, and a run with 50 viewers against none."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from podium.web.api.access_tokens import SCOPES, TokenFile

from ..harness import (
    LIMIT,
    OURS,
    Bench,
    BenchmarkFailed,
    Child,
    Sample,
    interleave_samples,
    start_child,
    start_process,
)
from ..result_line import MILLISECONDS, Goal, Line, make_line, max_ratio

ROUNDS = 7
EVENTS = 10_000
VIEWERS = 50


def lines(bench: Bench) -> Iterator[Line]:
    """Measure the server from a client's side, and what viewers cost the run that they watch."""
    home = bench.folder / "dashboard"
    with ExitStack() as stack:
        signed_in = stack.enter_context(start_dashboard(home))
        child = stack.enter_context(start_child("children.podium_viewing", name="podium"))
        store = str(home / "podium.db")
        rounds = bench.scale_count(ROUNDS, quick=2)
        events = bench.scale_count(EVENTS, quick=500)
        child.ask("prepare", store=store, events=events, **signed_in)

        opening = {OURS: partial(child.ask, "open_run"), LIMIT: partial(child.ask, "read_rows")}
        taken = interleave_samples(opening, rounds=rounds)
        goals = [Goal("figure", 1000)]
        yield make_line(bench, taken, row="dashboard", what=f"entries of a run with {events:,}", goals=goals)

        per_second = bench.scale_count(1000, quick=200)
        seconds = bench.scale_count(3, quick=1)
        rate = {"per_second": per_second, "seconds": seconds}
        following = {
            OURS: partial(child.ask, "follow_run", **rate),
            LIMIT: partial(child.ask, "follow_store", **rate),
        }
        taken = interleave_samples(following, rounds=rounds)
        what = f"append to client at {per_second:,} a second: 50%"
        yield make_line(bench, taken, row="dashboard", what=what, unit=MILLISECONDS, goals=[Goal("figure", 100)])

        viewers = bench.scale_count(VIEWERS, quick=5)
        audience = stack.enter_context(start_child("children.podium_viewing", name="viewers"))
        audience.ask("prepare", store=store, events=0, **signed_in)
        watched = {
            OURS: partial(write_watched, child, audience, viewers, events=seconds * per_second, per_second=per_second),
            LIMIT: partial(child.ask, "write_run", events=seconds * per_second, per_second=per_second),
        }
        taken = interleave_samples(watched, rounds=rounds)
        what = f"run with {per_second:,} entries a second and {viewers} viewers"
        yield make_line(bench, taken, row="dashboard", what=what, goals=[max_ratio(1.1)])


def write_watched(writer: Child, audience: Child, viewers: int, **rate: int) -> Sample:
    """Append entries to a run while clients in another process follow everything."""
    audience.ask("watch", viewers=viewers)
    try:
        return writer.ask("write_run", **rate)
    finally:
        audience.ask("leave")


@contextmanager
def start_dashboard(home: Path) -> Iterator[dict[str, str]]:
    """Start `podium serve`, and yield its address and a token."""
    argv = [sys.executable, "-m", "podium", "serve", "--port", "0", "--json"]
    secret, _ = TokenFile(home).create_token("benchmark", SCOPES)
    with start_process(argv, environ={"PODIUM_HOME": str(home)}) as process:
        assert process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            line = process.stdout.readline().decode()
            if not line:
                raise BenchmarkFailed(f"podium serve did not start: {text}")
            text += line
        yield {"address": json.loads(text)["address"], "token": secret}
