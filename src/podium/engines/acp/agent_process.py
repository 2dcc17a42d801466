"""Run a coding agent as a child process, and exchange ACP messages with it over stdio.

The agent runs in its own process group. Its error output is read continuously, so that a full pipe never blocks the
agent, and the last part is kept for error messages. When the agent exits, all open calls to it end, even if one of its
child processes keeps the pipes open.

Sessions of the same agent can share a process. Each process belongs to a task that starts and stops it, when its last
session is closed.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE
from typing import Protocol

from anyio import TASK_STATUS_IGNORED, CancelScope, Event, Lock, create_task_group, fail_after, move_on_after
from anyio.abc import TaskGroup, TaskStatus

from ... import __version__
from ...system.checkouts import find_checkouts
from ...system.child_process import ProcessExit
from ...system.json_rpc import METHOD_NOT_FOUND, ConnectionEnded, JsonRpcPeer, Params, RpcError
from ...system.process_group import ChildProcess, ProgramNotStarted, start_process
from ...system.unsandboxed_program import build_unsandboxed_environment, find_unsandboxed_program
from ...values.errors import Mistake, OutsideFailed
from ...values.json import Json, JsonObject
from ...values.plain_text import escape_unprintable
from ..coordination.coordination_router import CoordinationRouter
from .agent_home import AgentModel


class HeldProcess:
    """A running agent, and how many sessions use it."""

    def __init__(self, agent: AgentProcess, key: Hashable) -> None:
        self.agent = agent
        self.key = key
        self.users = 1
        self.released = Event()
        self.stopped = Event()


class AgentProcesses:
    """The running agents of one app. Their tasks run in `group`, which must outlive all sessions."""

    def __init__(self, group: TaskGroup) -> None:
        self._group = group
        self._shared: dict[Hashable, HeldProcess] = {}
        self._starting: dict[Hashable, Lock] = {}

    async def acquire(self, opening: AbstractAsyncContextManager[AgentProcess], *, key: Hashable = None) -> HeldProcess:
        """Return the running process with this key, or start one. If the key is None, the process is not shared.

        Raise OutsideFailed if the agent cannot be started.
        """
        if key is None:
            return await self._start_process(opening, key)
        async with self._starting.setdefault(key, Lock()):
            held = self._shared.get(key)
            if held is None or held.agent.is_over:
                held = self._shared[key] = await self._start_process(opening, key)
            else:
                held.users += 1
            return held

    async def _start_process(self, opening: AbstractAsyncContextManager[AgentProcess], key: Hashable) -> HeldProcess:
        started = await self._group.start(self._hold_process, opening, key)
        assert isinstance(started, HeldProcess)
        return started

    async def release(self, held: HeldProcess) -> None:
        """Release a process. When its last user releases it, stop the process and wait until it has stopped."""
        held.users -= 1
        if held.users == 0:
            if self._shared.get(held.key) is held:
                del self._shared[held.key]
            held.released.set()
            await held.stopped.wait()

    async def _hold_process(
        self,
        opening: AbstractAsyncContextManager[AgentProcess],
        key: Hashable,
        *,
        task_status: TaskStatus[HeldProcess] = TASK_STATUS_IGNORED,
    ) -> None:
        held: HeldProcess | None = None
        try:
            async with opening as agent:
                held = HeldProcess(agent, key)
                task_status.started(held)
                await held.released.wait()
        except Exception:
            # Raise only errors at the start. A later error affects only the sessions of this process, and their open
            # calls have already failed.
            if held is None:
                raise
        finally:
            if held is not None:
                held.stopped.set()


PROTOCOL_VERSION = 1
START_SECONDS = 60.0
"""How long an agent can take to answer its first request. Some agents check their installation before they answer."""
STOP_SECONDS = 2.0
DRAIN_SECONDS = 0.5
"""How long to keep reading output after the agent has exited.

The pipe stays open after the exit only if a descendant process has left the agent's process group.
"""
KEPT_OUTPUT_BYTES = 4096
SHOWN_OUTPUT_CHARACTERS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCommand:
    """The command that starts an agent, with its environment, the checkouts that it works in, and its home folder.

    `model` is the model to use, or None for the agent's own configured model. `coordination` answers the agent's calls
    to Podium's tools. `report` is called with notes for the user.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    checkouts: tuple[Path, ...]
    home: Path
    model: AgentModel | None = None
    coordination: CoordinationRouter = field(default_factory=CoordinationRouter)
    report: Callable[[str], object] = lambda text: None

    @property
    def directory(self) -> Path:
        """The folder that the agent starts in: its primary checkout."""
        return self.checkouts[0]


