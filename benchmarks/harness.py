"""Measuring: what is compared takes turns, in processes that live through all of it.

Rounds are interleaved and their order rotates, so that whatever else the machine does meets all alike.
A figure is the median of its rounds, with the quartiles beside it; a ratio is always of one run.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

ROOT = Path(__file__).parent.parent

OURS = "ours"
LIMIT = "limit"

REPLY = "The sea keeps no records and forgives no debts, and still the boats go out each morning. " * 4
PIECES = 20

MAX_SAMPLE_SECONDS = 240.0
MAX_EXIT_SECONDS = 10.0
MAX_CONTESTANT_SECONDS = 60.0
"""Seconds after which somebody slow is measured in no further round."""

WITHOUT_TELEMETRY = {
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "DO_NOT_TRACK": "1",
}


class BenchmarkFailed(Exception):
    """A benchmark could not be carried out."""


class Sample(Struct, frozen=True, kw_only=True):
    """One measurement: seconds by the wall and of the processor, bytes, and calls that failed."""

    wall: float = 0.0
    cpu: float = 0.0
    memory: float = 0.0
    failed: float = 0


class Spread(Struct, frozen=True, kw_only=True):
    """Several samples of one figure: the middle, and between what half of them lie."""

    median: float
    low: float
    high: float
    samples: int

    @classmethod
    def from_values(cls, values: Sequence[float]) -> Spread:
        low, _, high = statistics.quantiles(values, method="inclusive") if len(values) > 1 else (values[0],) * 3
        return cls(median=statistics.median(values), low=low, high=high, samples=len(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a row is given: how much to measure, whom to compare with, and a folder for what it needs.

    `peers` are the interpreters of the peers' environments; those that could not be made are `missing`.
    """

    is_quick: bool
    folder: Path
    peers: Mapping[str, Path] = field(default_factory=dict)
    missing: Sequence[str] = ()

    def scale_count(self, count: int, *, quick: int) -> int:
        """A count, or the small one where it only matters that everything works."""
        return quick if self.is_quick else count


Take = Callable[[], Sample]


def interleave_samples(contestants: Mapping[str, Take], *, rounds: int) -> dict[str, list[Sample]]:
    """The samples of each, taken in turns. A peer that breaks is left out; the others are measured all the same."""
    names = list(contestants)
    taken: dict[str, list[Sample]] = {name: [] for name in names}
    spent = dict.fromkeys(names, 0.0)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            if name not in taken or spent[name] > MAX_CONTESTANT_SECONDS:
                continue
            begin = monotonic()
            try:
                taken[name].append(contestants[name]())
            except BenchmarkFailed as error:
                if name in (OURS, LIMIT):
                    raise
                sys.stderr.write(f"{error}\n")
                del taken[name]
            spent[name] += monotonic() - begin
    return taken


# Processes


class Child:
    """A process that is asked for samples."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], errors: BinaryIO) -> None:
        self.name = name
        self._process = process
        self._errors = errors
        self._read_answer()  # that it is ready

    def ask(self, job: str, **request: Any) -> Sample:
        """One sample of this job."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode({"job": job, **request}) + b"\n")
        self._process.stdin.flush()
        answer = msgspec.json.decode(self._read_answer())
        if "trouble" in answer:
            raise BenchmarkFailed(f"{self.name} could not do the job {job}:\n{answer['trouble']}")
        return msgspec.convert(answer, Sample)

    def read_errors(self) -> str:
        """What it wrote to its standard error."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def _read_answer(self) -> bytes:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._process.stdout, selectors.EVENT_READ)
            if not waiting.select(MAX_SAMPLE_SECONDS):
                raise BenchmarkFailed(
                    f"{self.name} took more than {MAX_SAMPLE_SECONDS:g} s for one sample\n{self.read_errors()}"
                )
        line = self._process.stdout.readline()
        if not line:
            raise BenchmarkFailed(f"{self.name} ended before it answered\n{self.read_errors()}")
        return line


@contextmanager
def start_child(module: str, *, name: str, python: Path | None = None) -> Iterator[Child]:
    """A module of ours as a process that can be asked, under the interpreter of a peer where one is given."""
    argv = [str(python or sys.executable), "-m", f"benchmarks.{module}"]
    with TemporaryFile() as errors, start_process(argv, stdin=subprocess.PIPE, stderr=errors) as process:
        child = Child(name, process, errors)
        yield child
        assert process.stdin is not None
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(MAX_EXIT_SECONDS)
        if said := child.read_errors():
            sys.stderr.write(f"{name}: {said}")


@contextmanager
def start_model_server(*, latency: float, log: Path | None = None) -> Iterator[str]:
    """The address of a model that answers every call with the same reply, in a process of its own.

    `log` is a file that says when each call came.
    """
    argv = [sys.executable, "-m", "podium.testing.model_server", "--says", REPLY]
    argv += ["--pieces", str(PIECES), "--latency", str(latency)]
    argv += [] if log is None else ["--log", str(log)]
    with start_process(argv) as process:
        assert process.stdout is not None
        said = process.stdout.readline().decode()
        if not said.startswith("listening on "):
            raise BenchmarkFailed(f"the model server did not start: {said}")
        yield said.removeprefix("listening on ").strip()


@contextmanager
def start_process(
    argv: Sequence[str], *, environ: Mapping[str, str] | None = None, **pipes: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, which is gone when the block is left; `environ` lies over our own."""
    process = subprocess.Popen(
        argv,
        cwd=ROOT,
        env={**os.environ, **WITHOUT_TELEMETRY, **(environ or {})},
        stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=partial(_exit_with_parent, os.getpid()),
        **pipes,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _exit_with_parent(parent: int) -> None:
    """In a new process: be killed when the one that started it is gone, however it went. Only Linux can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # it went before it was asked for


_PR_SET_PDEATHSIG = 1
