"""Call the hooks of a run, and record how each call ended.

A call is a step: a resumed run does not repeat a call whose end is on the timeline. A hook that was running when the
process died is called again, and so is a hook that passed an action on another machine of a fleet. Hooks can deny an
action or add context, but never allow anything.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import msgspec

from ..policy.rule import normalise_tool_name
from ..values.action import Action
from ..values.agent import Agent
from ..values.event import HookRan, PermissionAsked, ToolUse
from ..values.hook import Hook, HookEvent, HookOutcome, HookTable
from ..values.json import JsonObject
from ..values.plain_text import truncate_text
from .engine import ToolAnswer
from .journal_rows import compute_digest
from .scope import Scope
from .timeline import Timeline

LONGEST_ANSWER = 64 * 1024
"""The maximum number of characters of a tool's answer that a hook gets."""
LONGEST_CONTEXT = 8 * 1024
LONGEST_LABEL = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class HookResult:
    """How a hook call ended, the reason, and the context that the hook adds."""

    outcome: HookOutcome
    reason: str = ""
    context: str = ""


CallHook = Callable[[Hook, HookEvent, bytes], Awaitable[HookResult]]
"""Calls a hook for an event, with the event's fields as JSON. Limits the hook's time and output, and never raises."""


class HookReply(NamedTuple):
    """The combined reply of all hooks for an event: why the action is denied, if it is, and the context to add."""

    denial: str = ""
    context: str = ""


NO_REPLY = HookReply()


class RunHooks:
    """The hooks of a run. `hooks_of_agent` returns the hooks in an agent's file, if they may be called."""

    def __init__(
        self,
        timeline: Timeline,
        call_hook: CallHook,
        hooks: HookTable,
        *,
        repo: str,
        hooks_of_agent: Callable[[Agent], HookTable] = lambda agent: {},
        close: Callable[[], object] = lambda: None,
    ) -> None:
        self._timeline = timeline
        self._call_hook = call_hook
        self._hooks = hooks
        self._repo = repo
        self._hooks_of_agent = hooks_of_agent
        self._called: set[str] = set()
        """The calls that this process has made or is making."""
        self.close: Callable[[], object] = close
        """Removes the temporary files of the hook calls."""

    def for_agent(self, agent: Agent) -> ActionHooks | None:
        """Return the hooks for an agent's actions, or None if there are none."""
        own = self._hooks_of_agent(agent)
        return ActionHooks(self, agent, own) if own or self._hooks else None

    async def report_run(self, event: HookEvent, fields: JsonObject) -> None:
        """Call the hooks for an event of the whole run."""
        place = Scope(self._timeline, "", operation="", digest="")
        for hook in self._hooks.get(event, ()):
            await self.call(hook, event, place, fields)

    def select_hooks(self, event: HookEvent, tool: str) -> list[Hook]:
        """Return the hooks in the settings for this event and this tool."""
        return [hook for hook in self._hooks.get(event, ()) if _is_hook_for(hook, tool)]

    async def call(
        self,
        hook: Hook,
        event: HookEvent,
        place: Scope,
        fields: JsonObject,
        *,
        about: str = "",
        agent: str = "",
    ) -> HookRan:
        """Call a hook once and record how it ended. `about` distinguishes calls for different actions in a scope."""
        name = f"hook:{event}:{compute_digest(hook, about, agent)}"
        step = place.child(f"{name}#1")
        known = step.find_outcome(HookRan)
        is_own = not self._timeline.index.requests.has_foreign_entries
        is_believed = is_own or event != "before_tool" or step.path in self._called
        if known is not None and known.outcome == "passed" and not is_believed:
            # Another machine recorded the pass, perhaps without calling the hook.
            step = place.child(f"{name}#{self._timeline.epoch}")
            known = step.find_outcome(HookRan) if step.path in self._called else None
        if known is not None:
            return known
        self._called.add(step.path)
        payload = self._encode_payload(hook, event, fields)
        # A pause does not block the hooks of the whole run: those at its end must run even if a pause was requested.
        effect: AbstractAsyncContextManager[None] = self._timeline.work.effect if place.path else nullcontext()
        with self._timeline.work.timeouts.pause_timeouts(place.path):
            async with effect:
                await self._timeline.wait_written()
                began = time.monotonic()
                result = await self._call_hook(hook, event, payload)
        return step.record_outcome(
            HookRan(
                event=event,
                hook=truncate_text(hook.label, LONGEST_LABEL),
                outcome=result.outcome,
                agent=agent,
                reason=result.reason,
                context=truncate_text(result.context, LONGEST_CONTEXT),
                seconds=round(time.monotonic() - began, 3),
            )
        )

    def _encode_payload(self, hook: Hook, event: HookEvent, fields: JsonObject) -> bytes:
        given = {"event": event, "run": self._timeline.run, "repo": self._repo, **fields}
        if hook.is_foreign:
            given |= _build_foreign_input(event, given)
        return self._timeline.redaction.redact_line(msgspec.json.encode(given)) + b"\n"


