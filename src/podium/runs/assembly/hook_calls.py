"""Call hooks and read their replies.

A hook is a command or a plug-in function. Commands run in the sandbox unless the user's settings turn it off. Outside
the sandbox, a command starts in an empty folder and cannot use files of a checkout: a command that names such files
needs the user's trust in their content, and runs in the sandbox nevertheless.

A command receives the event as JSON on standard input. If it exits with code 0, its output may be a JSON object with
the keys `decision`, `reason` and `context`. A hook denies an action or a merge with the decision `deny`. A command can
also deny it by exiting with any code other than 0. A timeout, too much output or an unknown decision is a failure. If a
hook fails before an action or a merge, the action or merge is denied.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from inspect import isawaitable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from anyio import move_on_after, to_thread

from ...core.gate import InvalidCall
from ...core.run_hooks import HookResult
from ...files.program_start import ProgramStart, join_paths, plan_start
from ...files.settings import Settings
from ...files.trust import Trust
from ...files.trust_proposal import build_own_trust_name, identify_hook, needs_no_sandbox
from ...system.checkouts import find_checkouts
from ...system.child_process import OutputBuffer, build_environment, run_process
from ...system.installed_plugins import find_plugin
from ...system.process_group import ProgramNotStarted
from ...system.unsandboxed_program import (
    REPO_VARIABLE,
    build_unsandboxed_environment,
    find_unsandboxed_program,
    open_start_folder,
)
from ...tools.command_sandbox import CommandSandbox
from ...tools.shell import CommandOutput
from ...values.errors import Mistake
from ...values.hook import Hook, HookEvent
from ...values.plain_text import escape_unprintable, truncate_text
from ...values.worker_task import RunCheckout, list_folders
from .install_choice import find_install_settings
from .sandbox_choice import choose_sandbox

LARGEST_OUTPUT = 64 * 1024
ERROR_TAIL = 2 * 1024
LONGEST_REASON = 1_000
ALLOWING = ("", "allow", "approve")
DENYING = ("deny", "block")


@dataclass(frozen=True, slots=True, kw_only=True)
class _HookStart:
    """How a hook's command starts: its words, its folder (None for an empty one), and whether it is in the sandbox."""

    command: list[str]
    folder: Path | None
    is_sandboxed: bool


class HookCalls:
    """Calls the hooks of one run or merge, in its primary checkout. Close it after use.

    The user's trust applies in the repository of that checkout. Without a checkout, hooks run in a temporary folder.
    """

    def __init__(self, settings: Settings, checkouts: Sequence[RunCheckout]) -> None:
        directory = Path(checkouts[0].path) if checkouts else None
        self._settings = settings
        self._root = Path(checkouts[0].root) if checkouts else None
        self._checkouts = find_checkouts(*list_folders(checkouts))
        self._variables = {} if directory is None else {REPO_VARIABLE: str(directory)}
        self._directory = directory
        self._sandboxes: dict[tuple[Path, ...], CommandSandbox] = {}
        self._exit_stack = ExitStack()

    async def call(self, hook: Hook, event: HookEvent, payload: bytes) -> HookResult:
        """Call a hook with an event and return the outcome. A failing hook does not raise an error."""
        try:
            if hook.plugin:
                result = await _call_plugin(hook, event, payload)
            else:
                result = await self._run_command(hook, event, payload)
        except (InvalidCall, Mistake) as error:
            return HookResult(outcome="failed", reason=str(error).rstrip("."))
        except ProgramNotStarted as error:
            return HookResult(outcome="failed", reason=f"{hook.command[0]} cannot be started: {error}")
        # A hook cannot deny something that has already happened.
        is_too_late = result.outcome == "denied" and not event.startswith("before_")
        return replace(result, outcome="failed") if is_too_late else result

    async def _run_command(self, hook: Hook, event: HookEvent, payload: bytes) -> HookResult:
        output, errors = OutputBuffer(LARGEST_OUTPUT), CommandOutput(start=0, end=ERROR_TAIL)
        start = await to_thread.run_sync(self._plan_hook, hook, event)
        command, environment = start.command, build_environment() | self._variables
        if start.is_sandboxed:
            sandbox = await self._find_sandbox(command, self._find_directory())
            command = sandbox.wrap_with_input(command) if sandbox.wrap_with_input else command
            opening: Any = nullcontext(start.folder)
        else:
            # Variables that name the checkout are left out, except the one that tells where it is.
            program = find_unsandboxed_program(command[0], environment["PATH"], self._checkouts)
            command = [program, *command[1:]]
            environment = build_unsandboxed_environment(build_environment(), self._checkouts) | self._variables
            home = self._settings.home
            opening = nullcontext(start.folder) if start.folder else open_start_folder(home, self._checkouts)
        with opening as directory:
            ended = await run_process(
                command,
                env=environment,
                directory=directory,
                timeout=hook.timeout,
                take=output.append,
                take_stderr=errors.append_chunk,
                stdin=payload,
            )
        if ended.has_timed_out:
            return HookResult(outcome="failed", reason=f"timed out after {hook.timeout:g} s")
        if output.is_cut:
            return HookResult(outcome="failed", reason=f"printed more than {LARGEST_OUTPUT // 1024} KiB")
        if ended.code != 0:
            reason = _clean_text(str(errors)) or _clean_text(bytes(output).decode(errors="replace"))
            return HookResult(outcome="denied", reason=reason or f"it exited with {ended}")
        return read_reply(bytes(output))

    def _plan_hook(self, hook: Hook, event: HookEvent) -> _HookStart:
        """Return how a hook starts. Raise Mistake if its paths are refused, or the user does not trust its files."""
        command, here = [_expand_home(word) for word in hook.command], self._find_directory()
        if not needs_no_sandbox(hook):
            folder = here / hook.cwd
            if not folder.resolve().is_relative_to(here.resolve()):
                raise Mistake(f"cwd: {hook.cwd} is outside the checkout, where a hook in the sandbox cannot start")
            return _HookStart(command=command, folder=folder, is_sandboxed=True)
        plan = plan_start(
            command,
            cwd=hook.cwd,
            env={},
            repo=here if self._variables else None,
            checkouts=self._checkouts,
            variables=build_environment() | self._variables,
        )
        if not plan.is_dependent:
            return _HookStart(command=command, folder=plan.folder, is_sandboxed=False)
        self._require_trust(hook, event, plan)
        return _HookStart(command=command, folder=plan.folder or here, is_sandboxed=True)

    def _require_trust(self, hook: Hook, event: HookEvent, plan: ProgramStart) -> None:
        key, digest = identify_hook(event, hook)
        name, trust = build_own_trust_name(key, self._root), Trust.load(self._settings.home)
        if not trust.is_trusted("settings", name, plan.compute_digest(digest)):
            raise Mistake(
                f"the hook uses the checkout ({join_paths(plan.content) or hook.cwd}), which agents' commands can "
                "change, and is not called until you trust it with podium trust"
            )

    async def _find_sandbox(self, command: list[str], directory: Path) -> CommandSandbox:
        """Return the sandbox for a hook. Programs that its command names by absolute path are available inside."""
        readable = await to_thread.run_sync(_find_named_paths, command, directory)
        if readable not in self._sandboxes:
            settings = self._settings
            found = await choose_sandbox(
                [directory],
                settings.home,
                settings.store,
                is_wanted=settings.sandbox,
                readable=readable,
                installs=await to_thread.run_sync(find_install_settings, settings, directory),
            )
            self._sandboxes[readable] = found
            self._exit_stack.callback(found.clean_up)
        return self._sandboxes[readable]

    def _find_directory(self) -> Path:
        if self._directory is None or not self._directory.is_dir():
            self._directory = Path(self._exit_stack.enter_context(TemporaryDirectory(prefix="podium-hook-")))
        return self._directory

    def close(self) -> None:
        """Remove the temporary files created for the calls."""
        self._exit_stack.close()


