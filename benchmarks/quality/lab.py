"""A folder for each attempt, with a repository and a home for Podium, and the model that all attempts use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from anyio import fail_after

from podium import Agent, App, Result, Settings
from podium.runs.run_options import RunOptions
from podium.values.agent import Permissions
from podium.values.event import Event

ATTEMPT_SECONDS = 900.0
"""How long an attempt may take. A local model on a busy machine is slow."""

COMMAND_IDENTITY = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_{what}": "podium" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A run that has ended: its result, and its timeline."""

    result: Result
    events: Sequence[Event]

    def select(self, kind: type[E]) -> list[E]:
        """Return the events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """The folder of one attempt, with its model. `environ` are the variables with which the model is found."""

    folder: Path
    model: str
    environ: Mapping[str, str]

    @property
    def repo(self) -> Path:
        return self.folder / "repo"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def write_files(self, files: Mapping[str, str]) -> None:
        """Write files to the repository."""
        self.repo.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            path = self.repo / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)

    def commit_files(self) -> None:
        """Make the repository a git repository with one commit."""
        for words in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "-m", "Start")):
            self.call("git", *words)

    async def run(self, agent: Agent, request: str, *others: Agent, has_repo: bool = False) -> Observed:
        """Run an agent, and the others that it needs, in this process; with `has_repo`, in the repository."""
        rules = Permissions(allow=("Edit",))
        settings = Settings.load(self.environ, home=self.home, model=self.model, permissions=rules)
        options: RunOptions = {"agents": others, "repo": self.repo} if has_repo else {"agents": others}
        with fail_after(ATTEMPT_SECONDS):
            async with App(settings, environ=self.environ) as app, app.start(agent, request, **options) as run:
                events = [entry.event async for entry in run.entries()]
                result = await run.result()
        return Observed(result=result, events=events)

    def call_podium(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Call the command line in the repository."""
        return self.call(sys.executable, "-m", "podium", *arguments)

    def call(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the repository."""
        environ = {**self.environ, **COMMAND_IDENTITY, "PODIUM_HOME": str(self.home), "PODIUM_MODEL": self.model}
        return subprocess.run(
            command, cwd=self.repo, env=environ, capture_output=True, text=True, timeout=ATTEMPT_SECONDS, check=False
        )
