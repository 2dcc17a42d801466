"""Run the turns of an agent whose engine is a coding agent in its own process.

Each prompt to the coding agent is a step. If the coding agent's process or Podium itself dies, the coding agent loads
its session again and continues; if it cannot, a new session gets the conversation as text.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

from anyio import create_memory_object_stream, create_task_group, get_cancelled_exc_class
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream
from msgspec import json

from ...core.budget import CallEstimate
from ...core.engine import CUT_OFF_MARK, EngineSessionSpec, Finished, PastTurn, Piece, Postponed, Superseded, Text
from ...core.person_message import deliver_messages, find_delivered_messages
from ...core.scope import Scope
from ...system.json_rpc import Params
from ...values.action import Action
from ...values.errors import (
    AgentFailed,
    Failure,
    FailureKind,
    OutsideFailed,
    PodiumError,
    StoreFailed,
    find_first_error,
)
from ...values.event import (
    ActionRefused,
    AgentSessionOpened,
    CallCut,
    MessagesDelivered,
    ModelReplied,
    Noticed,
    ToolCalled,
)
from ...values.request import quote_lines, replace_surrogates
from ...values.usage import Usage
from ..coordination.coordination_session import find_calls
from ..model.reply_recorder import estimate_tokens
from .agent_process import read_mapping
from .agent_program import AgentProgram
from .agent_session import AgentLost, AgentSession
from .agent_tool_call import PodiumTools
from .prompt_handler import STOPPED_BY_TOOL, PromptHandler

LONGEST_ARGUMENT = 200
NOT_PERMITTED = "[not permitted]"
"""The first words of the note that lists refused actions. The note is added at the end of a reply."""


MAX_PROMPTS = 8
"""How many prompts a turn can have, including those that explain refusals or deliver a person's messages."""
MAX_RESTARTS = 1
"""How many times a turn restarts an agent whose process died."""
MAX_QUEUED_PIECES = 1024
USAGE_FIELDS = ("inputTokens", "outputTokens", "cachedReadTokens", "cachedWriteTokens")
BUDGET_SECONDS = 30.0
Pieces = MemoryObjectSendStream[Piece]


