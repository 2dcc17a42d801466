"""Events about hooks, which are called when something happens in a run."""

from ..hook import HookEvent, HookOutcome
from .base_event import EventBase


class HookRan(EventBase, frozen=True, kw_only=True, tag="hook_ran"):
    """A hook was called. It passed, denied the action, or failed.

    `hook` is its command line or plug-in. `agent` is the agent whose file defines the hook, or empty if the settings
    define it. `reason` says why it denied the action or failed. `context` is the text that it added for the agent.
    """

    event: HookEvent
    hook: str
    outcome: HookOutcome
    agent: str = ""
    reason: str = ""
    context: str = ""
    seconds: float = 0.0
