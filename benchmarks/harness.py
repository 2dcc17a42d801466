"""The measuring harness: the programs that are compared take turns, each in one long-lived process.

Rounds are interleaved and their order rotates, so that other load on the machine affects all alike.
A figure is the median of its rounds, shown with its quartiles; a ratio always compares figures from one run.
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
"""Seconds after which a slow program is not measured in further rounds."""

WITHOUT_TELEMETRY = {
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "DO_NOT_TRACK": "1",
}


class BenchmarkFailed(Exception):
    """A benchmark could not be carried out."""


class Sample(Struct, frozen=True, kw_only=True):
    """One measurement: wall clock and processor seconds, bytes, and failed calls."""

    wall: float = 0.0
    cpu: float = 0.0
    memory: float = 0.0
    failed: float = 0


class Spread(Struct, frozen=True, kw_only=True):
    """Several samples of one figure: the median and the quartiles."""

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
    """The context of a row: how much to measure, which peers to compare with, and a folder for its files.

    `peers` has the interpreters of the peers' environments; `missing` lists those that could not be created.
    """

    is_quick: bool
    folder: Path
    peers: Mapping[str, Path] = field(default_factory=dict)
    missing: Sequence[str] = ()

    def scale_count(self, count: int, *, quick: int) -> int:
        """Return the count, or the small one if the only question is whether everything works."""
        return quick if self.is_quick else count


Take = Callable[[], Sample]


def interleave_samples(contestants: Mapping[str, Take], *, rounds: int) -> dict[str, list[Sample]]:
    """Return the samples of each program, taken in turns. A peer that fails is left out; the others continue."""
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
    """A process that returns samples on request."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], errors: BinaryIO) -> None:
        self.name = name
        self._process = process
        self._errors = errors
        self._read_answer()  # the line that says it is ready

    def ask(self, job: str, **request: Any) -> Sample:
        """Request one sample of this job."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode({"job": job, **request}) + b"\n")
        self._process.stdin.flush()
        answer = msgspec.json.decode(self._read_answer())
        if "trouble" in answer:
            raise BenchmarkFailed(f"{self.name} could not do the job {job}:\n{answer['trouble']}")
        return msgspec.convert(answer, Sample)

    def read_errors(self) -> str:
        """Return what the process wrote to its standard error."""
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
    """Start a module of the benchmarks as a process that returns samples, with a peer's interpreter if one is given."""
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
    """Start a model server that answers every call with the same reply, and yield its address.

    `log` is a file that records the time of each call.
    """
    options = ["--says", REPLY, "--pieces", str(PIECES), "--latency", str(latency)]
    options += [] if log is None else ["--log", str(log)]
    with start_model("podium.testing.model_server", *options) as url:
        yield url


@contextmanager
def start_model(module: str, *arguments: str) -> Iterator[str]:
    """Start a module that serves a model, and yield the address that it prints."""
    with start_process([sys.executable, "-m", module, *arguments]) as process:
        assert process.stdout is not None
        said = process.stdout.readline().decode()
        if not said.startswith("listening on "):
            raise BenchmarkFailed(f"the model server did not start: {said}")
        yield said.removeprefix("listening on ").strip()


@contextmanager
def start_process(
    argv: Sequence[str], *, environ: Mapping[str, str] | None = None, **pipes: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process in its own group, which is ended with the block; `environ` is added to our environment."""
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
    """In a new process: ask to be killed when the parent ends, for whatever reason. Only Linux can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # the parent ended before the request


_PR_SET_PDEATHSIG = 1