class AcpSession:
    """One conversation with a coding agent. `agent` is the coding agent's own session.

    `name` is the engine's display name. `tools` contains Podium's own tools for the agent, or is None if there are
    none.
    """

    is_restored = False

    def __init__(
        self,
        program: AgentProgram,
        spec: EngineSessionSpec,
        agent: AgentSession,
        *,
        name: str,
        sandbox: str,
        tools: PodiumTools | None,
    ) -> None:
        self._program = program
        self._spec = spec
        self._agent = agent
        self._name = name
        self._sandbox = sandbox
        self._tools = tools
        self._history = list(spec.history)
        self._cost = 0.0
        self._is_reply_call = False
        """Whether, in this turn, a call to one of Podium's tools served as the agent's reply or ended the turn."""
        self._reported = [0] * len(USAGE_FIELDS)
        """The last usage that the agent reported, if it reports totals."""

    @asynccontextmanager
    async def ask(self, prompt: str, turn: Scope) -> AsyncIterator[AsyncIterator[Piece]]:
        send, receive = create_memory_object_stream[Piece](MAX_QUEUED_PIECES)
        failures: list[PodiumError] = []

        async def run_turn(group: TaskGroup) -> None:
            async with send:
                try:
                    await self._run_turn(prompt, turn, send, group)
                except PodiumError as error:
                    failures.append(error)

        try:
            async with create_task_group() as group:
                group.start_soon(run_turn, group)
                async with receive:
                    yield receive
                group.cancel_scope.cancel()
        except ExceptionGroup as errors:
            raise find_first_error(errors) from errors
        if failures:
            raise failures[0]

    async def _run_turn(self, prompt: str, turn: Scope, pieces: Pieces, group: TaskGroup) -> None:
        words, text = self._add_earlier_events(prompt), ""
        self._is_reply_call = False
        for number in range(1, MAX_PROMPTS + 1):
            place = turn.child(f"call#{number}")
            known = place.find_outcome(ModelReplied)
            if known is not None:
                await self._repeat_calls(place, pieces)
                await pieces.send(Text(known.text))
            reply = known or await self._send_within_budget(words, place, turn, pieces, group)
            text = reply.text or text
            if reply.stop == STOPPED_BY_TOOL:
                break
            told = self._explain_refusals(place, reply)
            said = "" if number == MAX_PROMPTS else await self._collect_messages(turn.child(f"call#{number + 1}"))
            if number == MAX_PROMPTS or not (told or said):
                break
            words = "\n\n".join(filter(None, (told, said)))
            # If the agent stopped because an action was refused, its text is not its answer, and it is prompted again.
            await pieces.send(Superseded() if told else Text("\n\n"))
        await self._end_turn(turn, reply, text, pieces)
        self._history.append(PastTurn(prompt=prompt, reply=text, scope=turn))

    def _add_earlier_events(self, prompt: str) -> str:
        """Return the prompt, preceded by notes about the agent's last turn.

        The notes list the actions that were refused, with the reasons, if the agent was not told during that turn. If
        one of Podium's tools ended the turn, the notes also list the calls to these tools, because some agents forget a
        turn that was stopped.
        """
        if not self._history:
            return prompt
        last = self._history[-1].scope
        refused = last.timeline.find_events_below(last.path, ActionRefused)
        told = [_describe_refusals(refused)] if refused and self._program.after_denial == "goes_on" else []
        replied = last.timeline.find_events_below(last.path, ModelReplied)
        if replied and replied[-1].stop == STOPPED_BY_TOOL:
            told.append(_describe_last_calls(called.action for _, called in find_calls(last)))
        return "\n\n".join([*told, prompt])

    def _explain_refusals(self, place: Scope, reply: ModelReplied) -> str:
        """Return a prompt that explains refusals to an agent that stopped because of them, or an empty string.

        The agent can then continue without the refused actions.
        """
        refused = place.timeline.find_events_below(place.path, ActionRefused)
        is_stopped = self._program.after_denial == "ends_turn" or reply.stop == "cancelled" or not reply.text.strip()
        return _describe_refusals(refused) if refused and is_stopped else ""

    async def _collect_messages(self, place: Scope) -> str:
        """Return the messages to send to the agent with the prompt at `place`, or an empty string if there are none."""
        said = find_delivered_messages(place)
        if not said and not place.has_outcome:
            said = await deliver_messages(place, self._spec.agent.name)
        return said

    async def _end_turn(self, turn: Scope, reply: ModelReplied, text: str, pieces: Pieces) -> None:
        refused = turn.timeline.find_events_below(turn.path, ActionRefused)
        if not text.strip() and refused:
            raise self._make_failure("refused", f"it stopped after {_format_refusal_note(refused)}")
        if reply.stop == "max_turn_requests":
            raise self._make_failure("limit", f"{self._program.name} reached its own limit on model calls per turn")
        if reply.stop == "refusal" and not text.strip():
            raise self._make_failure("refused", f"{self._program.name} declined to answer")
        if reply.stop == "cancelled" and not refused:
            raise OutsideFailed(f"{self._program.name} cancelled the turn without being asked to")
        is_free_text = self._spec.schema is None and self._spec.reply_format() is None
        if reply.stop == "max_tokens" and is_free_text:
            await pieces.send(Text(CUT_OFF_MARK))
        if refused and is_free_text:
            await pieces.send(Text(f"\n\n{_format_refusal_note(refused)}"))
        await pieces.send(Finished(reply.stop, by_tool=self._is_reply_call))

    def _make_failure(self, kind: FailureKind, message: str) -> AgentFailed:
        return AgentFailed(Failure(kind=kind, agent=self._spec.agent.name, message=message))

    # Prompts

    async def _send_within_budget(
        self, words: str, place: Scope, turn: Scope, pieces: Pieces, group: TaskGroup
    ) -> ModelReplied:
        """Send a prompt as soon as the budget has room for it. Raise AgentFailed if there can never be room for it."""
        estimate = CallEstimate(prompt=Usage(calls=1, input_tokens=estimate_tokens(len(words))))
        allowance = self._spec.allowance
        with turn.timeline.work.limit_waits.track_activity():
            if allowance is None:
                return await self._send_prompt(words, place, turn, pieces, group)
            await allowance.require_day_budget(self._spec.agent.name)
            while not allowance.has_room(estimate, agent=self._spec.agent.name):
                await pieces.send(Postponed(BUDGET_SECONDS))
                await allowance.wait_for_release(BUDGET_SECONDS)
            with allowance.reserve_call(estimate):
                return await self._send_prompt(words, place, turn, pieces, group)

    async def _send_prompt(
        self, words: str, place: Scope, turn: Scope, pieces: Pieces, group: TaskGroup
    ) -> ModelReplied:
        """Send a prompt and record the reply. If the agent's process dies, restart it and let it continue."""
        for restarts_left in range(MAX_RESTARTS, -1, -1):
            await turn.timeline.work.wait_while_paused()
            await turn.timeline.wait_written()
            handler = PromptHandler(
                self._program,
                self._spec,
                place,
                pieces,
                group,
                mode=self._program.mode,
                sandbox=self._sandbox,
                tools=self._tools,
            )
            try:
                answer = await self._attempt_prompt(words, turn, handler, place, group, is_first=restarts_left > 0)
            except AgentLost:
                await handler.abandon_calls()
                await handler.finish_offers()
                self._record_cut(place, handler)
                if not restarts_left or not handler.sent:
                    raise
                await pieces.send(Superseded())
            except (OutsideFailed, AgentFailed, get_cancelled_exc_class()):
                self._record_cut(place, handler)
                raise
            else:
                await handler.close_calls()
                await handler.finish_offers()
                await handler.settle_text()
                return self._record_reply(place, handler, answer)
        raise AssertionError("unreachable: the last attempt either returns or raises an error")

    async def _attempt_prompt(
        self, words: str, turn: Scope, handler: PromptHandler, place: Scope, group: TaskGroup, *, is_first: bool
    ) -> Params:
        """Send a prompt to the agent, answer its calls to Podium's tools, and return its final answer.

        An earlier attempt at the same prompt may have made some calls already. If one of them ended the turn, the agent
        is not prompted again.
        """
        if self._tools is None:
            handler.sent = await self._open_agent(words, turn, place, is_restarted=not is_first)
            return await self._agent.prompt(handler.sent, handler, group)
        opening = self._tools.session.open_turn(place, on_piece=handler.add_tool_piece, on_end=handler.end_by_tool)
        async with opening as calls:
            await calls.repeat_known_calls(is_over=False)
            answer: Params = {"stopReason": STOPPED_BY_TOOL}
            if not calls.is_ended:
                handler.sent = await self._open_agent(words, turn, place, is_restarted=not is_first)
                answer = await self._agent.prompt(handler.sent, handler, group)
                await self._agent.check_tools(partial(_record_notice, turn))
            self._is_reply_call |= calls.has_replied or calls.is_ended
        return answer

    async def _repeat_calls(self, place: Scope, pieces: Pieces) -> None:
        """Repeat the calls to Podium's tools that the agent made before its recorded reply."""
        if self._tools is not None:
            async with self._tools.session.open_turn(place, on_piece=pieces.send) as calls:
                await calls.repeat_known_calls(is_over=True)
                self._is_reply_call |= calls.has_replied or calls.is_ended

    async def _open_agent(self, words: str, turn: Scope, place: Scope, *, is_restarted: bool) -> str:
        """Make sure that the agent has a session, and return the prompt for that session.

        If the session is new, the prompt includes the messages that an earlier session accepted during this prompt.
        """
        if self._agent.is_open:
            return words
        is_interrupted = is_restarted or bool(
            turn.timeline.find_events_below(turn.path, AgentSessionOpened, ToolCalled)
        )
        known = self._find_session(turn) or next(filter(None, map(self._find_past_session, self._loadable_turns())), "")
        is_loaded = await self._agent.open(known, partial(_record_notice, turn))
        opened = turn.child(f"session:{self._agent.id}")
        if not opened.has_outcome and not is_loaded:
            self._cost, self._reported = 0.0, [0] * len(USAGE_FIELDS)
            opened.record_outcome(
                AgentSessionOpened(
                    agent=self._spec.agent.name,
                    engine=self._name,
                    session=self._agent.id,
                    version=self._agent.version,
                    mode=self._program.mode,
                )
            )
        if is_loaded:
            return _build_interrupted_prompt(words) if is_interrupted else words
        delivered = turn.timeline.find_events_below(place.path, MessagesDelivered)
        accepted = [event.text for event in delivered if event.text not in words]
        return _build_first_prompt(self._spec.system, self._history, "\n\n".join([words, *accepted]))

    def _loadable_turns(self) -> list[PastTurn]:
        """Return the turns whose sessions can be loaded, newest first: those of this run since the last refused reply.

        An agent that loaded an older session would remember the refused reply.
        """
        kept: list[PastTurn] = []
        for past in reversed(self._history):
            if past.is_refused or past.scope.timeline.run != self._spec.run:
                break
            kept.append(past)
        return kept

    def _find_past_session(self, past: PastTurn) -> str:
        return self._find_session(past.scope)

    def _find_session(self, turn: Scope) -> str:
        """Return the id of the last session that was opened in a turn, or an empty string."""
        opened = turn.timeline.find_events_below(turn.path, AgentSessionOpened)
        return opened[-1].session if opened else ""

    # Records

    def _record_reply(self, place: Scope, handler: PromptHandler, answer: Params) -> ModelReplied:
        usage = self._read_usage(answer, handler)
        stop = str(answer.get("stopReason") or "")
        redact = place.timeline.redaction.redact_text
        text = replace_surrogates(redact(handler.text))
        reasoning = replace_surrogates(redact(handler.inline_reasoning))
        replied = ModelReplied(model=self._name, text=text, reasoning=reasoning, stop=stop, usage=usage)
        return place.record_outcome(replied)

    def _record_cut(self, place: Scope, handler: PromptHandler) -> None:
        if not handler.sent:
            return
        usage = self._read_usage({}, handler)
        with suppress(StoreFailed):  # the turn is already ending for another reason
            place.record_each_time(CallCut(model=self._name, text=replace_surrogates(handler.text), usage=usage))

    def _read_usage(self, answer: Params, handler: PromptHandler) -> Usage:
        """Return the usage that the agent reports, or an estimate. Its cost is known only if the agent reports it."""
        reported = read_mapping(answer, "usage")
        values = [value if isinstance(value := reported.get(name), int) else 0 for name in USAGE_FIELDS]
        if self._program.reports_totals and any(values):
            values, self._reported = [now - then for now, then in zip(values, self._reported, strict=True)], values
        values = [max(0, value) for value in values]
        is_estimated = not any(values[:2])
        if is_estimated:
            values = [estimate_tokens(len(handler.sent)), estimate_tokens(handler.all_text_length), 0, 0]
        spent = 0.0 if handler.cost is None else max(0.0, handler.cost - self._cost)
        self._cost = self._cost if handler.cost is None else handler.cost
        return Usage(
            calls=1,
            input_tokens=values[0],
            output_tokens=values[1],
            cached_tokens=values[2],
            written_tokens=values[3],
            usd=spent,
            unpriced=int(handler.cost is None),
            estimated=int(is_estimated),
            tool_calls=handler.tool_calls,
        )


