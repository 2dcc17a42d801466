"""The gate: the one door through which agents act on the outside.

Policy, then a person where the policy says so, then the intent on the timeline, then the deed. A
tool that acts is given to a mind through the gate of its operation, and runs nowhere else. What a
person approved is what is done: the deed is made ready again after the answer, and one that came
out different is asked about anew.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from math import isinf
from typing import Any, Protocol

from anyio import move_on_after
from msgspec import structs

from ..policy import Verdict, generalised
from ..values.action import Action
from ..values.event import ActionBegan, ActionRefused, PermissionAnswered, PermissionAsked, QuestionAnswered, ToolUse
from ..values.limits import Unattended
from .budget import Allowance
from .engine import Tool, ToolAnswer
from .rate_limit import Pace
from .scope import Scope
from .timeline import Denial, digest

# What acting tools are


class Unfit(Exception):
    """A call that cannot be made as it is; its text tells the model what would work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """One call of an acting tool, made ready: all that it would do, and the doing of it.

    `arguments` are the call's in canonical form, paths resolved; rules decide on them. `inputs` and
    `outputs` are hashes of the files that it changes, before and after. `shown` is what a person
    who is asked sees besides the arguments, such as a diff; `sandbox` what bounds a command. What only
    reads leaves nothing to undo; what is repeatable may be done again, too.
    """

    arguments: Mapping[str, Any]
    act: Callable[[], Awaitable[ToolAnswer]]
    is_reading: bool = False
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    shown: str = ""
    changed_lines: int = 0
    sandbox: str = ""
    is_repeatable: bool = False


