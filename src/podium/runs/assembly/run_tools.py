"""Provide one run's tools to its agents.

The packages `tools` and `mcp_client` define the tools; an operation's gate decides whether a tool may be used. The
sandbox is chosen and tested while the model generates its first reply; tool calls wait until that is done.
"""

from __future__ import annotations

import sys
from asyncio import Event
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from anyio import create_task_group, to_thread
from anyio.abc import TaskGroup

from ...core.engine import Tool, ToolAnswer
from ...core.gate import ActingTool, PreparedCall
from ...core.operation import Operation
from ...files.settings import Settings
from ...policy import Rules
from ...values.action import Action
from ...values.agent import Agent
from ...values.event import ToolUse
from ...values.guidance import Guidance
from ...values.usage import Unattended
from ...values.worker_task import RunCheckout
from .agent_memory import can_update_memory, make_memory_tool
from .install_choice import find_install_settings, must_ask_for_installs
from .run_guidance import can_load_skills, make_hidden_test

if TYPE_CHECKING:
    from ...mcp_client.run_servers import Servers
    from ...mcp_client.server_place import OpenInSandbox
    from ...tools.command_sandbox import CommandSandbox
    from ...tools.toolset import Toolbox


class RunTools:
    """The tools of one run. When the block ends, everything that was started for these tools is stopped.

    A run that has neither a directory nor functions, and whose agents list no tools, has no tools and starts nothing.
    """

    def __init__(
        self,
        settings: Settings,
        agents: Iterable[Agent],
        *,
        checkouts: Sequence[RunCheckout],
        functions: Sequence[ActingTool],
        for_all: int | None = None,
        environ: Mapping[str, str],
        unattended: Unattended | None,
        notice: Callable[[str], None],
        guidance: Guidance | None = None,
    ) -> None:
        self._settings = settings
        self._checkouts = checkouts
        self._root = Path(checkouts[0].root) if checkouts else None
        """The repository in which the user's trust applies: for a worker, not its checkout."""
        self._needs_servers = any(_is_server_tool(entry) for agent in agents for entry in agent.tools or ())
        self._directory = Path(checkouts[0].path) if checkouts else None
        self._functions = functions
        self._for_all = tuple(tool.name for tool in functions[:for_all])
        """The functions that agents without a list of tools can use. Agents must list any other function by name."""
        self._environ = environ
        self._unattended = unattended
        self._notice = notice
        self._skills = () if guidance is None else guidance.skills
        self._memories = {} if guidance is None else guidance.memories
        self._toolboxes: dict[tuple[Rules, CommandSandbox | None], Toolbox] = {}
        self._sandbox: CommandSandbox | None = None
        self._sandbox_ready: Event | None = None
        """An event that is set when the sandbox is ready; None until the run starts choosing a sandbox."""
        self._background: TaskGroup | None = None
        self._exit_stack = AsyncExitStack()
        self._servers: Servers | None = None
        self._notices_sent: set[str] = set()

    async def offer_tools(self, op: Operation) -> tuple[Tool, ...]:
        """Return the tools of an operation's agent.

        Calls to tools that may need permission pass through the operation's gate.
        """
        agent = op.agent
        if self._directory is None and not self._functions and agent.tools is None:
            return ()
        if self._directory is not None and any(map(_runs_commands, agent.tools or ())):
            self._start_sandbox_search()
        box = self._toolbox_for(op.rules, self._sandbox)
        installed = await self._find_plugin_tools(box.find_unknown_tools(agent.tools or ()))
        for entry in box.find_unknown_tools([entry for entry in agent.tools or () if entry not in installed]):
            self._notice_once(f"{agent.name}: tool {entry!r} not found; continuing without it.")
        acting = [
            self._defer_until_sandbox(tool, partial(self._tool_in_sandbox, tool.name, op.rules))
            for tool in box.select_acting_tools(agent.tools, agent.disallowed_tools)
        ]
        if op.checkout:
            # The run's sandbox contains only the run's own checkout, so an agent that works in another checkout gets no
            # tools that run commands.
            without = (*agent.disallowed_tools, "Bash", "run_checks")
            there = self._make_toolbox([RunCheckout(root=op.checkout, path=op.checkout)], op.rules, None)
            acting = there.select_acting_tools(agent.tools, without)
        if self._servers is not None:
            offered = await self._servers.acting(self._select_tools(agent), disallowed=agent.disallowed_tools)
            acting += map(self._defer_until_sandbox, offered)
        acting += map(self._defer_until_sandbox, installed.values())
        wanted = self._for_all if agent.tools is None else agent.tools
        given = map(self._defer_until_sandbox, box.select_function_tools(wanted, agent.disallowed_tools))
        return (
            *(op.gate.wrap_tool(tool) for tool in acting),
            *(op.gate.wrap_tool(tool, is_given=True) for tool in given),
            *box.select_plain_tools(agent.tools, agent.disallowed_tools),
            *self._make_skill_tools(op),
            *self._make_memory_tools(op),
        )

    def _make_skill_tools(self, op: Operation) -> tuple[Tool, ...]:
        if not self._skills or self._directory is None or not can_load_skills(op.agent):
            return ()
        from ...tools.load_skill import load_skill_tool  # imported here to keep start-up fast: most runs have no skills

        return (load_skill_tool(self._skills, self._directory, make_hidden_test(op.rules)),)

    async def _find_plugin_tools(self, names: Sequence[str]) -> dict[str, ActingTool]:
        """Return the plug-in tools with these names.

        They need permission, unlike the functions that a program passes to a run.
        """
        if not names:
            return {}
        from .plugin_tools import find_plugin_tools  # imported here to keep start-up fast: few agents use plug-ins

        return await to_thread.run_sync(find_plugin_tools, names, self._notice_once)

    def _make_memory_tools(self, op: Operation) -> tuple[Tool, ...]:
        memory = self._memories.get(op.agent.name)
        return (make_memory_tool(op, memory),) if memory is not None and can_update_memory(op, memory) else ()

    def _toolbox_for(self, rules: Rules, sandbox: CommandSandbox | None) -> Toolbox:
        """Return the tools for agents with these rules.

        Searches do not show files with secrets, or files that the rules forbid agents to read.
        """
        if (rules, sandbox) not in self._toolboxes:
            self._toolboxes[rules, sandbox] = self._make_toolbox(self._checkouts, rules, sandbox)
        return self._toolboxes[rules, sandbox]

    def _make_toolbox(self, checkouts: Sequence[RunCheckout], rules: Rules, sandbox: CommandSandbox | None) -> Toolbox:
        from ...tools.toolset import Toolbox  # imported here to keep start-up fast: not every run has tools

        checks = {Path(one.path): one.checks for one in checkouts}
        if (directory := next(iter(checks), None)) is not None:
            checks[directory] = self._settings.checks
        return Toolbox(
            checks,
            functions=self._functions,
            unattended=self._unattended,
            hidden=make_hidden_test(rules),
            sandbox=sandbox,
            guards_programs=directory is not None and must_ask_for_installs(self._settings, directory),
            is_committed=directory is not None and find_install_settings(self._settings, directory) is None,
        )

    def _start_sandbox_search(self) -> None:
        """Start choosing the run's sandbox in the background, unless this has already been started."""
        if self._sandbox_ready is None:
            assert self._background is not None
            self._sandbox_ready = Event()
            self._background.start_soon(self._find_sandbox, self._sandbox_ready)

    async def _find_sandbox(self, ready: Event) -> None:
        self._sandbox = await self._choose_sandbox(*(Path(one.path) for one in self._checkouts))
        self._exit_stack.callback(self._sandbox.clean_up)
        if self._sandbox.notice:
            self._notice_once(self._sandbox.notice)
        ready.set()

    def _defer_until_sandbox(self, tool: ActingTool, in_sandbox: Callable[[], ActingTool] | None = None) -> ActingTool:
        """Return a tool whose calls wait until the sandbox has been tested.

        The test creates temporary files in the checkout, which the calls should not see. `in_sandbox` returns a version
        of the tool that runs its commands in the sandbox.
        """
        sandbox_ready = self._sandbox_ready
        if sandbox_ready is None or sandbox_ready.is_set():
            return tool

        async def wait_for_tool() -> ActingTool:
            await sandbox_ready.wait()
            return tool if in_sandbox is None else in_sandbox()

        return _DeferredTool(tool, wait_for_tool)

    def _tool_in_sandbox(self, name: str, rules: Rules) -> ActingTool:
        assert self._sandbox is not None
        (tool,) = self._toolbox_for(rules, self._sandbox).select_acting_tools((name,))
        return tool

    async def _choose_sandbox(self, *checkouts: Path, is_temporary: bool = False) -> CommandSandbox:
        # Imported here to keep start-up fast: most runs do not need it.
        from .sandbox_choice import choose_sandbox

        settings = self._settings
        return await choose_sandbox(
            checkouts,
            settings.home,
            settings.store,
            is_wanted=settings.sandbox,
            is_read_only=settings.permission_mode == "plan",
            readable=[Path(skill.folder) for skill in self._skills if skill.source == "user"],
            hosts=settings.network,
            installs=None if is_temporary else await to_thread.run_sync(find_install_settings, settings, checkouts[0]),
            install_hosts=None if is_temporary or settings.installs.ask is False else settings.installs.hosts,
            report=self._notice,
        )

    def make_check_tool(self, commands: tuple[str, ...], commit: str = "") -> ActingTool:
        """Return a tool that runs commands on a clean checkout of `commit` or, by default, of the working tree."""
        # Imported here to keep start-up fast: most runs do not need it.
        from .clean_checks import CleanChecks
        from .sandbox_choice import name_sandbox

        assert self._directory is not None
        sandbox = name_sandbox("workspace", self._settings.network) if self._settings.sandbox else "none"
        return self._defer_until_sandbox(
            CleanChecks(
                self._directory,
                commands,
                commit=commit,
                choose_sandbox=partial(self._choose_sandbox, is_temporary=True),
                sandbox=sandbox,
            )
        )

    def _notice_once(self, text: str) -> None:
        if text not in self._notices_sent:
            self._notices_sent.add(text)
            self._notice(text)

    async def __aenter__(self) -> RunTools:
        if self._directory is not None:
            self._background = await self._exit_stack.enter_async_context(_open_task_group())
        if self._needs_servers:
            self._servers = await self._exit_stack.enter_async_context(self._build_servers())
        return self

    def _select_tools(self, agent: Agent) -> Sequence[str]:
        """Return an agent's list of tools, without those of the user's servers that the agent may not start."""
        # Imported here to keep start-up fast: most runs use no servers.
        from ...files.agent_trust import find_own_servers, select_trusted_tools
        from ...files.trust import Trust

        own = find_own_servers(self._settings.mcp_servers.values())
        entries, notice = select_trusted_tools(agent, own, self._root, Trust.load(self._settings.home))
        if notice:
            self._notice_once(f"{agent.name}: {notice}.")
        return entries

    def _build_servers(self) -> Servers:
        # Imported here to keep start-up fast: importing the MCP library takes longer than starting most runs.
        from ...files.trust import Trust
        from ...mcp_client.run_servers import Servers

        settings = self._settings
        return Servers(
            settings.proposed.mcp_servers | settings.mcp_servers,
            checkouts=self._checkouts,
            environ=self._environ,
            trust=Trust.load(settings.home),
            notice=self._notice_once,
            open_in_sandbox=self._make_server_sandbox(),
        )

    def _make_server_sandbox(self) -> OpenInSandbox | None:
        """Return the sandbox for servers that use files of the checkout, or None if commands run without one too."""
        if self._directory is None or not self._settings.sandbox or sys.platform != "linux":
            return None
        from .sandbox_choice import ServerSandbox  # imported here to keep start-up fast: most runs do not need it

        checkouts = tuple(Path(one.path) for one in self._checkouts)
        return ServerSandbox(settings=self._settings, checkouts=checkouts, report=self._notice_once).open_program

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._exit_stack.__aexit__(exc_type, exc, traceback)


