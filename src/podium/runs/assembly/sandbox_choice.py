"""Choose the sandbox for a checkout, in which commands and MCP servers run.

Commands run without one if it is turned off, or if the system is not Linux.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ...core.gate import InvalidCall
from ...files.settings import Settings
from ...files.settings_document import InstallSettings
from ...system.checkouts import Checkouts
from ...system.process_group import ChildProcess
from ...system.program_folders import describe_changed_programs, list_changed_programs, read_programs
from ...system.unsandboxed_program import open_start_folder
from ...tools.command_sandbox import CommandSandbox, InstallSandbox
from ...values.errors import Mistake
from ...values.store_address import StoreAddress, make_local_path
from ...workspace.relay.host_grant import HostGrant
from ...workspace.relay.sandbox_relay import RelayConfiguration
from ...workspace.sandbox.bubblewrap import Sandbox
from ...workspace.sandbox.sandboxed_agent import start_agent


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


PROGRAMS_GUARD = "it can change the programs in your checkout, which you run without looking at them"
NO_SANDBOX_NOTICE = "Commands run without a sandbox: every allowed command can access everything that you can access."


async def choose_sandbox(
    checkouts: Sequence[Path],
    home: Path,
    store: StoreAddress,
    *,
    is_wanted: bool = True,
    is_read_only: bool = False,
    readable: Sequence[Path] = (),
    hosts: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    installs: InstallSettings | None = None,
    install_hosts: Sequence[str] | None = None,
    report: Callable[[str], object] = lambda text: None,
) -> CommandSandbox:
    """Return the sandbox for commands that run in the first of these checkouts and can use all of them.

    On Linux, if `is_wanted` is true but no sandbox is available, all commands are refused. `readable` lists paths
    outside the checkout that commands can read, and `hosts` lists the hosts that they can reach. `environ` is used
    instead of this process's environment. `report` receives notes about a command for the user. Notes about files are
    also added to the command's output. If `installs` is None, the checkout is a temporary one or a worker's, in which
    commands can change programs. `install_hosts` lists the hosts that an installation can reach if a person allows it;
    if it is empty, these are the installer's default sources. If it is None, an installation reaches no other hosts
    than other commands.
    """
    if not is_wanted or sys.platform != "linux":
        return CommandSandbox(name="none", notice=NO_SANDBOX_NOTICE)
    try:
        found = await Sandbox.find(
            *checkouts,
            home=home,
            store=find_local_store(store),
            profile="read-only" if is_read_only else "workspace",
            readable=readable,
            hosts=[HostGrant.parse(host) for host in hosts],
            environ=environ,
            protects_programs=installs is not None and installs.ask is not False,
            report=report,
        )
    except Mistake as error:
        reason = str(error)

        def refuse_command(argv: list[str]) -> list[str]:
            raise InvalidCall(f"Commands cannot be run: {reason}.")

        return CommandSandbox(
            name="missing",
            wrap=refuse_command,
            wrap_with_input=refuse_command,
            notice=f"Commands cannot be run: {reason}.",
            refusal=f"Commands cannot be run: {reason}.",
        )
    return CommandSandbox(
        name=name_sandbox(found.profile, hosts),
        wrap=found.wrap,
        seal=found.wrap,
        wrap_with_input=partial(found.wrap, reads_input=True),
        clean_up=found.remove_placeholders,
        hosts=tuple(hosts),
        open_for_install=partial(_open_for_install, found, hosts, install_hosts, report),
    )


def _open_for_install(
    sandbox: Sandbox,
    hosts: Sequence[str],
    install_hosts: Sequence[str] | None,
    report: Callable[[str], object],
    named: Sequence[str],
    registries: Sequence[str] = (),
) -> InstallSandbox | None:
    """Return a sandbox for a command that may change the programs in the checkouts, and may reach more hosts.

    Return None if there are no such programs and no more hosts.
    """
    own = () if install_hosts is None else (*(install_hosts or registries), *named)
    reached = tuple(dict.fromkeys((*hosts, *own)))
    folders = [*sandbox.programs, *(f"{one.checkout}/{name}" for one in sandbox.others for name in one.programs)]
    if not folders and len(reached) == len(hosts):
        return None
    opened = sandbox.open_programs(hosts=[HostGrant.parse(host) for host in reached])
    before: dict[str, tuple[int, int]] = {}

    def note_programs() -> None:
        before.clear()
        before.update(read_programs(sandbox.checkout, folders))

    def wrap(argv: list[str], sealed: Mapping[str, bytes] | None = None) -> list[str]:
        note_programs()
        return opened.wrap(argv, sealed)

    def list_changed() -> tuple[str, ...]:
        opened.remove_placeholders()
        changed = list_changed_programs(before, read_programs(sandbox.checkout, folders))
        if changed:
            report(describe_changed_programs(changed))
        return changed

    name = name_sandbox(sandbox.profile, reached)
    if not folders:
        return InstallSandbox(name=name, guard="", wrap=wrap, seal=wrap, list_changed=lambda: ())
    name = f"{name}; this command can change {', '.join(folders)}"
    return InstallSandbox(name=name, guard=PROGRAMS_GUARD, wrap=wrap, seal=wrap, list_changed=list_changed)


def find_local_store(store: StoreAddress) -> Path:
    """Return the path of a store's files on this machine. Sandboxes hide these files."""
    return store if isinstance(store, Path) else make_local_path(store, "bells")


def name_sandbox(profile: str, hosts: Sequence[str]) -> str:
    """Return the description of a sandbox to record with actions: the profile, and the hosts that can be reached."""
    return f"{profile}, with network access to {', '.join(hosts)}" if hosts else profile
