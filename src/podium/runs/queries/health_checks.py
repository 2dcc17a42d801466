"""Check this installation, and describe how to fix problems."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

import anyio

from ... import __version__
from ...engines.engine_choice import resolve_model_address
from ...engines.local.model_folder import find_models_folder, has_library
from ...engines.local_model_servers import find_coding_agents, find_servers, list_local_addresses
from ...engines.model.providers import LOCAL, PROVIDERS, REHEARSAL, find_key_names, without_credentials
from ...files.discovery import load_roster
from ...files.settings import Settings
from ...files.settings_files import SettingsFiles, read_settings_files
from ...files.tested_models import find_ability_record
from ...system.checkouts import find_checkouts
from ...system.child_process import OutputBuffer, build_environment, run_process
from ...system.locations import find_home_folder, find_repo
from ...system.unsandboxed_program import find_unsandboxed_program
from ...values.errors import Mistake, filter_errors
from ...values.fleet_job import format_install_commands
from ...values.plain_text import format_count, format_size
from ..model_choice import describe_default_model
from .ability_summary import describe_test
from .store_health import Fact, check_store

KEYS = tuple(provider.key_name for provider in PROVIDERS.values() if provider.key_name is not None)

INSTALLERS = (
    ("apt-get", "sudo apt-get install {}"),
    ("dnf", "sudo dnf install {}"),
    ("pacman", "sudo pacman -S {}"),
    ("apk", "sudo apk add {}"),
    ("zypper", "sudo zypper install {}"),
    ("brew", "brew install {}"),
)

VERSION_SECONDS = 5.0
LARGEST_VERSION = 10_000


def collect_facts(environ: Mapping[str, str], folder: Path) -> Iterator[Fact]:
    """Run all checks for this machine and folder, and yield their results."""
    repo = find_repo(folder, home=find_home_folder(environ))
    files = read_settings_files(find_home_folder(environ), repo)
    try:
        settings, wrong = Settings.from_files(files, environ, repo), ""
    except Mistake as error:
        settings, wrong = Settings.from_files(SettingsFiles(), environ, repo), str(error)
    yield Fact("podium", "fine", f"{__version__}, in {Path(__file__).parents[2]}")
    yield Fact("python", "fine", f"{platform.python_version()}, {sys.executable}")
    yield Fact("platform", "fine", f"{platform.system()} {platform.release()}, {platform.machine()}")
    yield check_settings(files, wrong)
    yield from check_store(settings.store)
    yield check_engine(settings, environ)
    yield from check_model_test(settings, environ)
    yield check_keys(environ)
    yield check_local_servers(settings, environ)
    yield check_coding_agents(environ)
    yield check_local_models(settings, environ)
    yield check_git(repo)
    yield check_sandbox(repo, settings)
    yield check_agents(repo, settings.home)


def check_settings(files: SettingsFiles, wrong: str) -> Fact:
    """Report which settings files were read, and the diagnostics for them."""
    if wrong:
        return Fact("settings", "problem", f"{wrong}; the other checks ignore all settings files")
    if not files.paths:
        return Fact("settings", "fine", "no settings files; run podium config path to see where to create them")
    if not files.diagnostics:
        return Fact("settings", "fine", ", ".join(files.paths))
    said = (
        f"{', '.join(files.paths)}, {format_count(len(files.diagnostics), 'diagnostic')}, first: {files.diagnostics[0]}"
    )
    return Fact("settings", "note", f"{said}; run podium config validate to see all diagnostics")


def check_engine(settings: Settings, environ: Mapping[str, str]) -> Fact:
    """Report the model for agents that do not specify one, and why it is used."""
    default = describe_default_model(settings, environ)
    first, because = default.models[0], default.because
    if first == REHEARSAL:
        return Fact("engine", "note", f"rehearsal mode (no model is called), because {because}")
    place = f" at {default.host}" if default.host else ""
    return Fact("engine", "fine", f"{first}{place}, because {because}")


def check_model_test(settings: Settings, environ: Mapping[str, str]) -> Iterator[Fact]:
    """Report what the default model can do according to its last test, or that it has not been tested.

    Without a default model, or with a local model, report nothing: a local model needs no test.
    """
    name = describe_default_model(settings, environ).models[0]
    if name == REHEARSAL:
        return
    address = resolve_model_address(
        name, settings.add_provider_addresses(environ), default=name, default_url=settings.base_url
    )
    if address.provider.name == LOCAL:
        return
    record = find_ability_record(settings.home, without_credentials(address.url), address.model)
    if record is None:
        yield Fact("model test", "note", f"{name} has not been tested; run podium models test to see what it can do")
    else:
        yield Fact("model test", "fine", f"{name}, {describe_test(record)}")


def check_local_servers(settings: Settings, environ: Mapping[str, str]) -> Fact:
    """Report which model servers respond on this machine."""
    servers = anyio.run(find_servers, list_local_addresses(settings.add_provider_addresses(environ)))
    if not servers:
        return Fact("local servers", "note", "none found; servers such as Ollama are found only while they are running")
    found = ", ".join(f"{one.provider} at {one.url} ({format_count(len(one.models), 'model')})" for one in servers)
    return Fact("local servers", "fine", f"{found}; run podium models to see how to use them")


def check_coding_agents(environ: Mapping[str, str]) -> Fact:
    """Report which coding agents are installed."""
    names = ", ".join(find_coding_agents(environ))
    return Fact("coding agents", "fine" if names else "note", names or "none found on PATH")


def check_local_models(settings: Settings, environ: Mapping[str, str]) -> Fact:
    """Report which local models are installed, and whether the package that runs them is installed."""
    folder = find_models_folder(environ, settings.home)
    names = ", ".join(f"{LOCAL}:{one.name} ({format_size(one.size)})" for one in folder.load_models())
    if not names:
        return Fact("local models", "note", "none installed; to list the available models, run podium models add")
    if not has_library():
        return Fact("local models", "note", f"{names}; to use them, run {format_install_commands('local')}")
    return Fact("local models", "fine", names)


def check_keys(environ: Mapping[str, str]) -> Fact:
    """Report the names of the API keys in the environment."""
    names = sorted(name for name in find_key_names(environ) if environ.get(name))
    if not names:
        return Fact("keys", "note", f"none; set one of {', '.join(KEYS)} to use that provider's models")
    return Fact("keys", "fine", ", ".join(names))


def check_git(repo: Path) -> Fact:
    """Report the version of git. Workers need git; most other runs do not."""
    first = shutil.which("git")
    if first is None:
        return Fact("git", "note", f"not found; {_format_install_hint('git')}")
    if not Path(first).is_absolute() or find_checkouts(repo).contain(first):
        where = "is in the repository or has a relative path"
        return Fact("git", "problem", f"the git on PATH ({first}) {where}, so it was not run; fix PATH")
    try:
        git = find_unsandboxed_program("git", os.environ.get("PATH", ""), find_checkouts(repo))
    except Mistake:
        return Fact("git", "problem", f"the git on PATH ({first}) depends on a file in the repository; fix PATH")
    try:
        output = anyio.run(_read_version, git)
    except OSError as error:
        return Fact("git", "note", f"{git} does not respond: {error}")
    version = re.search(r"\d+\.\d+[.\d]*", output)
    return Fact("git", "fine", f"{version[0] if version else 'unknown version'}, {git}")


async def _read_version(program: str) -> str:
    """Return what a program prints with `--version`. Raise OSError if it cannot be started or takes too long."""
    output = OutputBuffer(LARGEST_VERSION)
    ended = await run_process(
        [program, "--version"],
        env=build_environment(),
        directory="/",  # so that git reads nothing from the repository
        timeout=VERSION_SECONDS,
        take=output.append,
    )
    if ended.has_timed_out:
        raise TimeoutError(f"timed out after {VERSION_SECONDS:g} s")
    return bytes(output).decode(errors="replace")


def check_sandbox(repo: Path, settings: Settings) -> Fact:
    """Test the sandbox for agents' commands in this folder."""
    from ..assembly.sandbox_choice import choose_sandbox  # imported here to keep start-up fast

    sandbox = anyio.run(partial(choose_sandbox, [repo], settings.home, settings.store, is_wanted=settings.sandbox))
    sandbox.clean_up()
    if sandbox.name in ("none", "missing"):
        return Fact("sandbox", "note", sandbox.notice)
    return Fact("sandbox", "fine", f"bubblewrap works; commands run with the profile {sandbox.name}")


def check_agents(repo: Path, home: Path) -> Fact:
    """Report the number of agents, and the number of diagnostics for them."""
    roster = load_roster(repo, home)
    findings = (*roster.diagnostics, *roster.check())
    own = sum(agent.source != "built-in" for agent in roster.agents.values())
    text = f"{format_count(len(roster.agents), 'agent')}, {own} of them from {home} or {repo}"
    if not findings:
        return Fact("agents", "fine", text)
    level: Literal["note", "problem"] = "problem" if filter_errors(findings) else "note"
    return Fact("agents", level, f"{text}, {format_count(len(findings), 'diagnostic')}; run podium check to see them")


def _format_install_hint(package: str) -> str:
    command = next((how for program, how in INSTALLERS if shutil.which(program)), None)
    if command is None:
        return "install it with your system's package manager"
    return f"install it with: {command.format(package)}"
