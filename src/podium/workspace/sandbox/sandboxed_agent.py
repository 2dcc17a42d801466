"""Run a whole coding agent in the sandbox: it can change its checkout and its own home, and reach only its relay.

The agent's stdin, stdout and stderr are pipes, and the caller speaks the agent's protocol over them. The agent's home
persists from one start to the next, and its installation folder is readable.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE

from anyio import create_task_group

from ...system.child_process import SandboxedCommand, build_environment, wait_for_breach
from ...system.owned_files import make_private_folder
from ...system.process_group import GRACE, ChildProcess, start_process
from ...values.errors import Mistake
from ..relay.sandbox_relay import RelayConfiguration, SandboxRelay
from .bubblewrap import Sandbox

PACKAGES = "node_modules"


@asynccontextmanager
async def start_agent(
    sandbox: Sandbox,
    argv: Sequence[str],
    *,
    home: Path,
    relay: RelayConfiguration,
    env: Mapping[str, str] | None = None,
    readable: Sequence[Path] = (),
    directory: Path | None = None,
    grace: float = GRACE,
) -> AsyncIterator[ChildProcess]:
    """Start an agent in its checkout's sandbox, and stop it and all its processes when the block ends.

    `home` is the agent's home directory, which is created if necessary. The agent can reach only the services of
    `relay`; inside the sandbox, their addresses are MODEL_URL, COORDINATION_URL and PROXY_URL. `env` is added to the
    few variables that the agent inherits. It starts in `directory`, by default the checkout.
    `readable` lists folders outside the checkout that the agent can read,
    besides its installation folder. `grace` is how long the agent may take to exit after its input is closed; then it
    is killed. If the agent has created files listed in the sandbox's `creatable`, they are reported at the end.

    Raise Mistake if the program is not found or the sandbox fails its self-test, and ProgramNotStarted if bubblewrap
    cannot be started.
    """
    missing = [name for name in sandbox.creatable if not _exists(sandbox, name)]
    agents = await _prepare_agent_sandbox(sandbox, argv[0], home=home, env=env or {}, readable=readable)
    channel = SandboxRelay(relay)
    command = agents.wrap([_find_program(argv[0], agents.environ), *argv[1:]], relay=channel)
    try:
        process = start_process(
            command,
            env=build_environment(),
            directory=directory or sandbox.checkout,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            inherited=(channel.descriptor,),
            is_sandboxed=True,
        )
        try:
            channel.close_inner()
            async with create_task_group() as group:
                group.start_soon(channel.serve)
                group.start_soon(_end_at_breach, command, process, relay.report)
                try:
                    yield process
                finally:
                    await process.stop(grace=grace)
                    group.cancel_scope.cancel()
        finally:
            await process.end(grace=0)
            process.close()
    finally:
        command.clean_up()
        agents.remove_placeholders()
        for name in missing:
            if _exists(sandbox, name):
                relay.report(
                    f"an agent created {name} in {sandbox.checkout}; check it before another program reads it."
                )


def _exists(sandbox: Sandbox, name: str) -> bool:
    return os.path.lexists(sandbox.checkout / name)


async def _prepare_agent_sandbox(
    sandbox: Sandbox, program: str, *, home: Path, env: Mapping[str, str], readable: Sequence[Path] = ()
) -> Sandbox:
    """Return the sandbox for an agent. Raise Mistake if the program is not found or the sandbox fails its test."""
    environ = {**sandbox.environ, **env}
    found = Path(_find_program(program, environ))
    shown = (*sandbox.readable, *readable, *_find_install_folders(found, sandbox))
    agents = replace(sandbox, agent_home=_make_home(home), environ=environ, readable=shown, hosts=())
    if failed := await agents.self_test():
        raise Mistake(f"agents need a sandbox, and the sandbox failed its self-test: {'; '.join(failed)}")
    return agents


def _make_home(home: Path) -> Path:
    make_private_folder(home)
    return home.resolve()


def _find_program(program: str, environ: Mapping[str, str]) -> str:
    """Return the absolute path of a program. Raise Mistake if it is not on the PATH or cannot be executed."""
    found = shutil.which(program, path=environ.get("PATH", os.defpath))
    if found is None or not Path(found).is_absolute():
        raise Mistake(f"program {program!r} not found or not executable; install it, or give its absolute path")
    return found


def _find_install_folders(program: Path, sandbox: Sandbox) -> list[Path]:
    """Return the folders that a program needs: the folder of `program`, and the folder of the file it links to.

    If the program was installed with npm, the second folder is the outermost `node_modules`. A folder that
    contains the home directory, the checkout or the Podium home is not included.
    """
    real = program.resolve()
    packages = [folder for folder in real.parents if folder.name == PACKAGES]
    wanted = dict.fromkeys((program.parent, packages[-1] if packages else real.parent))
    person = Path(sandbox.environ.get("HOME", "/")).resolve()
    kept = (person, sandbox.checkout, sandbox.home)
    return [folder for folder in wanted if not any(one.is_relative_to(folder) for one in kept)]


async def _end_at_breach(command: SandboxedCommand, process: ChildProcess, report: Callable[[str], object]) -> None:
    await wait_for_breach(command)
    for note in command.notes:
        report(note)
    await process.end(grace=0)
