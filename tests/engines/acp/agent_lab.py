"""One coding agent behind the ACP engine, with a real store and gate, and a script that decides what it does."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from anyio import create_task_group, fail_after
from anyio.abc import TaskGroup
from msgspec import structs

import podium
from podium import Settings
from podium.core.budget import Allowance
from podium.core.engine import EngineSessionSpec, Tool
from podium.core.engine_sessions import EngineSessionTasks
from podium.core.gate import Gate
from podium.core.operation import do_nothing
from podium.core.scope import Scope
from podium.core.session import Session
from podium.core.timeline import Timeline
from podium.core.tool_rate_limit import RateLimit
from podium.engines.acp.acp_engine import AcpEngine
from podium.engines.acp.agent_home import AgentModel
from podium.engines.acp.agent_process import AgentCommand, AgentProcesses, OpenChild
from podium.engines.acp.agent_program import AGENT_PROGRAMS, AgentProgram
from podium.policy import Mode, Rules, Verdict, check
from podium.runs.assembly.agent_sandbox import choose_agent_sandbox
from podium.store.follower import Follower
from podium.store.reader import StoreReader
from podium.store.run_store import RunStore
from podium.system.process_group import ChildProcess
from podium.testing import ModelServer, read_events
from podium.values.action import Action
from podium.values.agent import Agent, Budget
from podium.values.event import Decision, PermissionAnswered, PermissionAsked
from podium.values.usage import TurnLimits

from ...installed_agents import find_goose

SOURCE = str(Path(podium.__file__).parent.parent)
SCRIPTED = AgentProgram(name="scripted", command=(sys.executable, "-m", "podium.testing.acp_agent"), mode="ask")
GOOSE = AGENT_PROGRAMS["goose"]
KEY = "sk-canary-5d21c8"
TOOLS = {
    "goose": {"write_file": "write", "bash": "shell"}
    | {name: f"podium__{name}" for name in ("report_status", "ask_person", "hand_in", "wait_for_result")}
}
"""The names of Podium's tools in agents that call them otherwise."""