class _DeferredTool:
    """A tool that is resolved when a call is prepared. Until then, a placeholder describes it."""

    def __init__(self, placeholder: ActingTool, wait_for_tool: Callable[[], Awaitable[ActingTool]]) -> None:
        self._placeholder = placeholder
        self._wait_for_tool = wait_for_tool
        self.name: str = placeholder.name
        self.description: str = placeholder.description
        self.parameters: dict[str, Any] = placeholder.parameters
        self.timeout: float = placeholder.timeout
        self.is_parallel: bool = placeholder.is_parallel

    async def prepare(self, call: ToolUse) -> PreparedCall:
        return await (await self._wait_for_tool()).prepare(call)

    async def recover(self, began: Action) -> ToolAnswer | None:
        return await self._placeholder.recover(began)


@asynccontextmanager
async def _open_task_group() -> AsyncIterator[TaskGroup]:
    """Open a task group, and wait for its tasks when the block ends.

    An exception from the block is raised directly, not wrapped in an exception group.
    """
    trouble: Exception | None = None
    async with create_task_group() as group:
        try:
            yield group
        except Exception as error:
            trouble = error
    if trouble is not None:
        raise trouble


def _runs_commands(entry: str) -> bool:
    return entry.partition("(")[0].strip() in ("Bash", "bash", "run_checks")


def _is_server_tool(entry: str) -> bool:
    return entry.startswith("mcp__")


def wrap_functions(functions: Sequence[Callable[..., object]]) -> tuple[ActingTool, ...]:
    """Return the functions wrapped as tools."""
    if not functions:
        return ()
    from ...tools.toolset import function_tools  # imported here to keep start-up fast: most runs have no functions

    return function_tools(functions)
