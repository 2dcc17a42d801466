"""Handle what a coding agent sends while it answers one prompt: text, tool calls and permission requests.

Tool calls are recorded like those of Podium's own tools. The place of a call on the timeline depends on what it does,
not on its number: an agent that is restarted after a crash may repeat its calls in another order, and an approval must
never apply to an action other than the one that was shown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from anyio import (
    TASK_STATUS_IGNORED,
    BrokenResourceError,
    CancelScope,
    ClosedResourceError,
    Event,
    move_on_after,
    to_thread,
)
from anyio.abc import TaskGroup, TaskStatus
from anyio.streams.memory import MemoryObjectSendStream

from ...core.engine import (
    EngineAction,
    EngineSessionSpec,
    Piece,
    Postponed,
    Reasoning,
    Superseded,
    Text,
    ToolFinished,
    ToolStarted,
)
from ...core.journal_rows import compute_digest
from ...core.person_message import find_delivered_messages, offer_messages
from ...core.scope import Scope
from ...policy.impossible_commands import describe_git_write, find_git_write
from ...system.checkouts import is_own_folder
from ...system.json_rpc import Params
from ...values.action import Action
from ...values.errors import OutsideFailed, PodiumError
from ...values.event import ActionRefused, ToolAnswered, ToolCalled, ToolUse
from ...values.request import replace_surrogates
from ...values.tool_table import READING_TOOLS
from ..inline_reasoning import MessageText
from .agent_process import CANCELLED, read_mapping, read_objects
from .agent_program import AgentProgram
from .agent_tool_call import AgentToolCall, PodiumTools

LONGEST_REASON = 500
STEERING_SECONDS = 5.0
"""How long to wait, after a prompt, for the agent to accept or reject messages that were sent during the prompt."""
REPORT_SECONDS = 1.0
"""How long to wait, after a tool call ends the turn, for the agent to report that the call is over."""
STOPPED_BY_TOOL = "tool"
"""The stop reason for a prompt ended by one of Podium's tools."""
NO_REPORT = "The agent did not report the outcome of this call."
NO_GATE = "nothing is permitted in this session"
NO_CHOICE = "the agent's permission request has no option to allow the action once"


class RunningCall:
    """A tool call on the timeline: its place, what it does, and whether it has ended."""

    def __init__(self, said: AgentToolCall) -> None:
        self.said = said
        self.place: Scope | None = None
        self.action: EngineAction | None = None
        self.is_requested = False
        self.podiums_tool = ""
        """The name of the Podium tool that is called, or an empty string if the call is to another tool."""
        self.ended = Event()