def _record_notice(turn: Scope, text: str) -> None:
    with suppress(StoreFailed):  # the process may end after the run's last entry
        turn.timeline.append(Noticed(text=replace_surrogates(text)), scope="")


def _build_first_prompt(system: str, history: Sequence[PastTurn], prompt: str) -> str:
    """Return a session's first prompt: the agent's instructions, the conversation so far and the request `prompt`."""
    parts = [f"[your instructions]\n{system.strip()}"] if system.strip() else []
    if history:
        parts.append("[the conversation so far]\n" + "\n\n".join(map(_format_past_turn, history)))
    return "\n\n".join([*parts, f"[the request]\n{prompt}"]) if parts else prompt


def _build_interrupted_prompt(prompt: str) -> str:
    """Return the prompt that makes an interrupted session continue its work on `prompt`."""
    return (
        "You were interrupted while you worked on the request below, and your session was restored. Check what is "
        f"already done, do not repeat it, and continue.\n\n[the request]\n{prompt}"
    )


def _describe_refusals(refused: Iterable[ActionRefused]) -> str:
    """Return a prompt that tells an agent which of its actions were refused, and why."""
    lines = "\n".join(f"- {_describe_refusal(one)}" for one in refused)
    return (
        f"These actions were not permitted and were not performed:\n{lines}\nDo not try to achieve the same effect "
        "another way. Continue without them, or say what you need."
    )


