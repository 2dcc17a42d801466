"""Hooks: commands and functions that are called when something happens in a run or before a merge."""

from typing import Annotated, Literal, get_args

from msgspec import Struct

from .key import Key

HookEvent = Literal[
    "run_started", "run_ended", "before_tool", "after_tool", "permission_asked", "worker_ended", "before_merge"
]
HOOK_EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)

AGENT_HOOK_EVENTS: tuple[HookEvent, ...] = ("before_tool", "after_tool", "permission_asked")
"""The events for which an agent's file can have hooks. They are called for that agent's actions."""

HookOutcome = Literal["passed", "denied", "failed"]
"""How a hook ended. A hook for a `before_…` event that failed counts as a denial."""

DEFAULT_HOOK_TIMEOUT = 30.0


class Hook(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command, or a plug-in whose function is called.

    `tools` limits the hook to these tools; empty means all tools. If `is_foreign` is true, the command was written
    for another program, and also receives the fields that the other program passes. `cwd` is the folder that the
    command starts in, relative to the repository; empty means the checkout in the sandbox, and an empty folder outside.
    """

    command: Annotated[tuple[str, ...], Key("a shell command, or `[program, argument, …]`", kind="command")] = ()
    plugin: Annotated[
        str, Key("the name of a [plug-in](plugins.md) whose function is called instead of a command", kind="line")
    ] = ""
    tools: Annotated[
        tuple[str, ...],
        Key(
            "the tools for which the hook runs: names such as `Bash` or `write_file`, or patterns such as `mcp__*`",
            default="all tools",
            kind="tool patterns",
        ),
    ] = ()
    timeout: Annotated[float, Key("seconds after which the hook is terminated")] = DEFAULT_HOOK_TIMEOUT
    sandbox: Annotated[
        bool,
        Key(
            "`false`: the command runs without the [sandbox](sandbox.md). Only your own settings can turn the sandbox "
            "off",
            kind="hook sandbox",
            scope="user",
        ),
    ] = True
    is_foreign: bool = False
    cwd: Annotated[
        str,
        Key(
            "the folder that the command starts in, relative to the repository; see [Where hooks "
            "run](#where-hooks-run)",
            kind="line",
        ),
    ] = ""

    @property
    def label(self) -> str:
        """The hook as it is shown to the user: its command line, or its plug-in."""
        if self.plugin:
            return f"plug-in {self.plugin}"
        is_shell = len(self.command) == 3 and self.command[:2] == ("sh", "-c")
        return self.command[2] if is_shell else " ".join(self.command)


HookTable = dict[str, tuple[Hook, ...]]
"""The hooks for each event, in the order in which they are called."""
