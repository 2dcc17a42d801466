"""Helpers for attack tests: an agent that follows a script, rules for it, and a person who answers its requests."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
from msgspec import structs

from podium import Result, Run
from podium.policy import Mode
from podium.testing import Move, calls
from podium.values.agent import Permissions
from podium.values.event import Decision, PermissionAnswered, PermissionAsked
from podium.workspace.sandbox.bubblewrap import Sandbox

from ..studio import Studio
from ..workspace.sandboxed import CommandResult, Place, run_in_sandbox

TOOLS = ("Read", "Write", "Edit", "Grep", "Glob", "git_diff", "Bash", "run_checks", "web_fetch", "ask_person")
Answering = Callable[[Run, PermissionAsked], Any]


call = calls


def bash(command: str, **more: Any) -> Move:
    return call("bash", command=command, **more)


def write(path: str, content: str = "x\n") -> Move:
    return call("write_file", path=path, content=content)


def set_rules(studio: Studio, *, mode: Mode = "default", **rules: Sequence[str]) -> None:
    """Set these rules for the studio."""
    permissions = Permissions(**{kind: tuple(texts) for kind, texts in rules.items()})
    studio.settings = structs.replace(studio.settings, permissions=permissions, permission_mode=mode)


def add_sly_agent(studio: Studio, *moves: Any, **keys: Any) -> None:
    """Add an agent that follows these script steps and then says that it is done."""
    studio.agent("sly", says=[*moves, "done"], **({"tools": TOOLS} | keys))


async def run_sly_agent(studio: Studio, repo: Path, **options: Any) -> Result:
    """Run the sly agent with nobody there to answer requests."""
    async with studio.app() as app:
        return await app.run(studio.agents["sly"], "go", repo=repo, agents=studio.agents.values(), **options)


async def run_attended(studio: Studio, repo: Path, answering: Answering) -> Result:
    """Run the sly agent with somebody who answers every request."""
    async with studio.app() as app:
        opening = app.start(studio.agents["sly"], "go", repo=repo, agents=studio.agents.values(), is_attended=True)
        async with opening as started:
            async with anyio.create_task_group() as group:
                group.start_soon(answer_requests, started, answering)
            return await started.result()


async def answer_requests(started: Run, answering: Answering) -> None:
    with started.entries() as entries:
        async for entry in entries:
            if isinstance(entry.event, PermissionAsked):
                await answering(started, entry.event)


def answer_with(decision: Decision, comment: str = "") -> Answering:
    async def answering(run: Run, asked: PermissionAsked) -> None:
        await run.answer(asked.id, decision, by="me", comment=comment)

    return answering


def answer_in_order(*decisions: Decision) -> Answering:
    """Make a responder that gives these answers, one after the other."""
    left = list(decisions)

    async def answering(run: Run, asked: PermissionAsked) -> None:
        await run.answer(asked.id, left.pop(0), by="me")

    return answering


def list_allowed_answers(studio: Studio, result: Result) -> list[PermissionAnswered]:
    """Return the answers that allow the action."""
    return [event for event in studio.events(result, PermissionAnswered) if event.is_allowed]


class SharedSandboxPlace(Place):
    """A place where several commands share one sandbox, as the commands of one run do."""

    def run_in_turn(self, *scripts: str, **options: Any) -> list[str]:
        async def find_and_run() -> CommandResult:
            sandbox = await Sandbox.find(self.repo, **{"home": self.home, **options})
            try:
                told = [(await run_in_sandbox(sandbox, ["/bin/bash", "-c", script])).text for script in scripts]
            finally:
                sandbox.remove_placeholders()
            return CommandResult(0, "\0".join(told))

        is_me = self.who == "root" or os.geteuid() != 0
        done = anyio.run(find_and_run) if is_me else self._run_as_user(find_and_run)
        assert done.code == 0, done.text
        return done.text.split("\0")
