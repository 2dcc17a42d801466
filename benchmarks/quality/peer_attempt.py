"""Attempts with other packages (peers) at the same tasks, with the same model and server, each in its own process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

from ..harness import ROOT, WITHOUT_TELEMETRY
from ..quality_scenario import EDITS, ROUTES
from .attempt import Outcome
from .lab import ATTEMPT_SECONDS, Lab

PEERS = {"openai-agents": "openai_agents_quality", "smolagents": "smolagents_quality"}
"""The peers and their modules in `benchmarks.peers`."""
PEER_TRIES = 5
PEER_TASKS = ("route", "edit")


class ModelAddress(NamedTuple):
    """Where a peer finds the model."""

    url: str
    key: str
    model: str

    def as_variables(self) -> dict[str, str]:
        """Return the environment variables that the peers' programs read."""
        return {"QUALITY_URL": self.url, "QUALITY_KEY": self.key, "QUALITY_MODEL": self.model}


def attempt_with_peer(lab: Lab, *, peer: str, python: Path, task: str, number: int, server: ModelAddress) -> Outcome:
    """Let a peer make one attempt. An exit without an error counts as a reported success."""
    one = EDITS[number % len(EDITS)]
    text, expected = ROUTES[number % len(ROUTES)]
    lab.write_files({one.file: one.content})
    request = text if task == "route" else one.request
    command = [str(python), "-m", f"benchmarks.peers.{PEERS[peer]}", task, request, str(lab.repo)]
    environ = {**lab.environ, **WITHOUT_TELEMETRY, **server.as_variables()}
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=ATTEMPT_SECONDS, check=False
    )
    last = (done.stderr.strip() or "no reason").splitlines()[-1]
    answer = done.stdout.strip().splitlines()[-1] if done.returncode == 0 and done.stdout.strip() else "{}"
    chosen = json.loads(answer).get("chosen", "")
    if task == "route":
        problem = "" if chosen == expected else f"{request} went to {chosen or 'nobody'}"
    else:
        content = (lab.repo / one.file).read_text()
        problem = "" if content == one.expected else f"{one.file} is {content!r}"
    return Outcome(is_reported_success=done.returncode == 0, problem=problem, reported=last)