def _describe_last_calls(actions: Iterable[Action]) -> str:
    """Return a prompt that tells an agent which of Podium's tools it called before one of them ended its turn."""
    lines = "\n".join(f"- {action.tool} {_shorten(json.encode(action.arguments).decode())}" for action in actions)
    return f"Your last turn ended with these calls. They have already been executed; do not repeat them:\n{lines}"


def _format_refusal_note(refused: Iterable[ActionRefused]) -> str:
    """Return the note at the end of a reply that tells its reader which of the agent's actions were refused."""
    return f"{NOT_PERMITTED} " + "; ".join(dict.fromkeys(map(_describe_refusal, refused)))


def _describe_refusal(refused: ActionRefused) -> str:
    action = refused.action
    about = next((str(action.arguments[key]) for key in ("path", "command", "url") if action.arguments.get(key)), "")
    short = _shorten(about)
    return f"{action.tool}{f' {short}' if short else ''}: {refused.reason}"


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST_ARGUMENT else f"{text[:LONGEST_ARGUMENT]}…"


def _format_past_turn(turn: PastTurn) -> str:
    reply = "" if turn.is_refused else f"\n\n[you replied]{quote_lines(turn.reply)}"
    return f"[you were asked]{quote_lines(turn.prompt)}{reply}"
