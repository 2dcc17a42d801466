"""The gate: every action that an agent takes outside its conversation passes through it.

It checks the policy, asks a person if the policy says so, records the intent on the timeline, then
runs the call. Engine sessions get tools with side effects only through their operation's gate. Podium
executes exactly what a person approved: the call is prepared again after the answer, and if the result
differs, the policy is checked again. An engine that acts itself, such as another vendor's agent, requests permission
for each action from the same gate.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from anyio import create_task_group, move_on_after
from msgspec import structs

from ..policy import Verdict, generalised
from ..values.action import Action
from ..values.errors import find_first_error
from ..values.event import (
    ActionBegan,
    ActionRefused,
    Channel,
    ModelReplied,
    PermissionAnswered,
    PermissionAsked,
    ToolUse,
)
from ..values.json import JsonObject, JsonSchema
from ..values.usage import Unattended
from .budget import Allowance
from .engine import EngineAction, Tool, ToolAnswer
from .journal_rows import compute_digest
from .open_requests import Denial, compute_expiry, describe_timeout, must_ask_again
from .scope import Scope
from .tool_rate_limit import RateLimit

if TYPE_CHECKING:
    from .run_hooks import ActionHooks

# Tools with side effects


class InvalidCall(Exception):
    """A tool call that cannot be executed as given; the message tells the model what would work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """A tool call that is ready to execute: a description of its effect, and the function that performs it.

    `arguments` contains the call's arguments in canonical form, with paths resolved; rules are matched against them.
    `inputs` maps each file that the call changes, or that its command names, to a hash of its content. `outputs` maps
    each changed file to a hash of its content after the call. `shown` is additional text for the person who is asked
    for permission, such as a diff. `sandbox` describes the sandbox that a command runs in. A read-only call has no
    effects; a repeatable call can safely be executed again. `directory` is the checkout that the paths are relative to,
    if it is not the agent's own. If `guard` is not empty, it is the reason why a person must decide whatever the rules
    say. If `impossible` is not empty, the call cannot work whatever a person answers, and this sentence says why and
    what works instead. `if_asked` is the call as it is executed if a person allows it, for example with more hosts, if
    that differs from a call that a rule allows.
    """

    arguments: JsonObject
    act: Callable[[], Awaitable[ToolAnswer]]
    is_read_only: bool = False
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    shown: str = ""
    changed_lines: int = 0
    sandbox: str = ""
    is_repeatable: bool = False
    directory: str = ""
    guard: str = ""
    impossible: str = ""
    if_asked: PreparedCall | None = None


class ActingTool(Protocol):
    """A tool with effects outside the conversation."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> JsonSchema: ...

    @property
    def timeout(self) -> float:
        """How many seconds a call can take."""
        ...

    @property
    def is_parallel(self) -> bool:
        """Whether several calls can run at once, as with read-only tools."""
        ...

    async def prepare(self, call: ToolUse) -> PreparedCall:
        """Prepare a call without executing it. Raise InvalidCall if it cannot be executed as given."""
        ...

    async def recover(self, began: Action) -> ToolAnswer | None:
        """Return the answer for an action that was running when its process died, or None to execute it again."""
        ...


class SavedRules:
    """The rules that the user has saved since the run started, as they were last read.

    `read` reads them from the store. It is None if this process does not read them.
    """

    def __init__(self, read: Callable[[], Awaitable[tuple[str, ...]]] | None = None) -> None:
        self.rules: tuple[str, ...] = ()
        self._read = read

    async def refresh(self) -> bool:
        """Read the rules again. Return whether there are any."""
        if self._read is not None:
            self.rules = await self._read()
        return bool(self.rules)


def make_interrupted_answer(tool: str) -> ToolAnswer:
    """Return the answer for an action that was interrupted at an unknown point."""
    return ToolAnswer(
        text=f"{tool} was interrupted when its process died. It may have run partly or completely, and was not "
        "started again: check the current state before you repeat it.",
        is_error=True,
    )


# The gate

LONGEST_REASON = 500
"""Maximum number of characters of the agent's own reason in a permission request."""

UNREQUESTED = "nobody (the agent did not request permission)"
"""The `allowed_by` value of an action that an engine took without requesting permission."""

JudgeAction = Callable[[Action, int, str], Verdict]
"""Returns the rules' verdict on an action, given the number of lines that the action changes and its guard."""