class OpenChild(Protocol):
    """Starts an agent's process for the duration of a block, with separate pipes for its three standard streams."""

    def __call__(self, command: AgentCommand) -> AbstractAsyncContextManager[ChildProcess]: ...


@asynccontextmanager
async def open_unconfined(command: AgentCommand) -> AsyncIterator[ChildProcess]:
    """Start an agent's process without a sandbox, but with no program or code of its checkouts.

    It works in the checkout, so Podium cannot prevent the agent itself from running files there.
    """
    checkouts = find_checkouts(*command.checkouts)
    env = build_unsandboxed_environment(command.env, checkouts)
    argv = [
        find_unsandboxed_program(command.argv[0], command.env.get("PATH", os.defpath), checkouts),
        *command.argv[1:],
    ]
    child = start_process(argv, env=env, directory=command.directory, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    with closing(child):
        try:
            yield child
        finally:
            await child.end()


ServeCoordination = Callable[[CoordinationRouter], AbstractAsyncContextManager[str]]
"""Yields the address that an agent's process uses to reach a router, or an empty string if it cannot reach one."""


def _serve_nowhere(router: CoordinationRouter) -> AbstractAsyncContextManager[str]:
    """Yield an empty address, which means that the agent's process cannot reach Podium's tools."""
    return nullcontext("")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSandbox:
    """The sandbox that an agent's processes run in. `name` is shown in permission requests.

    `open_child` starts a process. `model_url` is the address that processes use to reach the model named in their
    command; if it is empty, they use the model's own address. `serve_coordination` serves Podium's tools to a process.
    """

    name: str
    open_child: OpenChild
    model_url: str = ""
    serve_coordination: ServeCoordination = _serve_nowhere


NO_SANDBOX = AgentSandbox(name="none", open_child=open_unconfined)


class SessionHandler(Protocol):
    """Handles an agent's messages for one of its sessions."""

    async def receive_update(self, update: Params) -> None:
        """Handle one session update. Updates are handled in the order in which they arrive."""
        ...

    async def answer_permission(self, params: Params) -> Json:
        """Return the answer to a permission request."""
        ...

    def cancel_requests(self) -> None:
        """Answer every open permission request with the outcome `cancelled`."""
        ...


class AgentProcess:
    """A running agent process.

    `handlers` maps session ids to the handlers of the agent's messages. For any other session, updates are dropped and
    permission requests are answered with the outcome `cancelled`. `coordination` answers the agent's calls to Podium's
    tools. `coordination_url` is the address that the agent calls; it is empty if the agent cannot call these tools.
    """

    def __init__(self, child: ChildProcess, name: str, coordination: CoordinationRouter, coordination_url: str) -> None:
        self.name = name
        self.coordination = coordination
        self.coordination_url = coordination_url
        self.version = ""
        self.capabilities: Params = {}
        self.can_steer = False
        """Whether the agent accepts messages while it works on a prompt."""
        self.handlers: dict[str, SessionHandler] = {}
        self.is_over = False
        self._child = child
        self._output_tail = bytearray()
        self._output_ended = Event()
        self._stderr_ended = Event()
        self._peer = JsonRpcPeer(
            child.read_stdout,
            child.write_stdin,
            on_request=self._answer_request,
            on_notification=self._receive_notification,
            on_junk=self._keep_line,
        )

    async def call(self, method: str, params: JsonObject) -> Params:
        """Send a request and return its result. Raise RpcError or ConnectionEnded if there is none."""
        result = await self._peer.call(method, params)
        return result if isinstance(result, dict) else {}

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification. Raise ConnectionEnded if the agent has ended."""
        await self._peer.notify(method, params)

    async def initialize(self) -> None:
        """Negotiate the protocol with the agent. Raise OutsideFailed if that fails."""
        offer: JsonObject = {
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
            "clientInfo": {"name": "podium", "version": __version__},
        }
        try:
            with fail_after(START_SECONDS):
                answer = await self.call("initialize", offer)
        except TimeoutError:
            raise OutsideFailed(f"{self.name} did not answer within {START_SECONDS:g} s of starting") from None
        except RpcError as error:
            raise OutsideFailed(f"{self.name} refused the connection: {error}") from error
        except ConnectionEnded:
            raise OutsideFailed(await self.describe_end()) from None
        if answer.get("protocolVersion") not in (PROTOCOL_VERSION, str(PROTOCOL_VERSION)):
            spoken = answer.get("protocolVersion")
            raise OutsideFailed(f"{self.name} speaks version {spoken} of ACP; Podium speaks version {PROTOCOL_VERSION}")
        self.capabilities = read_mapping(answer, "agentCapabilities")
        self.can_steer = bool(read_mapping(read_mapping(answer, "_meta"), "steering").get("supported"))
        self.version = str(read_mapping(answer, "agentInfo").get("version") or "")

    async def describe_end(self) -> str:
        """Wait briefly for the agent to exit, and return how it ended, with its last output."""
        with move_on_after(DRAIN_SECONDS):
            await self._child.wait_exit()
        await self._child.end(grace=0)
        with move_on_after(DRAIN_SECONDS):
            await self._stderr_ended.wait()
        code = self._child.returncode
        how = "closed its output"
        if code is not None:
            how = f"was {ProcessExit(code=code)}" if code < 0 else f"exited with code {code}"
        text = escape_unprintable(self._output_tail.decode(errors="replace").strip())
        last = text if len(text) <= SHOWN_OUTPUT_CHARACTERS else f"…{text[-SHOWN_OUTPUT_CHARACTERS:]}"
        return f"{self.name} {how}" + (f"; its last output: {last}" if last else "")

    async def kill(self) -> None:
        """Kill the agent and everything in its process group."""
        await self._child.end(grace=0)

    # Messages from the agent

    async def _receive_notification(self, method: str, params: Params) -> None:
        handler = self.handlers.get(str(params.get("sessionId")))
        if handler is not None and method == "session/update":
            await handler.receive_update(read_mapping(params, "update"))

    async def _answer_request(self, method: str, params: Params) -> Json:
        handler = self.handlers.get(str(params.get("sessionId")))
        if method != "session/request_permission":
            raise RpcError(METHOD_NOT_FOUND, f"Podium does not support the method {method}")
        if handler is None:
            return CANCELLED
        return await handler.answer_permission(params)

    # The process

    async def receive_messages(self) -> None:
        """Handle the agent's messages until its output ends."""
        await self._peer.run()
        self.is_over = True
        self._output_ended.set()

    async def read_stderr(self) -> None:
        """Read the agent's error output until it ends, and keep the last part of it."""
        try:
            while chunk := await self._child.read_stderr():
                self._keep_output(chunk)
        finally:
            self._stderr_ended.set()

    async def watch_exit(self) -> None:
        """Wait until the agent exits.

        Then cancel its open permission requests, terminate its process group, and fail all open calls to it.
        """
        await self._child.wait_exit()
        for handler in self.handlers.values():
            # Cancel open requests, so that a later answer does not start an action for an agent that has exited.
            handler.cancel_requests()
        await self._child.end(grace=0)
        with move_on_after(DRAIN_SECONDS):
            await self._output_ended.wait()
        self.is_over = True
        self._peer.end_calls(f"{self.name} exited")

    def _keep_line(self, line: bytes) -> None:
        self._keep_output(line[:KEPT_OUTPUT_BYTES] + b"\n")

    def _keep_output(self, output: bytes) -> None:
        self._output_tail += output
        del self._output_tail[:-KEPT_OUTPUT_BYTES]


CANCELLED = {"outcome": {"outcome": "cancelled"}}
"""The answer to a permission request in a turn that is being cancelled."""


@asynccontextmanager
async def run_agent_process(
    command: AgentCommand, name: str, sandbox: AgentSandbox, *, exits_at_eof: bool = True
) -> AsyncIterator[AgentProcess]:
    """Run an agent for the duration of the block, and negotiate the protocol with it. Raise OutsideFailed on failure.

    With `exits_at_eof`, the agent gets a moment to exit by itself after its input is closed.
    """
    trouble: Exception | None = None
    try:
        async with sandbox.serve_coordination(command.coordination) as url, sandbox.open_child(command) as child:
            agent = AgentProcess(child, name, command.coordination, url)
            async with create_task_group() as group:
                for task in (agent.receive_messages, agent.read_stderr, agent.watch_exit):
                    group.start_soon(task)
                try:
                    await agent.initialize()
                    yield agent
                except Exception as error:  # raised below, because the task group would wrap it
                    trouble = error
                finally:
                    agent.is_over = True
                    with CancelScope(shield=True):
                        await (child.stop(grace=STOP_SECONDS) if exits_at_eof else child.end(grace=STOP_SECONDS))
                    group.cancel_scope.cancel()
    except (ProgramNotStarted, Mistake) as error:
        raise OutsideFailed(f"{name} cannot be started: {error}") from error
    if trouble is not None:
        raise trouble


def read_mapping(params: JsonObject, key: str) -> Params:
    """Return the object under a key, or an empty one if there is none."""
    value = params.get(key)
    return value if isinstance(value, dict) else {}


def read_objects(params: JsonObject, key: str) -> Sequence[Params]:
    """Return the objects in the list under a key. Other items are left out."""
    value = params.get(key)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