class AgentLab:
    """A coding agent that follows a script. Each session of the lab continues the run that is in its store."""

    def __init__(
        self, kind: str, folder: Path, *options: str, program: AgentProgram | None = None, is_sandboxed: bool = False
    ) -> None:
        self.kind = kind
        self.folder = folder
        self.store = folder / "s.db"
        self.repo = folder / "repo"
        self.repo.mkdir()
        self.also: tuple[str, ...] = ()
        """The agent's checkouts of additional repositories."""
        self.rules = Rules()
        self.mode: Mode = "default"
        self.script = folder / "script" / "script.json"
        self.script.parent.mkdir()
        script = ("--script", str(self.script))
        readable = (SOURCE, str(self.script.parent))
        scripted = structs.replace(SCRIPTED, command=(*SCRIPTED.command, *options, *script), readable=readable)
        self.program = program or (GOOSE if kind == "goose" else scripted)
        self.program = structs.replace(self.program, is_sandboxed=is_sandboxed)
        self.settings = Settings.load({}, home=folder / "home", store=self.store)
        self.children: list[ChildProcess] = []
        self.server: ModelServer | None = None
        self.budget: Budget | None = None
        self.tools: tuple[Tool, ...] = ()
        self.patience = 30.0
        """How many seconds the lab waits for an event."""
        self.port = 0
        """The port of the model, which stays the same: another address would be another setup, with another home."""
        self.timeline: Timeline
        self.make_session: Callable[[str], Session]

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return a step that calls one tool."""
        name = TOOLS.get(self.kind, {}).get(tool, tool)
        return {"says": f"I call {tool}.", "calls": [{"name": name, "arguments": arguments}]}

    def write(self, path: str = "made.txt") -> dict[str, Any]:
        return self.call("write_file", path=path, content="hello\n")

    @asynccontextmanager
    async def open_child(self, opener: OpenChild, command: AgentCommand) -> AsyncIterator[ChildProcess]:
        async with opener(command) as child:
            self.children.append(child)
            yield child

    @asynccontextmanager
    async def engine(self, script: Sequence[Any], group: TaskGroup) -> AsyncIterator[AcpEngine]:
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.folder / "user")}
        processes = AgentProcesses(group)
        if self.kind == "goose":
            async with ModelServer(script, port=self.port, api_key=KEY) as self.server:
                self.port = urlsplit(self.server.url).port or 0
                model = AgentModel(name="m", wire="openai", url=self.server.url, key=KEY)
                yield self.make_engine(find_goose(), model, environ, processes)
            return
        self.script.write_text(json.dumps(list(script)))
        yield self.make_engine(sys.executable, None, environ, processes)

    def make_engine(
        self, executable: str, model: AgentModel | None, environ: dict[str, str], processes: AgentProcesses
    ) -> AcpEngine:
        sandbox = choose_agent_sandbox(self.settings, self.program, model is not None)
        return AcpEngine(
            self.program,
            executable,
            model=model,
            environ=environ,
            home=self.folder / "home",
            get_processes=lambda: processes,
            sandbox=replace(sandbox, open_child=partial(self.open_child, sandbox.open_child)),
        )

    @asynccontextmanager
    async def session(self, script: Sequence[Any], *, turn_limits: TurnLimits | None = None) -> AsyncIterator[Session]:
        limits = turn_limits or TurnLimits(approval=self.patience)
        async with RunStore(self.store) as store, create_task_group() as group, self.engine(script, group) as engine:
            exists = self.has_run()
            lease = await store.claim_run("r") if exists else store.begin_run("r")
            self.timeline = timeline = Timeline("r", lease)
            timeline.load(await store.read_rows("r") if exists else [])
            tasks = EngineSessionTasks(group, on_notice=lambda text: None)
            self.make_session = partial(self._make_session, engine, tasks, limits)
            session = self.make_session("worker")
            try:
                yield session
            finally:
                await session.aclose()
                store.release_run(lease)
                group.cancel_scope.cancel()

    def _make_session(
        self, engine: AcpEngine, session_tasks: EngineSessionTasks, limits: TurnLimits, name: str
    ) -> Session:
        allowance = Allowance(self.timeline, "", self.budget, of="")
        gate = Gate(
            self.judge,
            agent=name,
            checkouts=(str(self.repo), *self.also),
            allowance=allowance,
            rate_limit=RateLimit(1000),
            unattended=None,
            approval_seconds=limits.approval,
            before_change=do_nothing,
        )
        spec = EngineSessionSpec(
            agent=Agent(name=name), system="You work.", tools=self.tools, allowance=allowance, gate=gate, run="r"
        )
        scope = Scope(self.timeline, name, operation=name, digest="d")
        return Session(engine, spec, scope, session_tasks=session_tasks, turn_limits=limits)

    def judge(self, action: Action, changed_lines: int, guard: str = "") -> Verdict:
        return check(action, self.rules, self.mode, changed_lines=changed_lines, guard=guard)

    def has_run(self) -> bool:
        if not self.store.exists():
            return False
        with StoreReader(self.store) as reader:
            return bool(reader.read_rows("r"))

    async def answer_request(self, decision: Decision, comment: str = "") -> PermissionAsked:
        """Wait for the next permission request without an answer, and answer it."""
        with Follower(self.store, "r") as entries, fail_after(self.patience):
            async for entry in entries:
                answers = self.timeline.index.requests.answers
                if isinstance(entry.event, PermissionAsked) and entry.event.id not in answers:
                    answer = PermissionAnswered(id=entry.event.id, decision=decision, by="ada", comment=comment)
                    self.timeline.append(answer, scope="")
                    return entry.event
        raise AssertionError("the run has ended")

    async def wait_for(self, kind: type) -> Any:
        """Wait until there is an event of this kind, and return it."""
        with Follower(self.store, "r") as entries, fail_after(self.patience):
            async for entry in entries:
                if isinstance(entry.event, kind):
                    return entry.event
        raise AssertionError("the run has ended")

    def events(self, *kinds: type) -> list[Any]:
        return read_events(self.store, "r", *kinds)

    def forget_sessions(self) -> None:
        """Remove what agents have saved in their homes."""
        shutil.rmtree(self.folder / "home")