class Gate:
    """The gate of one operation. `unattended` is None if a person is available to answer.

    `checkouts` are the checkouts that the agent works in, the primary one first.
    `before_change` is called before each action that may change something.
    """

    def __init__(
        self,
        judge: JudgeAction,
        *,
        agent: str,
        checkouts: tuple[str, ...],
        allowance: Allowance,
        rate_limit: RateLimit,
        unattended: Unattended | None,
        approval_seconds: float,
        before_change: Callable[[], Awaitable[None]],
        saved_rules: SavedRules | None = None,
        hooks: ActionHooks | None = None,
    ) -> None:
        self.checkouts = checkouts
        self._judge = judge
        self._before_change = before_change
        self._agent = agent
        self._allowance = allowance
        self._rate_limit = rate_limit
        self._unattended = unattended
        self._approval_seconds = approval_seconds
        self._saved_rules = saved_rules
        self._hooks = hooks

    def wrap_tool(self, acting: ActingTool, *, is_given: bool = False) -> Tool:
        """Wrap a tool for an engine session, so that its calls pass through this gate.

        A call needs a person's permission if a rule requires it. If no rule applies to the call and the default is to
        ask, the call also needs permission, unless `is_given` is True.
        """

        async def answer_call(call: ToolUse, place: Scope) -> ToolAnswer:
            return await self._answer_call(acting, call, place, is_given=is_given)

        hooks = self._hooks
        return Tool(
            name=acting.name,
            description=acting.description,
            parameters=acting.parameters,
            answer=answer_call,
            timeout=acting.timeout,
            is_step=True,
            is_parallel=acting.is_parallel,
            after_answer=hooks.report_answer if hooks and hooks.has_hooks("after_tool", acting.name) else None,
        )

    async def _answer_call(self, acting: ActingTool, call: ToolUse, place: Scope, *, is_given: bool) -> ToolAnswer:
        began = place.child("action_began#1").find_outcome(ActionBegan)
        if began is not None:
            recovered = await acting.recover(began.action)
            if recovered is not None:
                return recovered
        try:
            prepared = await acting.prepare(call)
            if began is None or self._build_action(place, call.name, prepared).digest != began.action.digest:
                return await self.perform(place, acting, call, prepared, is_given=is_given)
            verdict, context = await self._check_action(place, began.action, prepared)
            if verdict.decision == "deny":
                return self._refuse_action(place, began.action, verdict.reason)
            if verdict.decision == "ask":
                # Another machine may have recorded the start, so the recorded request and its answer decide again.
                return await self.perform(place, acting, call, prepared, is_given=is_given)
            return _add_context(await self._execute_call(place, prepared), context)
        except InvalidCall as error:
            return ToolAnswer(text=str(error), is_error=True)

    async def perform(
        self, place: Scope, acting: ActingTool, call: ToolUse, prepared: PreparedCall, *, is_given: bool = False
    ) -> ToolAnswer:
        """Execute a call if it is permitted. The caller of the tool records the outcome."""
        await self._rate_limit.acquire()
        action = self._build_action(place, call.name, prepared)
        verdict, context = await self._check_action(place, action, prepared)
        allowed_by = verdict.rule or verdict.reason
        while verdict.decision == "ask" and not (is_given and verdict.rule is None):
            if prepared.impossible and not place.has_child_outcome("permission_asked#1"):
                return ToolAnswer(text=f"Not run, and nobody was asked: {prepared.impossible}", is_error=True)
            opens_more = prepared.if_asked is not None
            prepared = prepared.if_asked or prepared
            action = self._build_action(place, call.name, prepared)
            answered, approved = await self._ask_permission(
                place,
                action,
                reason=verdict.reason,
                shown=prepared.shown,
                agent_reason=_find_agent_reason(place.timeline.index.last_replies.get(place.operation), call),
                can_be_rule=not opens_more,
            )
            if not answered.is_allowed:
                return self._refuse_action(place, approved, _describe_refusal(answered))
            allowed_by = answered.by or "a person"
            prepared = await acting.prepare(call)
            prepared = prepared.if_asked or prepared
            action = self._build_action(place, call.name, prepared)
            if action.digest == approved.digest:
                action = approved
                break
            verdict, context = await self._check_action(place, action, prepared)
        if verdict.decision == "deny":
            return self._refuse_action(place, action, verdict.reason)
        self._allowance.require_file_budget(set(prepared.outputs), agent=self._agent)
        if not (prepared.is_read_only or prepared.is_repeatable):
            await self._before_change()
        if not prepared.is_read_only:
            place.record(ActionBegan(action=action, allowed_by=allowed_by, is_repeatable=prepared.is_repeatable))
        return _add_context(await self._execute_call(place, prepared), context)

    async def _check_action(
        self, place: Scope, action: Action, prepared: PreparedCall | EngineAction
    ) -> tuple[Verdict, str]:
        """Return the verdict of the rules and hooks, and the context that hooks add. Hooks can only deny."""
        guard = prepared.guard if isinstance(prepared, PreparedCall) else ""
        verdict = self._judge(action, prepared.changed_lines, guard)
        if verdict.decision == "ask" and await self._has_saved_rules(place):
            verdict = self._judge(action, prepared.changed_lines, guard)
        if self._hooks is None or verdict.decision == "deny":
            return verdict, ""
        reply = await self._hooks.check_action(place, action)
        if reply.denial:
            return structs.replace(verdict, decision="deny", rule=None, reason=reply.denial), ""
        return verdict, reply.context

    async def _has_saved_rules(self, place: Scope) -> bool:
        """Return whether any rule that the user has saved since the run started may apply to an action.

        If permission for the action was already requested, that request must be answered, and saved rules do not apply.
        """
        if self._saved_rules is None or place.has_child_outcome("permission_asked#1"):
            return False
        return await self._saved_rules.refresh()

    async def permit(self, place: Scope, wanted: EngineAction) -> str:
        """Return why an engine's own action is refused, or an empty string if the action is permitted.

        The start of a permitted action is recorded. If an approved action was interrupted and starts again, it needs no
        new approval, but the rules and hooks can still deny it.
        """
        action = self._build_action(place, wanted.tool, wanted)
        began = place.child("action_began#1").find_outcome(ActionBegan)
        is_resumed = began is not None and began.action.digest == action.digest
        if not is_resumed:
            await self._rate_limit.acquire()
        verdict, _ = await self._check_action(place, action, wanted)
        allowed_by = verdict.rule or verdict.reason
        if verdict.decision == "deny":
            return self._refuse_action(place, action, verdict.reason).refusal
        if verdict.decision == "ask":
            if wanted.impossible and not place.has_child_outcome("permission_asked#1"):
                return self._refuse_action(place, action, f"nobody was asked: {wanted.impossible}").refusal
            answered, action = await self._ask_permission(
                place, action, reason=verdict.reason, shown=wanted.shown, agent_reason=wanted.agent_reason
            )
            if not answered.is_allowed:
                return self._refuse_action(place, action, _describe_refusal(answered)).refusal
            allowed_by = answered.by or "a person"
        self._allowance.require_file_budget(set(wanted.outputs), agent=self._agent)
        await self._before_change()
        place.record(ActionBegan(action=action, allowed_by=allowed_by))
        return ""

    def record_unrequested(self, place: Scope, action: EngineAction) -> None:
        """Record that an engine has started an action without requesting permission."""
        place.record(ActionBegan(action=self._build_action(place, action.tool, action), allowed_by=UNREQUESTED))

    async def _ask_permission(
        self, place: Scope, action: Action, *, reason: str, shown: str, agent_reason: str, can_be_rule: bool = True
    ) -> tuple[PermissionAnswered, Action]:
        """Return the answer to a permission request and the requested action. If nobody answers, deny the request.

        `can_be_rule` is whether the answer can be saved as a rule.
        """
        timeline = place.timeline
        if approver := timeline.index.requests.find_approver(action, shown):
            return PermissionAnswered(id="", decision="run", by=approver), action
        while True:
            new = self._build_request(place, action, reason=reason, shown=shown, agent_reason=agent_reason)
            new = new if can_be_rule else structs.replace(new, always="")
            asked = place.record(new)
            if not must_ask_again(asked, timeline.index.requests.answers.get(asked.id), now=time.time()):
                answered = await self._ask_beside_hooks(place, asked)
                # Another machine may have recorded the request, and shown the person something else.
                is_unseen = asked.id != new.id and asked.shown != timeline.redaction.redact_text(shown)
                if not must_ask_again(asked, answered, now=time.time()) and not (is_unseen and answered.is_allowed):
                    return answered, asked.action

    def _build_request(
        self, place: Scope, action: Action, *, reason: str, shown: str, agent_reason: str
    ) -> PermissionAsked:
        from ..policy.risk_facts import find_risk_facts  # imported here for start-up time: most runs make no requests

        now, denials = time.time(), place.timeline.index.requests.denials
        expires = 0.0 if self._unattended == "park" else compute_expiry(now, self._approval_seconds)
        return PermissionAsked(
            id=secrets.token_hex(6),
            action=structs.replace(action, asked_at=now, expires_at=expires, nonce=secrets.token_hex(8)),
            reason=reason,
            shown=place.timeline.redaction.redact_text(shown),
            always=generalised(action) or "",
            denied=tuple(_describe_denial(denial, now) for denial in denials.get(action.effect_hash, ())),
            risks=find_risk_facts(action),
            agent_reason=agent_reason,
        )

    async def _ask_beside_hooks(self, place: Scope, asked: PermissionAsked) -> PermissionAnswered:
        """Run the hooks for a request while waiting for its answer. Return the answer when both have finished."""
        hooks = self._hooks
        if hooks is None or not hooks.has_hooks("permission_asked", asked.action.tool):
            return await self._wait_decision(place, asked)
        try:
            async with create_task_group() as group:
                group.start_soon(hooks.report_request, place, asked)
                answered = await self._wait_decision(place, asked)
        except ExceptionGroup as errors:
            raise find_first_error(errors) from errors
        return answered

    async def _wait_decision(self, place: Scope, asked: PermissionAsked) -> PermissionAnswered:
        timeline = place.timeline
        known = timeline.index.requests.answers.get(asked.id)
        if isinstance(known, PermissionAnswered):
            return known
        if self._unattended == "deny":
            return place.record(_deny_request(asked, "nobody is available to answer", channel="unattended"))
        await timeline.wait_written()
        if self._unattended == "park":
            timeline.work.pause()
            await timeline.work.wait_while_paused()
        timeline.links.report_waiting(asked.id)
        with timeline.work.timeouts.pause_timeouts(place.path), move_on_after(self._approval_seconds):
            answered = await timeline.index.requests.wait_answer(asked.id)
            assert isinstance(answered, PermissionAnswered)
            return answered
        await timeline.work.wait_while_paused()
        return place.record(_deny_request(asked, describe_timeout(self._approval_seconds), channel="timeout"))

    async def _execute_call(self, place: Scope, prepared: PreparedCall) -> ToolAnswer:
        if prepared.is_read_only or prepared.is_repeatable:
            # The call can safely be executed again, so it need not wait until the entries before it are written.
            await place.timeline.work.wait_while_paused()
            return await prepared.act()
        async with place.timeline.work.effect:
            return await prepared.act()

    def _build_action(self, place: Scope, tool: str, prepared: PreparedCall | EngineAction) -> Action:
        return Action(
            run=place.timeline.run,
            agent=self._agent,
            tool=tool,
            arguments=dict(prepared.arguments),
            directory=prepared.directory or next(iter(self.checkouts), ""),
            sandbox=prepared.sandbox,
            inputs=dict(prepared.inputs),
            outputs=dict(prepared.outputs),
            diff=compute_digest(prepared.shown) if prepared.shown else "",
        )

    def _refuse_action(self, place: Scope, action: Action, reason: str) -> ToolAnswer:
        place.record(ActionRefused(action=action, reason=reason))
        return ToolAnswer(
            text=f"Not done: {reason}. Do not try to achieve the same effect another way; continue without it, or say "
            "what you need.",
            is_error=True,
            refusal=reason,
        )