class ActionHooks:
    """The hooks for the actions of one agent."""

    def __init__(self, run_hooks: RunHooks, agent: Agent, own: HookTable) -> None:
        self._run_hooks = run_hooks
        self._agent = agent.name
        self._own = own

    async def check_action(self, place: Scope, action: Action) -> HookReply:
        """Call the hooks for an action that is about to be executed, until one of them denies it."""
        contexts: list[str] = []
        for hook, owner in self._select_hooks("before_tool", action.tool):
            fields = _build_action_input(action)
            ran = await self._run_hooks.call(hook, "before_tool", place, fields, about=action.digest, agent=owner)
            if ran.outcome != "passed":
                return HookReply(denial=describe_denial(ran))
            contexts += [f"[a hook adds: {ran.context}]"] if ran.context else []
        return HookReply(context="\n".join(contexts)) if contexts else NO_REPLY

    async def report_answer(self, call: ToolUse, place: Scope, answer: ToolAnswer) -> None:
        """Call the hooks for a tool call whose answer is recorded."""
        for hook, owner in self._select_hooks("after_tool", call.name):
            fields: JsonObject = {
                "agent": self._agent,
                "tool": call.name,
                "arguments": call.arguments,
                "answer": truncate_text(answer.text, LONGEST_ANSWER),
                "is_error": answer.is_error,
            }
            await self._run_hooks.call(hook, "after_tool", place, fields, agent=owner)

    async def report_request(self, place: Scope, asked: PermissionAsked) -> None:
        """Call the hooks for a permission request that is waiting for an answer."""
        for hook, owner in self._select_hooks("permission_asked", asked.action.tool):
            fields = {**_build_action_input(asked.action), "request": asked.id, "reason": asked.reason}
            await self._run_hooks.call(hook, "permission_asked", place, fields, about=asked.id, agent=owner)

    def has_hooks(self, event: HookEvent, tool: str) -> bool:
        """Return whether there is any hook for this event and this tool."""
        return bool(self._select_hooks(event, tool))

    def _select_hooks(self, event: HookEvent, tool: str) -> list[tuple[Hook, str]]:
        """Return the hooks for this event and this tool, each with the name of the agent whose file defines it.

        The name is empty for hooks from the settings.
        """
        return [
            *((hook, "") for hook in self._run_hooks.select_hooks(event, tool)),
            *((hook, self._agent) for hook in self._own.get(event, ()) if _is_hook_for(hook, tool)),
        ]


def _is_hook_for(hook: Hook, tool: str) -> bool:
    """Return whether a hook is called for a tool. Tools can be given as patterns such as `mcp__*`."""
    name = normalise_tool_name(tool)
    return not hook.tools or any(
        fnmatchcase(tool, one) or normalise_tool_name(one) == name or fnmatchcase(name, one) for one in hook.tools
    )


def describe_denial(ran: HookRan) -> str:
    """Return why an action was denied: a hook denied it, or a hook failed."""
    if ran.outcome == "denied":
        return f"a hook denied it: {ran.reason}" if ran.reason else "a hook denied it"
    return f"it was denied because a hook failed: {ran.reason}"


def _build_action_input(action: Action) -> JsonObject:
    return {
        "agent": action.agent,
        "tool": action.tool,
        "arguments": action.arguments,
        "directory": action.directory,
        "files": sorted(action.outputs),
    }


def _build_foreign_input(event: HookEvent, given: Mapping[str, Any]) -> JsonObject:
    """Return a hook's input in the format of another program, for hooks from that program's agent files."""
    arguments = dict(given.get("arguments", {}))
    if "path" in arguments:
        arguments["file_path"] = arguments["path"]
    return {
        "hook_event_name": "PreToolUse" if event == "before_tool" else "PostToolUse",
        "session_id": given["run"],
        "cwd": given.get("directory") or given["repo"],
        "tool_name": normalise_tool_name(given.get("tool", "")),
        "tool_input": arguments,
        "tool_response": {"text": given["answer"]} if "answer" in given else {},
    }
