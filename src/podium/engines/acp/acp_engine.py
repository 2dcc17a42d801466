"""An engine that drives coding agents from other vendors over the Agent Client Protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from anyio import CancelScope

from ...core.engine import EngineSession, EngineSessionSpec
from ...values.errors import OutsideFailed
from .acp_session import AcpSession
from .agent_home import AgentModel, build_agent_environment, prepare_home
from .agent_process import NO_SANDBOX, AgentCommand, AgentProcesses, AgentSandbox, HeldProcess, run_agent_process
from .agent_program import AgentProgram
from .agent_session import AgentSession
from .agent_tool_call import open_podium_tools


class AcpEngine:
    """Opens sessions with one coding agent. `model` is the model to use, or None for the agent's own configured model.

    `executable` is the program's location, `home` is Podium's home folder, and `sandbox` starts the processes.
    """

    is_priced = False
    """Whether the cost of a call is known in advance, so that a budget in USD can be enforced."""

    def __init__(
        self,
        program: AgentProgram,
        executable: str,
        *,
        model: AgentModel | None,
        environ: Mapping[str, str],
        home: Path,
        get_processes: Callable[[], AgentProcesses],
        sandbox: AgentSandbox = NO_SANDBOX,
    ) -> None:
        self.name = program.name if model is None else f"{program.name}:{model.name}"
        self._program = program
        self._executable = executable
        self._model = None if model is None else replace(model, relayed_url=sandbox.model_url)
        self._environ = environ
        self._home = home
        self._get_processes = get_processes
        self._sandbox = sandbox

    @asynccontextmanager
    async def open(self, spec: EngineSessionSpec) -> AsyncIterator[EngineSession]:
        checkouts = () if spec.gate is None else spec.gate.checkouts
        if not checkouts:
            raise OutsideFailed(
                f"{self._program.name} needs a folder to work in; run {spec.agent.name} in a repository"
            )

        processes = self._get_processes()

        async def start(report: Callable[[str], object]) -> HeldProcess:
            return await self._start_process(processes, tuple(map(Path, checkouts)), spec.run, report)

        async with open_podium_tools(spec.tools, agent=spec.agent.name) as tools:
            agent = AgentSession(self._program, checkouts[0], processes, start, tools=tools)
            try:
                yield AcpSession(self._program, spec, agent, name=self.name, sandbox=self._sandbox.name, tools=tools)
            finally:
                with CancelScope(shield=True):
                    await agent.aclose()

    async def _start_process(
        self,
        processes: AgentProcesses,
        checkouts: tuple[Path, ...],
        run: str,
        report: Callable[[str], object],
    ) -> HeldProcess:
        program = self._program
        home = prepare_home(program, self._home, run, user_home=self._environ.get("HOME", ""), model=self._model)
        command = AgentCommand(
            argv=(self._executable, *program.command[1:]),
            env=build_agent_environment(program, home, self._environ, self._model),
            checkouts=checkouts,
            home=home,
            model=self._model,
            report=report,
        )
        opening = run_agent_process(command, program.name, self._sandbox, exits_at_eof=program.exits_at_eof)
        shared = (command.argv, command.directory, home, tuple(sorted(command.env.items())))
        return await processes.acquire(opening, key=shared if program.shares_process else None)
