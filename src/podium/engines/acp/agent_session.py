"""Keep a coding agent's own session open: start its process, open or load the session, set its mode, send prompts.

If a prompt is cancelled, the agent is asked to stop. If it does not stop in time, the session is given up, and the
process is killed unless other sessions use it. The session can be loaded again afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from anyio import CancelScope, Event, fail_after, get_cancelled_exc_class, move_on_after
from anyio.abc import TaskGroup

from ...system.json_rpc import ConnectionEnded, Params, RpcError
from ...values.errors import OutsideFailed
from ...values.json import JsonObject
from .agent_process import AgentProcess, AgentProcesses, HeldProcess, read_mapping, read_objects
from .agent_program import AgentProgram
from .agent_tool_call import LIST_SECONDS, PodiumTools
from .prompt_handler import STOPPED_BY_TOOL, PromptHandler

SESSION_SECONDS = 60.0
"""How long an agent can take to open or load a session."""
CANCEL_SECONDS = 5.0
"""How long an agent can take to stop its work."""

Report = Callable[[str], object]


class AgentLost(OutsideFailed):
    """The coding agent's process ended while it was needed. The message says how it ended."""


class AgentSession:
    """A session of a coding agent. `start` starts the agent's process, or returns one that can be shared.

    `tools` contains Podium's own tools for the session.
    """

    def __init__(
        self,
        program: AgentProgram,
        directory: str,
        processes: AgentProcesses,
        start: Callable[[Report], Awaitable[HeldProcess]],
        *,
        tools: PodiumTools | None = None,
    ) -> None:
        self.id = ""
        self.version = ""
        self._program = program
        self._directory = directory
        self._processes = processes
        self._start = start
        self._tools = tools
        self._held: HeldProcess | None = None
        self._has_servers = False

    @property
    def is_open(self) -> bool:
        """Whether the session can take a prompt."""
        return bool(self.id) and self._held is not None and not self._held.agent.is_over

    async def open(self, known: str, report: Report) -> bool:
        """Open a session, and return whether it is the earlier session with the id `known`.

        If `known` is empty or the agent cannot load that session, a new one is opened. `report` is called with notes
        about a newly started process. Raise OutsideFailed on failure.
        """
        if self._held is None or self._held.agent.is_over:
            await self.aclose()
            self._held = await self._start(report)
        agent = self._held.agent
        self.version = agent.version
        try:
            with fail_after(SESSION_SECONDS):
                is_loaded = await self._open_on(agent, known)
        except TimeoutError:
            raise OutsideFailed(f"{agent.name} did not open a session within {SESSION_SECONDS:g} s") from None
        except RpcError as error:
            raise OutsideFailed(f"{agent.name} cannot open a session: {error}") from error
        except ConnectionEnded:
            raise AgentLost(await agent.describe_end()) from None
        if not self._program.lists_late:
            await self.check_tools(report, LIST_SECONDS)
        return is_loaded

    async def check_tools(self, report: Report, seconds: float = 0.0) -> None:
        """Wait until the agent requests the list of Podium's tools. If it does not do so in time, report that once."""
        if not self._has_servers or self._tools is None or self._held is None:
            return
        self._has_servers = False
        if not await self._tools.session.wait_listed(seconds):
            report(f"{self._held.agent.name} has not requested the list of Podium's tools, so it cannot use them.")

    async def _open_on(self, agent: AgentProcess, known: str) -> bool:
        servers = [] if self._tools is None else self._tools.connect(agent, self._program.mcp)
        self._has_servers = bool(servers)
        place: JsonObject = {"cwd": self._directory, "mcpServers": servers}
        if known and agent.capabilities.get("loadSession"):
            with suppress(RpcError):  # it may have lost the session
                loaded = await agent.call("session/load", {"sessionId": known, **place})
                await self._set_mode(agent, known, loaded)
                self.id = known
                return True
        opened = await agent.call("session/new", place)
        if not isinstance(id := opened.get("sessionId"), str) or not id:
            raise OutsideFailed(f"{agent.name} opened a session without an id")
        await self._set_mode(agent, id, opened)
        self.id = id
        return False

    async def _set_mode(self, agent: AgentProcess, session: str, opened: Params) -> None:
        """Set the mode that makes the agent ask before it acts. Raise OutsideFailed if it does not offer that mode."""
        wanted, modes = self._program.mode, read_mapping(opened, "modes")
        if not wanted or modes.get("currentModeId") == wanted:
            return
        offered = [str(mode.get("id")) for mode in read_objects(modes, "availableModes")]
        if wanted not in offered:
            known = ", ".join(offered) or "none"
            raise OutsideFailed(
                f"{agent.name} does not offer {wanted}, the mode in which it asks for permission; it offers: {known}"
            )
        await agent.call("session/set_mode", {"sessionId": session, "modeId": wanted})

    async def prompt(self, text: str, handler: PromptHandler, group: TaskGroup) -> Params:
        """Send a prompt and return the agent's final answer. `handler` receives the messages that precede the answer.

        If one of Podium's tools ends the turn, the agent is stopped, and the stop reason is STOPPED_BY_TOOL. Raise
        AgentLost if the agent's process ends, and OutsideFailed if the agent reports an error. The answer is awaited by
        a task in `group`. If this method is cancelled, that task still waits briefly, so that the agent can stop.
        """
        assert self._held is not None
        agent, call, session = self._held.agent, _PromptCall(), self.id
        params = {"sessionId": session, "prompt": [{"type": "text", "text": text}]}
        agent.handlers[session] = handler
        if agent.can_steer:
            handler.steer = partial(self._steer, agent)
        try:
            group.start_soon(call.run, agent, params, handler.done)
            await handler.done.wait()
            if not call.is_answered:
                await self._stop_prompt(agent, handler, call)
        except get_cancelled_exc_class():
            with CancelScope(shield=True):
                await self._stop_prompt(agent, handler, call)
            raise
        finally:
            agent.handlers.pop(session, None)
        if handler.error is not None:
            raise handler.error
        if handler.is_ended_by_tool:
            return {**call.answer, "stopReason": STOPPED_BY_TOOL}
        return await self._read_answer(agent, call)

    async def _steer(self, agent: AgentProcess, text: str) -> bool:
        """Send the agent a message while it works on a prompt, and return whether it accepted the message."""
        only_now = {"steering": {"idleBehavior": "promptRequired"}}
        params: JsonObject = {"sessionId": self.id, "prompt": [{"type": "text", "text": text}], "_meta": only_now}
        try:
            answer = await agent.call("_session/steering", params)
        except (RpcError, ConnectionEnded):
            return False
        return answer.get("outcome") != "promptRequired"

    async def _read_answer(self, agent: AgentProcess, call: _PromptCall) -> Params:
        if isinstance(call.error, ConnectionEnded):
            self.id = ""
            raise AgentLost(await agent.describe_end())
        if call.error is not None:
            raise OutsideFailed(f"{agent.name} reports an error: {call.error}")
        return call.answer

    async def _stop_prompt(self, agent: AgentProcess, handler: PromptHandler, call: _PromptCall) -> None:
        """Ask the agent to stop; if it does not, kill its process, unless other sessions use it."""
        handler.cancel_requests()
        with suppress(ConnectionEnded), move_on_after(CANCEL_SECONDS):
            await agent.notify("session/cancel", {"sessionId": self.id})
            await call.answered.wait()
        if not call.is_answered:
            self.id = ""
            if self._held is not None and self._held.users == 1:
                await agent.kill()
        call.scope.cancel()

    async def aclose(self) -> None:
        """Disconnect Podium's tools from the agent, and release its process."""
        held, self._held, self.id = self._held, None, ""
        if self._tools is not None:
            self._tools.disconnect()
        if held is not None:
            await self._processes.release(held)


class _PromptCall:
    """A prompt that was sent, and the agent's answer to it."""

    def __init__(self) -> None:
        self.answer: Params = {}
        self.error: RpcError | ConnectionEnded | None = None
        self.answered = Event()
        self.scope = CancelScope(shield=True)

    @property
    def is_answered(self) -> bool:
        return self.answered.is_set()

    async def run(self, agent: AgentProcess, params: Params, done: Event) -> None:
        """Wait for the answer, even if the turn is cancelled meanwhile."""
        with self.scope:
            try:
                self.answer = await agent.call("session/prompt", params)
            except (RpcError, ConnectionEnded) as error:
                self.error = error
            self.answered.set()
        done.set()