class Acting(Protocol):
    """A tool that acts on the outside."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> dict[str, Any]: ...

    @property
    def timeout(self) -> float:
        """How many seconds the deed may take."""
        ...

    @property
    def is_parallel(self) -> bool:
        """Whether several calls may be under way at once: so for what only reads."""
        ...

    async def prepare(self, call: ToolUse) -> Deed:
        """The call made ready, with nothing done yet. Raises Unfit."""
        ...

    async def recover(self, began: Action) -> ToolAnswer | None:
        """What to say of an action that had begun when its process died; None where it can simply be done (again)."""
        ...


def interrupted(tool: str) -> ToolAnswer:
    """What to say of an action of which nobody knows how far it came."""
    return ToolAnswer(
        text=f"{tool} was interrupted when its process died. It may have run in part or whole, and was not "
        "started again: look at what is there before you repeat it.",
        is_error=True,
    )


# The gate

Judge = Callable[[Action, int], Verdict]
"""What the rules say about an action that changes so many lines."""


class Gate:
    """The door of one operation. `unattended` is None where somebody is there."""

    def __init__(
        self,
        judge: Judge,
        *,
        agent: str,
        directory: str,
        allowance: Allowance,
        pace: Pace,
        unattended: Unattended | None,
        patience: float,
    ) -> None:
        self._judge = judge
        self._agent = agent
        self._directory = directory
        self._allowance = allowance
        self._pace = pace
        self._unattended = unattended
        self._patience = patience

    def offer(self, acting: Acting, *, is_given: bool = False) -> Tool:
        """The tool as a mind may have it. One that is given in code may be used where no rule says otherwise."""

        async def answer(call: ToolUse, place: Scope) -> ToolAnswer:
            return await self._answer(acting, call, place, is_given=is_given)

        return Tool(
            name=acting.name,
            description=acting.description,
            parameters=acting.parameters,
            answer=answer,
            timeout=acting.timeout,
            is_step=True,
            is_parallel=acting.is_parallel,
        )

    async def _answer(self, acting: Acting, call: ToolUse, place: Scope, *, is_given: bool) -> ToolAnswer:
        began = place.at("action_began#1").recall(ActionBegan)
        if began is not None:
            recovered = await acting.recover(began.action)
            if recovered is not None:
                return recovered
        try:
            deed = await acting.prepare(call)
            if began is None or self._action(place, call, deed).digest != began.action.digest:
                return await self.perform(place, acting, call, deed, is_given=is_given)
            verdict = self._judge(began.action, deed.changed_lines)
            if verdict.decision == "deny":
                return self._refused(place, began.action, verdict.reason)
            return await self._done(place, deed)
        except Unfit as error:
            return ToolAnswer(text=str(error), is_error=True)

    async def perform(
        self, place: Scope, acting: Acting, call: ToolUse, deed: Deed, *, is_given: bool = False
    ) -> ToolAnswer:
        """Do it if it may be done: policy, ask, intent, act. The outcome is recorded by whoever called the tool."""
        await self._pace.begin()
        action = self._action(place, call, deed)
        verdict = self._judge(action, deed.changed_lines)
        allowed_by = verdict.rule or verdict.reason
        while verdict.decision == "ask" and not (is_given and verdict.rule is None):
            answered, approved = await self.permit(place, action, reason=verdict.reason, shown=deed.shown)
            if not answered.is_allowed:
                return self._refused(place, approved, _told(answered))
            allowed_by = answered.by or "a person"
            deed = await acting.prepare(call)
            action = self._action(place, call, deed)
            if action.digest == approved.digest:
                action = approved
                break
            verdict = self._judge(action, deed.changed_lines)
        if verdict.decision == "deny":
            return self._refused(place, action, verdict.reason)
        self._allowance.must_change(set(deed.outputs), agent=self._agent)
        if not deed.is_reading:
            place.record(ActionBegan(action=action, allowed_by=allowed_by, is_repeatable=deed.is_repeatable))
        return await self._done(place, deed)

    async def permit(
        self, place: Scope, action: Action, *, reason: str, shown: str
    ) -> tuple[PermissionAnswered, Action]:
        """A person's answer, and the action as it was put to them; where nobody is there it is a refusal."""
        timeline = place.timeline
        if action.again in timeline.approved:
            return PermissionAnswered(id="", decision="run", by=timeline.approved[action.again]), action
        while True:
            asked = place.record(self._request(place, action, reason=reason, shown=shown))
            if not _is_void(asked, timeline.answers.get(asked.id)):
                answered = await self._decided(place, asked)
                if not _is_void(asked, answered):
                    return answered, asked.action

    def _request(self, place: Scope, action: Action, *, reason: str, shown: str) -> PermissionAsked:
        now = time.time()
        expires = 0.0 if isinf(self._patience) or self._unattended == "park" else now + self._patience
        return PermissionAsked(
            id=secrets.token_hex(6),
            action=structs.replace(action, asked_at=now, expires_at=expires, nonce=secrets.token_hex(8)),
            reason=reason,
            shown=shown,
            always=generalised(action) or "",
            denied=tuple(_remembered(denial, now) for denial in place.timeline.denials.get(action.wish, ())),
        )

    async def _decided(self, place: Scope, asked: PermissionAsked) -> PermissionAnswered:
        timeline = place.timeline
        known = timeline.answers.get(asked.id)
        if isinstance(known, PermissionAnswered):
            return known
        if self._unattended == "deny":
            return place.record(_denied(asked, "nobody is there to ask"))
        await timeline.settled()
        if self._unattended == "park":
            timeline.pause()
            await timeline.still()
        with timeline.clock.waiting(place.path), move_on_after(self._patience):
            answered = await timeline.answer(asked.id)
            assert isinstance(answered, PermissionAnswered)
            return answered
        await timeline.still()
        return place.record(_denied(asked, f"nobody answered within {self._patience:g} s"))

    async def _done(self, place: Scope, deed: Deed) -> ToolAnswer:
        if deed.is_reading or deed.is_repeatable:
            # Nothing is lost where this is done again, so it need not wait until what led to it is written.
            await place.timeline.still()
            return await deed.act()
        async with place.timeline.effect:
            return await deed.act()

    def _action(self, place: Scope, call: ToolUse, deed: Deed) -> Action:
        return Action(
            run=place.timeline.run,
            agent=self._agent,
            tool=call.name,
            arguments=dict(deed.arguments),
            directory=self._directory,
            sandbox=deed.sandbox,
            inputs=dict(deed.inputs),
            outputs=dict(deed.outputs),
            diff=digest(deed.shown) if deed.shown else "",
        )

    def _refused(self, place: Scope, action: Action, reason: str) -> ToolAnswer:
        place.record(ActionRefused(action=action, reason=reason))
        return ToolAnswer(
            text=f"Not done: {reason}. Do not try to get the same effect another way; go on without it, or say "
            "what you would need.",
            is_error=True,
            refusal=reason,
        )


def _denied(asked: PermissionAsked, why: str) -> PermissionAnswered:
    return PermissionAnswered(id=asked.id, decision="deny", by="podium", comment=why)


def _is_void(asked: PermissionAsked, answered: PermissionAnswered | QuestionAnswered | None) -> bool:
    """Whether a request has expired without an answer in time, and has to be put anew."""
    expires = asked.action.expires_at
    if not expires or (isinstance(answered, PermissionAnswered) and not answered.is_allowed):
        return False
    return (time.time() if answered is None else getattr(answered, "at", 0.0)) > expires


def _remembered(denial: Denial, now: float) -> str:
    why = f": {denial.comment}" if denial.comment else ""
    return f"{denial.by} refused this to {denial.agent} {_ago(now - denial.at)}{why}"


def _ago(seconds: float) -> str:
    return f"{seconds / 60:.0f} min ago" if seconds >= 90 else f"{max(seconds, 0):.0f} s ago"


def _told(answered: PermissionAnswered) -> str:
    who = "it was refused" if answered.by in ("", "podium") else f"{answered.by} refused it"
    return f"{who}: {answered.comment}" if answered.comment else who