async def _call_plugin(hook: Hook, event: HookEvent, payload: bytes) -> HookResult:
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
        return _read_hook_reply(dict(reply or {}))
    return HookResult(outcome="failed", reason=f"timed out after {hook.timeout:g} s")


def read_reply(output: bytes) -> HookResult:
    """Parse a hook's output. Text that is not a JSON object has no effect; an unknown decision is a failure."""
    try:
        found = msgspec.json.decode(output.strip() or b"{}")
    except msgspec.MsgspecError:
        found = {}
    return _read_hook_reply(found if isinstance(found, dict) else {})


def _read_hook_reply(fields: dict[str, Any]) -> HookResult:
    """Read the decision, reason and context from a hook's reply.

    The fields of `hookSpecificOutput`, which hooks written for other programs use, are accepted too.
    """
    nested = fields.get("hookSpecificOutput")
    nested = nested if isinstance(nested, dict) else {}
    decision = fields.get("decision") or nested.get("permissionDecision") or ""
    reason = _clean_text(str(fields.get("reason") or nested.get("permissionDecisionReason") or ""))
    context = str(fields.get("context") or nested.get("additionalContext") or "")
    if decision in DENYING:
        return HookResult(outcome="denied", reason=reason)
    if decision not in ALLOWING:
        return HookResult(outcome="failed", reason=f"unknown decision {_clean_text(str(decision))!r}; expected deny")
    return HookResult(outcome="passed", reason=reason, context=context)


def _clean_text(text: str) -> str:
    return truncate_text(escape_unprintable(text.strip()), LONGEST_REASON)


def _expand_home(word: str) -> str:
    return str(Path(word).expanduser()) if word.startswith("~/") else word


def _find_named_paths(command: list[str], directory: Path) -> tuple[Path, ...]:
    """Return the programs outside `directory` that a command line names by absolute path."""
    words = list(command)
    for word in command[2:] if command[:2] == ["sh", "-c"] else ():
        try:
            words += map(_expand_home, shlex.split(word))
        except ValueError:
            continue  # the shell reports the unmatched quote
    paths = (Path(word) for word in words if word.startswith("/"))
    # The sandbox makes the named files readable. Only programs are included, so that a hook proposed by a repository
    # cannot read a file with secrets by naming it.
    programs = (path for path in paths if path.is_file() and os.access(path, os.X_OK))
    return tuple(dict.fromkeys(path for path in programs if not path.is_relative_to(directory)))
