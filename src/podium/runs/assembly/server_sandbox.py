"""Start an MCP server that uses files of a checkout in the sandbox of that checkout."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ...files.settings import Settings
from ...system.checkouts import Checkouts
from ...system.process_group import ChildProcess
from ...system.unsandboxed_program import open_start_folder
from ...workspace.relay.host_grant import HostGrant
from ...workspace.relay.sandbox_relay import RelayConfiguration
from ...workspace.sandbox.agent_process import start_agent
from ...workspace.sandbox.bubblewrap import Sandbox
from .sandbox_choice import find_local_store


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSandbox:
    """The sandbox for the servers of a run: that of its agents' commands, with an empty home folder for each server."""

    settings: Settings
    checkouts: tuple[Path, ...]
    report: Callable[[str], object] = lambda text: None

    @asynccontextmanager
    async def open_program(
        self, command: Sequence[str], *, env: Mapping[str, str], directory: Path, readable: Sequence[Path]
    ) -> AsyncIterator[ChildProcess]:
        """Start a program for the duration of the block. Raise Mistake if there is no sandbox."""
        settings = self.settings
        sandbox = await Sandbox.find(
            *self.checkouts,
            home=settings.home,
            store=find_local_store(settings.store),
            profile="read-only" if settings.permission_mode == "plan" else "workspace",
            report=self.report,
        )
        relay = RelayConfiguration(hosts=tuple(map(HostGrant.parse, settings.network)), report=self.report)
        outside = [path for path in readable if not path.is_relative_to(sandbox.checkout)]
        with open_start_folder(settings.home, Checkouts()) as home:
            async with start_agent(
                sandbox, command, home=home, relay=relay, env=env, readable=outside, directory=directory
            ) as process:
                yield process
