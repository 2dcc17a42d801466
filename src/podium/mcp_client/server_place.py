"""Decide where a server's program starts, what it depends on, and whether the user's trust covers that."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Protocol

from ..files.program_start import ProgramStart, plan_start
from ..files.trust import Kind, Trust
from ..files.trust_proposal import build_own_trust_name
from ..system.checkouts import Checkouts
from ..system.process_group import ChildProcess, start_process
from ..system.trace_parent import trace_variables
from ..system.unsandboxed_program import (
    REPO_VARIABLE,
    build_unsandboxed_environment,
    find_unsandboxed_program,
    open_start_folder,
)
from ..values.mcp_server import McpServer, build_trust_name


class OpenInSandbox(Protocol):
    """Starts a program in the sandbox of the run's checkout for the duration of a block, with separate pipes.

    `readable` contains files outside the checkout that the program needs.
    """

    def __call__(
        self, command: Sequence[str], *, env: Mapping[str, str], directory: Path, readable: Sequence[Path]
    ) -> AbstractAsyncContextManager[ChildProcess]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlace:
    """The place in which a run's servers start.

    `directory` is the run's checkout, and `root` is the repository for which the user's trust is recorded. `environ`
    contains the values of variables. If `open_in_sandbox` is None, there is no sandbox, as the user has chosen.
    """

    directory: Path | None
    root: Path | None
    checkouts: Checkouts
    environ: Mapping[str, str]
    trust: Trust
    open_in_sandbox: OpenInSandbox | None = None

    @property
    def variables(self) -> dict[str, str]:
        """The variables that a server gets besides its own: the repository's path."""
        return {} if self.directory is None else {REPO_VARIABLE: str(self.directory)}

    def plan_start(self, server: McpServer) -> ProgramStart:
        """Return where a server starts and what it depends on. Raise Mistake if its definition cannot be used."""
        if not server.command:
            return ProgramStart()
        return plan_start(
            (server.command, *server.args),
            cwd=server.cwd,
            env=server.env,
            repo=self.directory,
            checkouts=self.checkouts,
            variables={**self.environ, **self.variables},
        )

    def is_trusted(self, server: McpServer, plan: ProgramStart) -> bool:
        """Return whether a server may start: the user trusts it, or it is the user's own and needs no checkout."""
        kind: Kind = "server"
        if server.source == "user":
            if not plan.is_dependent:
                return True
            kind, name = "settings", build_own_trust_name(f"mcpServers.{server.name}", self.root)
        else:
            name = build_trust_name(server, self.root)
        return self.trust.is_trusted(kind, name, plan.compute_digest(server.digest))

    @asynccontextmanager
    async def open_program(self, server: McpServer, env: Mapping[str, str]) -> AsyncIterator[ChildProcess]:
        """Start a server's program for the duration of the block. `env` contains the variables that it inherits.

        Raise Mistake if the program is not found, and ProgramNotStarted if it cannot be started.
        """
        plan = self.plan_start(server)
        if plan.is_dependent and self.open_in_sandbox is not None:
            folder = plan.folder or self.directory
            assert folder is not None, "only a run with a checkout has content that a program can depend on"
            command = [str(folder / server.command) if "/" in server.command else server.command, *server.args]
            given = {**self.variables, **server.env}
            async with self.open_in_sandbox(command, env=given, directory=folder, readable=plan.paths) as process:
                yield process
            return
        variables, program = build_unsandboxed_environment(env, self.checkouts), server.command
        if plan.is_dependent:
            # The user trusts its files, and has chosen to have no sandbox.
            variables |= server.env
        else:
            variables = build_unsandboxed_environment(env, self.checkouts, server.env)
        if plan.folder is not None and "/" in program:
            program = str(plan.folder / program)
        if not plan.is_dependent or "/" not in program:
            program = find_unsandboxed_program(program, {**env, **server.env}.get("PATH", os.defpath), self.checkouts)
        here = nullcontext(plan.folder) if plan.folder else open_start_folder(self.trust.home, self.checkouts)
        with here as folder:
            process = start_process(
                [program, *server.args],
                env={**variables, **trace_variables(), **self.variables},
                directory=folder,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
            )
            with closing(process):
                try:
                    yield process
                finally:
                    await process.end()