def _add_context(answer: ToolAnswer, context: str) -> ToolAnswer:
    return replace(answer, text=f"{answer.text}\n{context}") if context else answer


def _find_agent_reason(reply: ModelReplied | None, call: ToolUse) -> str:
    """Return the agent's own reason for a call as one line, or an empty string if the reply does not contain the call.

    The reason is the end of the reply's text or, if the reply has no text, the end of its reasoning.
    """
    if reply is None or all(one.id != call.id for one in reply.calls):
        return ""
    said = " ".join((reply.text.strip() or reply.reasoning).split())
    return said if len(said) <= LONGEST_REASON else f"…{said[1 - LONGEST_REASON :]}"


def _deny_request(asked: PermissionAsked, why: str, *, channel: Channel) -> PermissionAnswered:
    return PermissionAnswered(id=asked.id, decision="deny", by="podium", comment=why, channel=channel)


def _describe_denial(denial: Denial, now: float) -> str:
    why = f": {denial.comment}" if denial.comment else ""
    return f"{denial.by} denied this action for {denial.agent} {_format_age(now - denial.at)}{why}"


def _format_age(seconds: float) -> str:
    return f"{seconds / 60:.0f} min ago" if seconds >= 90 else f"{max(seconds, 0):.0f} s ago"


def _describe_refusal(answered: PermissionAnswered) -> str:
    if answered.by in ("", "podium"):
        return answered.comment or "it was refused"
    return f"{answered.by} refused it: {answered.comment}" if answered.comment else f"{answered.by} refused it"
