"""List the coding agents that can be used as engines, with their installed versions and the risks of using them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
from anyio import create_task_group

from ...engines.acp.agent_program import AgentProgram
from ...files.confirmed_model_servers import save_confirmed_agent
from ...files.settings import Settings
from ...system.child_process import OutputBuffer, build_environment, run_process
from ...values.column import Document, DocumentPart
from ...values.errors import Mistake
from ..assembly.agent_sandbox import is_in_sandbox, list_agent_programs
from ..assembly.engine_consent import is_agreed

VERSION_SECONDS = 10.0
LARGEST_VERSION = 4096
NO_SANDBOX = (
    "it runs under your account without a sandbox, "
    "so Podium cannot prevent actions for which it does not ask permission"
)
OWN_LOGIN = (
    "if the agent's file sets no model, the coding agent can use your login in the sandbox "
    "and can send anything that it reads to {hosts}"
)


class EngineItem(DocumentPart, frozen=True, kw_only=True):
    """A coding agent in a list. `open` lists the risks that remain when it is used."""

    name: str
    command: tuple[str, ...]
    executable: str | None
    version: str
    tested_version: str
    mode: str
    is_confirmed: bool
    is_own: bool
    install: str
    is_sandboxed: bool
    open: list[str]


class EngineList(Document, frozen=True, kw_only=True):
    """The coding agents that can be used as engines."""

    engines: list[EngineItem]


async def list_engines(settings: Settings, environ: Mapping[str, str]) -> EngineList:
    """Return the coding agents.

    The version of an installed agent is read from its package or, if that fails, from the output of `--version`.
    """
    programs = list_agent_programs(settings)
    found = {name: one.find_executable(settings.home, environ.get("PATH", "")) for name, one in programs.items()}
    versions: dict[str, str] = {}

    async def read_version(program: AgentProgram, executable: str) -> None:
        versions[program.name] = _find_package_version(program, executable) or await _ask_version(executable, environ)

    async with create_task_group() as group:
        for name, executable in found.items():
            if executable is not None:
                group.start_soon(read_version, programs[name], executable)
    engines = [
        EngineItem.of(
            program,
            executable=found[program.name],
            version=versions.get(program.name, ""),
            tested_version=program.version,
            is_confirmed=is_agreed(program, settings),
            install=program.describe_installation(settings.home),
            is_sandboxed=is_in_sandbox(settings, program),
            open=list_open_points(settings, program),
        )
        for program in programs.values()
    ]
    return EngineList(engines=engines)


def list_open_points(settings: Settings, program: AgentProgram) -> list[str]:
    """Return the risks that remain when a coding agent is used, as sentences without a full stop."""
    if not is_in_sandbox(settings, program):
        points = [NO_SANDBOX]
    else:
        points = [OWN_LOGIN.format(hosts=", ".join(program.hosts))] if program.hosts else []
    return [*points, *([program.caution] if program.caution else [])]


def confirm_engine(settings: Settings, name: str) -> str:
    """Record that agents in repositories may use a coding agent, and return a message for the user.

    Raise Mistake if there is no such coding agent.
    """
    programs = list_agent_programs(settings)
    if name not in programs:
        raise Mistake(f"there is no coding agent {name!r}; available: {', '.join(programs)}")
    save_confirmed_agent(settings.home, name)
    return f"agents in any repository may now use {name}, with your login and at your expense"


def _find_package_version(program: AgentProgram, executable: str) -> str:
    """Return the version of the npm package that contains a program, or an empty string if it cannot be found."""
    for folder in Path(executable).resolve().parents:
        try:
            package = msgspec.json.decode((folder / "package.json").read_bytes())
        except (OSError, msgspec.DecodeError):
            continue
        if isinstance(package, dict) and package.get("name") == program.package:
            return str(package.get("version") or "")
    return ""


async def _ask_version(executable: str, environ: Mapping[str, str]) -> str:
    """Return the version that a program prints with `--version`, or an empty string if it prints none."""
    output = OutputBuffer(LARGEST_VERSION)
    try:
        await run_process(
            [executable, "--version"],
            env=build_environment(environ),
            directory="/",
            timeout=VERSION_SECONDS,
            take=output.append,
        )
    except OSError:
        return ""
    version = re.search(r"\d+\.\d+[.\w-]*", bytes(output).decode(errors="replace"))
    return version[0] if version else ""
