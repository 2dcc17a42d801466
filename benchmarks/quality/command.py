"""`python -m benchmarks quality`: let a model try tasks, and count successes, reported failures and false successes."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from msgspec import to_builtins

from podium.engines.local.engine_process import LocalEngine
from podium.engines.local.model_folder import choose_default_model, find_models_folder
from podium.engines.model.providers import LOCAL, parse_model, resolve_base_url

from ..harness import ROOT
from ..machine_info import describe_machine, read_load_averages
from ..peers.environment import ensure_interpreter, read_pinned_versions
from .attempt import Attempt, Outcome, Score, count_attempts
from .lab import Lab
from .peer_attempt import PEER_TASKS, PEER_TRIES, PEERS, ModelAddress, attempt_with_peer
from .tasks import TASKS

OURS = "podium"
LATEST = ROOT / "benchmarks" / "results" / "quality.json"
GOALS = {"route": 9, "plan": 9, "edit": 9, "delegate_and_merge": 9}
"""How many of ten attempts at a task should succeed."""


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark. Return 1 if Podium reported a false success, 2 if there is no model, and 0 otherwise."""
    options = _parse_options(arguments)
    environ = dict(os.environ)
    models = find_models_folder(environ)
    model = options.model or _find_default_model()
    if not model:
        print("no local model is installed; add one with podium models add, or use --model", file=sys.stderr)
        return 2
    environ["PODIUM_MODELS"] = str(models.root)
    about = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "model": model, "load before": read_load_averages()}
    plan = Plan(model=model, environ=environ, tasks=options.only or list(TASKS), tries=options.tries)
    attempts = list(plan.attempt_tasks())
    if options.peers:
        attempts += plan.attempt_with_peers()
    scores = count_attempts(attempts)
    print(format_scores(scores))
    document = about | {
        "load after": read_load_averages(),
        **describe_machine(),
        "peers": {name: read_pinned_versions(name) for name in PEERS} if options.peers else {},
        "scores": to_builtins(scores),
        "attempts": to_builtins(attempts),
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    print(f"written to {options.json}", file=sys.stderr)
    return 1 if any(score.false_success for score in scores if score.program == OURS) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which tasks are tried, how often, and with which model. Without `tries`, each task has its own number."""

    model: str
    environ: dict[str, str]
    tasks: Sequence[str]
    tries: int | None = None

    def attempt_tasks(self) -> Iterator[Attempt]:
        """Try each task with Podium, and yield the attempts."""
        for name in self.tasks:
            for number in range(self.tries or TASKS[name].tries):
                yield self._attempt(name, OURS, number, partial(_attempt_with_podium, name, number))

    def attempt_with_peers(self) -> Iterator[Attempt]:
        """Let each peer that can be installed try the tasks that peers can do, and yield the attempts."""
        server = _find_server(self.model, self.environ)
        for peer in PEERS:
            if (python := ensure_interpreter(peer)) is None:
                continue
            for task in (task for task in PEER_TASKS if task in self.tasks):
                for number in range(min(self.tries or PEER_TRIES, PEER_TRIES)):
                    attempt = partial(
                        attempt_with_peer, peer=peer, python=python, task=task, number=number, server=server
                    )
                    yield self._attempt(task, peer, number, attempt)

    def _attempt(self, task: str, program: str, number: int, attempt: Callable[[Lab], Outcome]) -> Attempt:
        begin = time.monotonic()
        with TemporaryDirectory(prefix="podium-quality-", ignore_cleanup_errors=True) as folder:
            try:
                outcome = attempt(Lab(folder=Path(folder), model=self.model, environ=self.environ))
            except (TimeoutError, subprocess.TimeoutExpired):
                outcome = Outcome(is_reported_success=False, problem="", reported="timed out")
        seconds = time.monotonic() - begin
        print(f"{task} {number + 1} {program}: {outcome.verdict} in {seconds:.0f} s {outcome.detail}", file=sys.stderr)
        return Attempt(task=task, program=program, verdict=outcome.verdict, seconds=seconds, detail=outcome.detail)


def _attempt_with_podium(task: str, number: int, lab: Lab) -> Outcome:
    return anyio.run(partial(TASKS[task].attempt, lab, number))


def format_scores(scores: Sequence[Score]) -> str:
    """Return the scores as a table."""
    rows = [("task", "program", "success", "honest failure", "FALSE SUCCESS", "median", "goal")]
    for score in scores:
        goal = GOALS.get(score.task) if score.program == OURS and score.tries >= 10 else None
        is_met = "" if goal is None else "met" if score.success * 10 >= goal * score.tries else f"not met: {goal} of 10"
        rows.append(
            (
                score.task,
                score.program,
                f"{score.success} of {score.tries}",
                str(score.honest_failure),
                str(score.false_success),
                f"{score.median_seconds:.0f} s",
                is_met,
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _find_default_model() -> str:
    model = choose_default_model(find_models_folder(os.environ).load_models())
    return "" if model is None else f"{LOCAL}:{model.name}"


def _find_server(model: str, environ: dict[str, str]) -> ModelAddress:
    """Return where other packages find a model."""
    provider, name = parse_model(model)
    if provider.name == LOCAL:
        engine = LocalEngine(folder=find_models_folder(environ), name=name, environ=environ)
        state = anyio.run(engine.ensure_running)
        return ModelAddress(state.url, state.token, name)
    return ModelAddress(resolve_base_url(provider, environ), environ.get(provider.key_name or "", "none"), name)


def _parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks quality", description=__doc__)
    parser.add_argument("--model", help="e.g. local:qwen2.5-coder-1.5b; by default the installed local model")
    parser.add_argument("--only", action="append", choices=TASKS, metavar="TASK", help="only this task; repeatable")
    parser.add_argument("--tries", type=int, metavar="N", help="attempts at each task, instead of 10 or 3")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="also try other packages")
    parser.add_argument("--json", type=Path, default=LATEST, metavar="FILE", help="results (default: %(default)s)")
    return parser.parse_args(arguments)