class PromptHandler:
    """Handles one prompt's updates and permission requests. `place` is the prompt's scope."""

    def __init__(
        self,
        program: AgentProgram,
        spec: EngineSessionSpec,
        place: Scope,
        pieces: MemoryObjectSendStream[Piece],
        group: TaskGroup,
        *,
        mode: str,
        sandbox: str,
        tools: PodiumTools | None = None,
    ) -> None:
        self.done = Event()
        """Set when the prompt has been answered, a tool has ended the turn, or the turn has failed."""
        self.error: PodiumError | None = None
        self.cost: float | None = None
        """The cost of the session so far in USD, if the agent reports it."""
        self.tool_calls = 0
        self.is_ended_by_tool = False
        self.sent = ""
        """The prompt; empty until it is sent."""
        self.steer: Callable[[str], Awaitable[bool]] | None = None
        """Sends a message during the prompt, and returns whether the agent accepted it.

        This is None if the agent does not accept messages during a prompt.
        """
        self._offers: list[tuple[CancelScope, Event]] = []
        self._last_call_reported = Event()
        self._program = program
        self._spec = spec
        self._place = place
        self._pieces = pieces
        self._group = group
        self._mode = mode
        self._sandbox = sandbox
        self._tools = tools
        self._segments: list[MessageText] = [MessageText()]
        self._message_id = ""
        self._calls: dict[str, RunningCall] = {}
        self._taken: set[str] = set()
        """The paths of the scopes that this handler has assigned to calls."""
        self._waiting: set[CancelScope] = set()

    @property
    def text(self) -> str:
        """The last part of the reply's text that is not blank. Tool calls divide the text into parts."""
        return next((said for segment in reversed(self._segments) if (said := segment.text).strip()), "")

    @property
    def inline_reasoning(self) -> str:
        """The reasoning that the agent wrote into its messages."""
        return "\n".join(filter(None, (segment.reasoning for segment in self._segments)))

    @property
    def all_text_length(self) -> int:
        """How many characters the agent has written."""
        return sum(segment.written for segment in self._segments)

    def fail(self, error: PodiumError) -> None:
        """End the turn with an error."""
        self.error = self.error or error
        self.done.set()

    def end_by_tool(self) -> None:
        """End the turn because one of Podium's tools requested it, once the agent has received the tool's answer."""
        if not self.is_ended_by_tool:
            self.is_ended_by_tool = True
            self._group.start_soon(self._wait_for_report)

    async def _wait_for_report(self) -> None:
        """Wait briefly for the agent to report that the call is over, then end the turn.

        An agent that is stopped before it reports the end of a call may not remember the call.
        """
        with move_on_after(REPORT_SECONDS):
            await self._last_call_reported.wait()
        self.done.set()

    async def add_tool_piece(self, piece: ToolStarted | ToolFinished) -> None:
        """Add a piece to the reply: the start or the end of a call to one of Podium's tools."""
        await self._send(piece)
        if isinstance(piece, ToolStarted):
            self.tool_calls += 1
            limits = [tool.timeout for tool in self._spec.tools if tool.name == piece.call.name]
            await self._send(Postponed(max(limits, default=0.0)))

    def cancel_requests(self) -> None:
        """Answer every open permission request with the outcome `cancelled`."""
        for scope in self._waiting:
            scope.cancel()

    async def close_calls(self) -> None:
        """Record the end of all calls that the agent has left open."""
        for call in self._open_calls:
            await self._end_call(call, NO_REPORT, is_error=True)

    async def abandon_calls(self) -> None:
        """Close all open calls without recording that they ended, so that the restarted agent can repeat them."""
        for call in self._open_calls:
            await self._leave_call(call)

    @property
    def _open_calls(self) -> list[RunningCall]:
        return [call for call in self._calls.values() if call.place is not None and not call.ended.is_set()]

    # Updates

    async def receive_update(self, update: Params) -> None:
        try:
            await self._handle_update(update)
            self._start_offering()
        except PodiumError as error:
            self.fail(error)

    async def _handle_update(self, update: Params) -> None:
        content = read_mapping(update, "content")
        match update.get("sessionUpdate"):
            case "agent_message_chunk" if isinstance(text := content.get("text"), str):
                await self._add_text(text, str(update.get("messageId") or ""))
            case "agent_thought_chunk" if isinstance(text := content.get("text"), str):
                await self._send(Reasoning(text))
            case "tool_call" | "tool_call_update":
                await self._update_call(update)
            case "usage_update":
                cost = read_mapping(update, "cost")
                if cost.get("currency") == "USD" and isinstance(amount := cost.get("amount"), int | float):
                    self.cost = float(amount)
            case "current_mode_update":
                self._check_mode(update.get("currentModeId"))
            case _:
                await self._send(Reasoning(""))  # shows that the agent is still working

    async def _add_text(self, text: str, message_id: str) -> None:
        if self.is_ended_by_tool:
            return  # the agent has not noticed yet that its turn is over
        segment = self._segments[-1]
        if message_id != self._message_id and self._message_id and segment.text.strip():
            await self.settle_text()
            segment.end_message()
            segment.add_text("\n\n")
            segment.end_message()
            await self._send(Text("\n\n"))
        self._message_id = message_id or self._message_id
        for piece in segment.add_text(text):
            await self._send(piece)

    async def settle_text(self) -> None:
        """Replace the text that was sent since the last tool call, if a part of it turned out to be reasoning."""
        if not (segment := self._segments[-1]).is_shown:
            await self._send(Superseded())
            await self._send(Text(segment.text))

    def _check_mode(self, mode: object) -> None:
        """End the turn if the agent has left the mode in which it asks for permission."""
        if self._mode and mode != self._mode:
            self.fail(
                OutsideFailed(
                    f"{self._program.name} switched out of {self._mode}, the mode in which it asks for permission"
                )
            )

    async def _send(self, piece: Piece) -> None:
        with suppress(BrokenResourceError, ClosedResourceError):  # the turn was cancelled
            await self._pieces.send(piece)

    def _start_offering(self) -> None:
        """Offer a person's messages to an agent that accepts messages during a prompt.

        Other agents, and agents that do not accept the messages, receive them after the prompt.
        """
        if self.steer is not None and self._place.timeline.index.messages.list_undelivered(self._spec.agent.name):
            offering, has_ended = CancelScope(), Event()
            self._offers.append((offering, has_ended))
            self._group.start_soon(self._offer_messages, self.steer, offering, has_ended)

    async def _offer_messages(
        self, steer: Callable[[str], Awaitable[bool]], offering: CancelScope, has_ended: Event
    ) -> None:
        try:
            with offering:
                await offer_messages(self._next_steering_place(), self._spec.agent.name, steer)
        except PodiumError as error:
            self.fail(error)
        finally:
            has_ended.set()

    def _next_steering_place(self) -> Scope:
        """Return the next scope for steering that no earlier attempt at this prompt used to deliver messages."""
        while find_delivered_messages(place := self._place.next_child("steering")):
            pass
        return place

    async def finish_offers(self) -> None:
        """Wait briefly for the agent to accept or reject the messages that it was offered, then withdraw them."""
        with move_on_after(STEERING_SECONDS):
            for _, has_ended in self._offers:
                await has_ended.wait()
        for offering, has_ended in self._offers:
            offering.cancel()
            await has_ended.wait()

    # Tool calls

    async def _update_call(self, update: Params) -> None:
        call = self._find_call(update)
        call.said.add_update(update)
        if self._is_podiums(call, update):
            await self._follow_podiums_call(call)
            return
        is_waiting = call.said.status in ("", "pending") or (self._program.asks_late and not call.said.is_over)
        # After loading a session, some agents report the failure of a call that their previous, killed process made.
        is_old = call.said.status == "failed" and not call.said.is_described
        if call.ended.is_set() or (call.place is None and (is_waiting or is_old)):
            await self._send(Reasoning(""))
            return
        if call.place is None:
            await self._begin_call(call)
        if call.said.is_over:
            if not call.is_requested:
                self._record_unrequested(call)
            await self._end_call(call, call.said.output, is_error=call.said.status != "completed")

    def _is_podiums(self, call: RunningCall, message: Params) -> bool:
        """Return whether a message is about a call to one of Podium's own tools."""
        if self._tools is None or call.place is not None or call.ended.is_set():
            return False
        call.podiums_tool = self._tools.recognise_call(message, call.podiums_tool)
        return bool(call.podiums_tool)

    async def _follow_podiums_call(self, call: RunningCall) -> None:
        """Handle a message about a call to one of Podium's tools. The call itself is recorded elsewhere.

        When the call is over, start a new part of the reply's text.
        """
        if call.said.is_over:
            await self._leave_call(call)
            if self.is_ended_by_tool:
                self._last_call_reported.set()
        else:
            await self._send(Reasoning(""))

    def _find_call(self, update: Params) -> RunningCall:
        """Return the call that a message is about; if it names none, the last call that has not ended."""
        id = update.get("toolCallId")
        if not isinstance(id, str) or not id:
            open_calls = [key for key, call in self._calls.items() if not call.ended.is_set()]
            id = open_calls[-1] if open_calls else f"call-{len(self._calls) + 1}"
        return self._calls.setdefault(id, RunningCall(AgentToolCall(id=id)))

    def _record_unrequested(self, call: RunningCall) -> None:
        """Record that the agent made a call without asking, unless the call only reads."""
        assert call.place is not None
        assert call.action is not None
        is_plain = call.action.tool in READING_TOOLS or call.said.kind in ("read", "search", "think")
        if self._spec.gate is not None and not is_plain:
            self._spec.gate.record_unrequested(call.place, call.action)

    async def _begin_call(self, call: RunningCall) -> None:
        """Record a call with the details that the agent has reported so far."""
        gate = self._spec.gate
        checkouts = () if gate is None else gate.checkouts
        names = self._program.tool_names
        action = call.said.as_action(self._program.name, checkouts, names, sandbox=self._sandbox)
        if call.action is not None and action == call.action:
            return
        call.action, call.place = action, self._choose_place(action)
        called = self._describe_call(action)
        call.place.record(ToolCalled(id=call.said.id, action=called))
        self.tool_calls += 1
        await self._send(ToolStarted(ToolUse(id=call.said.id, name=called.tool, arguments=called.arguments)))

    def _describe_call(self, action: EngineAction) -> Action:
        run, agent = self._place.timeline.run, self._spec.agent.name
        return Action(
            run=run, agent=agent, tool=action.tool, arguments=dict(action.arguments), directory=action.directory
        )

    def _choose_place(self, action: EngineAction) -> Scope:
        """Return the scope for an action. Identical actions have numbered scopes.

        The result is the first scope that has no recorded answer and that this handler has not assigned yet.
        """
        elsewhere = (action.directory,) if action.directory else ()
        digest = compute_digest(action.tool, dict(action.arguments), action.shown, *elsewhere)[:12]
        for number in count(1):
            place = self._place.child(f"tool:{digest}#{number}")
            if place.path not in self._taken and not place.has_child_outcome("tool_answered#1"):
                self._taken.add(place.path)
                return place
        raise AssertionError("unreachable: there is always an unused number")

    async def _end_call(self, call: RunningCall, output: str, *, is_error: bool) -> None:
        assert call.place is not None
        text = replace_surrogates(call.place.timeline.redaction.redact_text(output))
        call.place.record(ToolAnswered(id=call.said.id, text=text, is_error=is_error))
        await self._leave_call(call)

    async def _leave_call(self, call: RunningCall) -> None:
        call.ended.set()
        await self.settle_text()
        self._segments.append(MessageText())
        self._message_id = ""
        await self._send(ToolFinished(call.said.id))

    # Permission requests

    async def answer_permission(self, params: Params) -> Params:
        if self.is_ended_by_tool:
            return CANCELLED
        with CancelScope() as waiting:
            self._waiting.add(waiting)
            try:
                return await self._decide(params)
            except PodiumError as error:
                self.fail(error)
            finally:
                self._waiting.discard(waiting)
        return CANCELLED

    async def _decide(self, params: Params) -> Params:
        said = read_mapping(params, "toolCall")
        call = self._find_call(said)
        call.said.add_update(said)
        call.is_requested = True
        options = read_objects(params, "options")
        # "Always allow" is never selected: Podium's own rules implement it, and some agents would never ask again.
        allow = next((one for one in options if one.get("kind") == "allow_once"), None)
        marks = {**read_mapping(params, "_meta"), **read_mapping(said, "_meta")}
        if allow is not None and self._is_podiums(call, {**said, "_meta": marks}):
            return _select(allow)
        await self._begin_call(call)
        if allow is not None and await self._is_permitted(call):
            await self._group.start(self._hold_effect, call)
            return _select(allow)
        if allow is None:
            self._refuse_call(call, NO_CHOICE)
        rejecting = [one for kind in ("reject_once", "reject_always") for one in options if one.get("kind") == kind]
        return _select(rejecting[0]) if rejecting else CANCELLED

    async def _is_permitted(self, call: RunningCall) -> bool:
        assert call.place is not None
        assert call.action is not None
        if self._spec.gate is None:
            self._refuse_call(call, NO_GATE)
            return False
        said = " ".join(self.text.split())
        reason = said if len(said) <= LONGEST_REASON else f"…{said[1 - LONGEST_REASON :]}"
        impossible = await to_thread.run_sync(self._explain_impossible, call.action, self._spec.gate.checkouts)
        wanted = replace(call.action, agent_reason=reason, impossible=impossible)
        return not await self._spec.gate.permit(call.place, wanted)

    def _explain_impossible(self, action: EngineAction, checkouts: Sequence[str]) -> str:
        """Return why an action cannot work in the agent's sandbox, or an empty string if it can."""
        command, checkout = action.arguments.get("command"), Path(action.directory or next(iter(checkouts), ""))
        if self._sandbox == "none" or action.tool != "bash" or not isinstance(command, str):
            return ""
        written = find_git_write(command, partial(is_own_folder, checkout))
        return describe_git_write(written, is_committed=None) if written else ""

    def _refuse_call(self, call: RunningCall, reason: str) -> None:
        assert call.place is not None
        assert call.action is not None
        call.place.record(ActionRefused(action=self._describe_call(call.action), reason=reason))

    async def _hold_effect(self, call: RunningCall, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Keep the run from pausing until a permitted call has ended."""
        async with self._place.timeline.work.effect:
            task_status.started()
            await call.ended.wait()


def _select(option: Params) -> Params:
    return {"outcome": {"outcome": "selected", "optionId": option.get("optionId")}}
