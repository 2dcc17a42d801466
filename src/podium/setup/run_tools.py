"""The outfit: what the agents of one run act with, and how each of them comes to have it.

Which tools there are belongs to `tools` and the MCP client; whether one may be used, to the gate
of the operation that it is offered to. A sandbox is looked for and tried out while the model thinks
about its first words: no tool is used before that is over.
"""

from __future__ import annotations

from asyncio import Event
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from anyio import create_task_group
from anyio.abc import TaskGroup

from ..core.engine import Tool, ToolAnswer
from ..core.gate import Acting, Deed
from ..core.operation import Operation
from ..policy import Rules, check
from ..values.action import Action
from ..values.agent import Agent
from ..values.event import ToolUse
from ..values.limits import Unattended
from .settings import Settings

if TYPE_CHECKING:
    from ..mcp_client.run_servers import Servers
    from ..tools.command_sandbox import Sandboxed
    from ..tools.toolset import Toolbox


class Outfit:
    """The tools of one run. What is started for them ends with the block.

    A run without a directory and without functions given in code has no tools, and pays for none.
    """

    def __init__(
        self,
        settings: Settings,
        agents: Iterable[Agent],
        *,
        directory: Path | None,
        functions: Sequence[Acting],
        for_all: int | None = None,
        environ: Mapping[str, str],
        unattended: Unattended | None,
        notice: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._needs_servers = any(_is_of_a_server(entry) for agent in agents for entry in agent.tools or ())
        self._directory = directory
        self._functions = functions
        self._for_all = tuple(tool.name for tool in functions[:for_all])
        """The functions of those who list no tools; the others belong to agents that list them."""
        self._environ = environ
        self._unattended = unattended
        self._notice = notice
        self._boxes: dict[tuple[Rules, Sandboxed | None], Toolbox] = {}
        self._sandboxed: Sandboxed | None = None
        self._looked: Event | None = None
        """Set when the sandbox is found; None while nobody looks for one."""
        self._beside: TaskGroup | None = None
        self._open = AsyncExitStack()
        self._servers: Servers | None = None
        self._noticed: set[str] = set()

    async def offer(self, op: Operation) -> tuple[Tool, ...]:
        """The tools that an operation's agent may have, each through the operation's gate."""
        agent = op.agent
        if self._directory is None and not self._functions and agent.tools is None:
            return ()
        if self._directory is not None and any(map(_runs_commands, agent.tools or ())):
            self._look_for_sandbox(self._directory)
        box = self._toolbox(op.rules, self._sandboxed)
        for entry in box.unknown(agent.tools or ()):
            self._tell(f"{agent.name}: there is no tool {entry!r}; podium works on without it.")
        acting = [
            self._then(tool, partial(self._bounded, tool.name, op.rules))
            for tool in box.acting(agent.tools, agent.disallowed_tools)
        ]
        if self._servers is not None:
            acting += map(self._then, await self._servers.acting(agent.tools or (), disallowed=agent.disallowed_tools))
        wanted = self._for_all if agent.tools is None else agent.tools
        given = map(self._then, box.given(wanted, agent.disallowed_tools))
        return (
            *(op.gate.offer(tool) for tool in acting),
            *(op.gate.offer(tool, is_given=True) for tool in given),
            *box.plain(agent.tools, agent.disallowed_tools),
        )

    def _toolbox(self, rules: Rules, sandbox: Sandboxed | None) -> Toolbox:
        """The tools of this run for those who live by these rules: what they may not read, no search shows."""
        if (rules, sandbox) not in self._boxes:
            from ..tools.file_listing import holds_secrets
            from ..tools.toolset import Toolbox  # here, because a run without tools has no use for it

            def is_hidden(path: str) -> bool:
                read = Action(run="", agent="", tool="read_file", arguments={"path": path})
                return holds_secrets(path) or check(read, rules).decision == "deny"

            self._boxes[rules, sandbox] = Toolbox(
                self._directory,
                checks=self._settings.checks,
                functions=self._functions,
                unattended=self._unattended,
                hidden=is_hidden if rules.deny else holds_secrets,
                sandbox=sandbox,
            )
        return self._boxes[rules, sandbox]

    def _look_for_sandbox(self, checkout: Path) -> None:
        """Begin to look for what bounds the commands of this run, once, beside the run."""
        if self._looked is None:
            assert self._beside is not None
            self._looked = Event()
            self._beside.start_soon(self._look, checkout, self._looked)

    async def _look(self, checkout: Path, looked: Event) -> None:
        self._sandboxed = await self._bounds(checkout)
        self._open.callback(self._sandboxed.put_away)
        if self._sandboxed.notice:
            self._tell(self._sandboxed.notice)
        looked.set()

    def _then(self, tool: Acting, bounded: Callable[[], Acting] | None = None) -> Acting:
        """The tool, to be used when the sandbox is found, since trying that out leaves traces for a moment.

        `bounded` is the same tool with that sandbox around what it runs.
        """
        looked = self._looked
        if looked is None or looked.is_set():
            return tool

        async def ready() -> Acting:
            await looked.wait()
            return tool if bounded is None else bounded()

        return _Awaiting(tool, ready)

    def _bounded(self, name: str, rules: Rules) -> Acting:
        assert self._sandboxed is not None
        (tool,) = self._toolbox(rules, self._sandboxed).acting((name,))
        return tool

    async def _bounds(self, checkout: Path) -> Sandboxed:
        from .sandbox_choice import sandboxed  # here, because most runs have no use for it

        settings = self._settings
        return await sandboxed(
            checkout,
            settings.home,
            settings.store,
            is_wanted=settings.sandbox,
            is_read_only=settings.permission_mode == "plan",
        )

    def checking(self, commands: tuple[str, ...]) -> Acting:
        """How commands are run on a clean checkout of the work."""
        from .clean_checks import Evidence  # here, because most runs have no use for it

        assert self._directory is not None
        sandbox = "workspace" if self._settings.sandbox else "none"
        return self._then(Evidence(self._directory, commands, bounds=self._bounds, sandbox=sandbox))

    def _tell(self, text: str) -> None:
        if text not in self._noticed:
            self._noticed.add(text)
            self._notice(text)

    async def __aenter__(self) -> Outfit:
        if self._directory is not None:
            self._beside = await self._open.enter_async_context(_beside())
        if self._needs_servers:
            self._servers = await self._open.enter_async_context(self._all_servers())
        return self

    def _all_servers(self) -> Servers:
        # Here, because the protocol's library takes longer to import than most runs to begin.
        from ..config.trust import Trust
        from ..mcp_client.run_servers import Servers

        settings = self._settings
        return Servers(
            settings.proposed.mcp_servers | settings.mcp_servers,
            directory=self._directory,
            environ=self._environ,
            trust=Trust.load(settings.home),
            notice=self._tell,
        )

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._open.__aexit__(exc_type, exc, traceback)


class _Awaiting:
    """A tool that is there when its first call is made ready, and until then known by its face."""

    def __init__(self, face: Acting, ready: Callable[[], Awaitable[Acting]]) -> None:
        self._face = face
        self._ready = ready
        self.name: str = face.name
        self.description: str = face.description
        self.parameters: dict[str, Any] = face.parameters
        self.timeout: float = face.timeout
        self.is_parallel: bool = face.is_parallel

    async def prepare(self, call: ToolUse) -> Deed:
        return await (await self._ready()).prepare(call)

    async def recover(self, began: Action) -> ToolAnswer | None:
        return await self._face.recover(began)


@asynccontextmanager
async def _beside() -> AsyncIterator[TaskGroup]:
    """Tasks beside the block, which ends when they have; what goes wrong in the block itself comes out as it is."""
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


def _is_of_a_server(entry: str) -> bool:
    return entry.startswith("mcp__")
