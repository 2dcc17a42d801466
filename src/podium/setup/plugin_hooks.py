"""Call hooks implemented as plug-in functions, with a time limit."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import isawaitable
from typing import Any

import msgspec
from anyio import move_on_after, to_thread

from ..core.run_hooks import HookResult
from ..system.installed_plugins import find_plugin
from ..values.errors import Mistake
from ..values.hook import Hook, HookEvent
from .hook_calls import read_reply_fields


async def call_plugin_hook(hook: Hook, event: HookEvent, payload: bytes) -> HookResult:
    """Call a plug-in's function for an event and return the outcome. An exception in the function is a failure."""
    try:
        plugin = await to_thread.run_sync(find_plugin, hook.plugin)
    except Mistake as error:
        return HookResult(outcome="failed", reason=str(error))
    function = plugin.hooks.get(event)
    if function is None:
        return HookResult(outcome="failed", reason=f"the plug-in {hook.plugin} has no hook for {event}")
    fields: dict[str, Any] = msgspec.json.decode(payload)
    with move_on_after(hook.timeout):
        try:
            # A function that is not async may block, so it runs in a thread, which is abandoned after a timeout.
            reply = await to_thread.run_sync(function, fields, abandon_on_cancel=True)
            reply = await reply if isawaitable(reply) else reply
        except Exception as error:
            return HookResult(outcome="failed", reason=f"{type(error).__name__}: {error}")
        if reply is not None and not isinstance(reply, Mapping):
            return HookResult(outcome="failed", reason=f"expected a mapping or None, got {type(reply).__name__}")
        return read_reply_fields(dict(reply or {}))
    return HookResult(outcome="failed", reason=f"timed out after {hook.timeout:g} s")
