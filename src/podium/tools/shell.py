"""Provide the tool `bash`, which runs shell commands in the checkout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

from anyio import to_thread
from msgspec import Meta

from ..core.engine import ToolAnswer
from ..core.gate import InvalidCall, PreparedCall, make_interrupted_answer
from ..core.tool_call import Arguments, build_schema, canonical_arguments, parse_arguments
from ..policy.impossible_commands import describe_git_write, find_git_write, find_unreachable_host
from ..policy.install_commands import is_installation, list_named_hosts, list_registries
from ..system.checkouts import is_own_folder
from ..system.child_process import ProcessExit, SandboxedCommand, Wrap, build_environment, run_process
from ..system.process_group import GRACE
from ..system.program_folders import describe_changed_programs
from ..values.action import Action
from ..values.event import ToolUse
from .command_files import hash_named_files, read_approved_scripts
from .command_sandbox import CommandSandbox, InstallSandbox, Seal
from .read_write_files import encode_utf8

SHELL = "/bin/bash"
LONGEST_COMMAND = 100_000
LONGEST_TIMEOUT = 600
KEPT = 16 * 1024
"""How many bytes are kept from the start of the output, and how many from its end."""


class CommandOutput:
    """The start and end of a command's output. The rest is discarded, so memory use is bounded."""

    def __init__(self, start: int = KEPT, end: int = KEPT) -> None:
        self._start = bytearray()
        self._end = bytearray()
        self._start_size = start
        self._end_size = end
        self._total = 0

    def append_chunk(self, chunk: bytes) -> bool:
        """Add a chunk of output. Always return True, because the amount of output is not limited."""
        self._total += len(chunk)
        room = self._start_size - len(self._start)
        self._start += chunk[:room]
        self._end += chunk[room:]
        if len(self._end) > self._end_size:
            del self._end[: len(self._end) - self._end_size]
        return True

    def format_tail(self, size: int) -> str:
        """Return the last `size` bytes of the output as text, after a note about the bytes that were cut.

        `size` must not exceed the number of bytes that are kept from the end.
        """
        tail = CommandOutput(start=0, end=size)
        tail.append_chunk(bytes(self._start + self._end))
        tail._total = self._total
        return str(tail)

    def __str__(self) -> str:
        cut = self._total - len(self._start) - len(self._end)
        if not cut:
            return (self._start + self._end).decode(errors="replace")
        start, end = (part.decode(errors="replace") for part in (self._start, self._end))
        return f"{start}\n[… {cut} bytes cut …]\n{end}" if start else f"[… {cut} bytes cut …]\n{end}"


class BashArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of bash."""

    command: str
    timeout: Annotated[int, Meta(ge=1, le=LONGEST_TIMEOUT, description="Seconds")] = 120


class Bash:
    """`bash`: runs one command until it exits or times out."""

    name = "bash"
    description = "Run a shell command without stdin. Its background processes are killed when it ends."
    parameters = build_schema(BashArguments)
    is_parallel = False
    timeout = LONGEST_TIMEOUT + 3 * GRACE

    def __init__(
        self,
        directory: Path,
        *others: Path,
        sandbox: CommandSandbox | None = None,
        is_committed: bool = False,
    ) -> None:
        self._directory = directory
        self._is_committed = is_committed
        self._checkouts = (directory, *others)
        self._sandbox = sandbox or CommandSandbox(name="none")

    async def prepare(self, call: ToolUse) -> PreparedCall:
        asked = parse_arguments(call, BashArguments)
        size = len(encode_utf8(asked.command, "command"))
        if not asked.command.strip() or "\0" in asked.command:
            raise InvalidCall("`command` is empty or contains a NUL; give a command as you would type it in a shell.")
        if size > LONGEST_COMMAND:
            raise InvalidCall(
                f"`command` has {size} bytes; the maximum is {LONGEST_COMMAND}; put it in a script and run the script."
            )
        install = await to_thread.run_sync(self._find_install_sandbox, asked.command)
        impossible = await to_thread.run_sync(self._explain_impossible, asked.command, install)
        inputs = await to_thread.run_sync(hash_named_files, asked.command, *self._checkouts)

        def prepare_in(sandbox: CommandSandbox | InstallSandbox) -> PreparedCall:
            return PreparedCall(
                arguments=canonical_arguments(asked),
                act=partial(self._run, asked, inputs, sandbox, hint),
                inputs=inputs,
                sandbox=sandbox.name,
                guard=sandbox.guard if isinstance(sandbox, InstallSandbox) else "",
                impossible=impossible,
            )

        hint = impossible
        if install is None or install.guard:
            return prepare_in(install or self._sandbox)
        opened = prepare_in(install)
        hint = "no hosts were opened for this installation, because nobody was asked: a rule allowed it"
        return replace(prepare_in(self._sandbox), if_asked=opened)

    async def _run(
        self, asked: BashArguments, inputs: Mapping[str, str], sandbox: CommandSandbox | InstallSandbox, hint: str
    ) -> ToolAnswer:
        """Run the command in a sandbox. If it fails, `hint` is added to its output."""
        argv = [SHELL, "-c", asked.command]
        if await to_thread.run_sync(hash_named_files, asked.command, *self._checkouts) != inputs:
            raise InvalidCall(
                "A file that the command refers to has changed since this call started; read it, then try again."
            )
        output = CommandOutput()
        sealed = await to_thread.run_sync(read_approved_scripts, asked.command, inputs, *self._checkouts)
        wrap, seal = sandbox.wrap, sandbox.seal
        if sealed and seal is not None:
            # The sandbox may belong to another checkout of the task, so the paths are absolute.
            top = self._directory.resolve()
            wrap = partial(_wrap_sealed, seal, {str(top / name): content for name, content in sealed.items()})
        ended = await run_command_line(argv, self._directory, asked.timeout, output, wrap)
        changed = await to_thread.run_sync(sandbox.list_changed) if isinstance(sandbox, InstallSandbox) else ()
        if hint and ended.code != 0:
            output.append_chunk(f"\n[{hint}]\n".encode())
        return _format_result(output, ended, asked.timeout, changed)

    def _find_install_sandbox(self, command: str) -> InstallSandbox | None:
        """Return the sandbox for a command that installs packages, or None if it needs no sandbox of its own."""
        if self._sandbox.open_for_install is None or not is_installation(command):
            return None
        return self._sandbox.open_for_install(list_named_hosts(command), list_registries(command))

    def _explain_impossible(self, command: str, install: InstallSandbox | None) -> str:
        """Return why a command cannot work in the sandbox and what works instead, or an empty string if it can."""
        sandbox = self._sandbox
        if sandbox.wrap is None or sandbox.refusal:
            return sandbox.refusal
        if written := find_git_write(command, partial(is_own_folder, self._directory)):
            return describe_git_write(written, is_committed=self._is_committed)
        if install is None and (host := find_unreachable_host(command, sandbox.hosts)):
            return (
                f"commands cannot reach {host}: the user has not granted it. If you have web_fetch, use it to read a "
                "page; otherwise, continue without it, or say that you need the host in the setting `network`."
            )
        return ""

    async def recover(self, began: Action) -> ToolAnswer | None:
        return make_interrupted_answer(self.name)


async def run_command_line(
    argv: list[str],
    directory: Path,
    timeout: float,
    output: CommandOutput,
    wrap: Wrap | None,
    *,
    environ: Mapping[str, str] | None = None,
) -> ProcessExit:
    """Run a command line, in the sandbox if there is one. Raise InvalidCall if the command cannot be started.

    The sandbox's notes about the command are added to its output. `environ` replaces the environment that commands
    inherit from this process; a sandbox has its own.
    """
    wrapped = wrap(argv) if wrap else argv
    try:
        ended = await run_process(
            wrapped, env=build_environment(environ), directory=directory, timeout=timeout, take=output.append_chunk
        )
    except OSError as error:
        raise InvalidCall(f"{argv[0]} cannot be started: {error}.") from error
    for note in wrapped.notes if isinstance(wrapped, SandboxedCommand) else ():
        output.append_chunk(f"\n[{note}]\n".encode(errors="replace"))
    return ended


def _wrap_sealed(seal: Seal, sealed: Mapping[str, bytes], argv: list[str]) -> list[str]:
    return seal(argv, sealed)


def _format_result(
    output: CommandOutput, ended: ProcessExit, timeout: float, changed: tuple[str, ...] = ()
) -> ToolAnswer:
    text = str(output).rstrip("\n") or "(no output)"
    text += f"\n[{describe_changed_programs(changed)}]" if changed else ""
    how = f"the command and all its processes were stopped after {timeout:g} s" if ended.has_timed_out else str(ended)
    return ToolAnswer(text=f"{text}\n[{how}]", is_error=ended.has_timed_out or ended.code != 0)
