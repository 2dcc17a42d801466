"""Check this installation and its store, and describe how to fix problems."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio
from msgspec import Struct

from ... import __version__
from ...engines.engine_choice import resolve_model_address
from ...engines.local.model_folder import find_models_folder, has_library
from ...engines.local_model_servers import find_coding_agents, find_servers, list_local_addresses
from ...engines.model.providers import LOCAL, PROVIDERS, REHEARSAL, find_key_names, without_credentials
from ...files.discovery import load_roster
from ...files.settings import Settings
from ...files.settings_files import SettingsFiles, read_settings_files
from ...files.tested_models import describe_test, find_ability_record
from ...store.reader import StoreReader
from ...store.run_creators import list_unconfirmed_runs
from ...store.store_connection import require_postgres_packages
from ...system.checkouts import find_checkouts
from ...system.child_process import OutputBuffer, build_environment, run_process
from ...system.locations import find_home_folder, find_repo
from ...system.unsandboxed_program import find_unsandboxed_program
from ...values.errors import Mistake, PodiumError, filter_errors
from ...values.fleet_job import are_compatible, format_install_commands
from ...values.plain_text import format_count, format_size
from ...values.store_address import PostgresAddress, StoreAddress
from ..model_choice import describe_default_model

if TYPE_CHECKING:
    from ...store.postgres.server_check import HostCheck, ServerCheck


SLOW_SECONDS = 0.1
"""If a round trip takes longer than this, commands and agents become noticeably slower."""
SKEW_SECONDS = 2.0
"""If two clocks differ by more than this, the times on timelines are misleading."""


class Fact(Struct, frozen=True):
    """The result of a check: `fine`, a `note`, or a `problem` that prevents Podium from working."""

    what: str
    level: Literal["fine", "note", "problem"]
    text: str


_EFFECT = "times on timelines and in schedules are off by this much; synchronise the clocks, for example with NTP"


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
    yield _check_engine(settings, environ)
    yield from _check_model_test(settings, environ)
    yield _check_keys(environ)
    yield _check_local_servers(settings, environ)
    yield _check_coding_agents(environ)
    yield _check_local_models(settings, environ)
    yield check_git(repo)
    yield _check_sandbox(repo, settings)
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


def _check_engine(settings: Settings, environ: Mapping[str, str]) -> Fact:
    """Report the model for agents that do not specify one, and why it is used."""
    default = describe_default_model(settings, environ)
    first, because = default.models[0], default.because
    if first == REHEARSAL:
        return Fact("engine", "note", f"rehearsal mode (no model is called), because {because}")
    place = f" at {default.host}" if default.host else ""
    return Fact("engine", "fine", f"{first}{place}, because {because}")


def _check_model_test(settings: Settings, environ: Mapping[str, str]) -> Iterator[Fact]:
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


def _check_local_servers(settings: Settings, environ: Mapping[str, str]) -> Fact:
    """Report which model servers respond on this machine."""
    servers = anyio.run(find_servers, list_local_addresses(settings.add_provider_addresses(environ)))
    if not servers:
        return Fact("local servers", "note", "none found; servers such as Ollama are found only while they are running")
    found = ", ".join(f"{one.provider} at {one.url} ({format_count(len(one.models), 'model')})" for one in servers)
    return Fact("local servers", "fine", f"{found}; run podium models to see how to use them")


def _check_coding_agents(environ: Mapping[str, str]) -> Fact:
    """Report which coding agents are installed."""
    names = ", ".join(find_coding_agents(environ))
    return Fact("coding agents", "fine" if names else "note", names or "none found on PATH")


def _check_local_models(settings: Settings, environ: Mapping[str, str]) -> Fact:
    """Report which local models are installed, and whether the package that runs them is installed."""
    folder = find_models_folder(environ, settings.home)
    names = ", ".join(f"{LOCAL}:{one.name} ({format_size(one.size)})" for one in folder.load_models())
    if not names:
        return Fact("local models", "note", "none installed; to list the available models, run podium models add")
    if not has_library():
        return Fact("local models", "note", f"{names}; to use them, run {format_install_commands('local')}")
    return Fact("local models", "fine", names)


def _check_keys(environ: Mapping[str, str]) -> Fact:
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


def _check_sandbox(repo: Path, settings: Settings) -> Fact:
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


def check_store(store: StoreAddress) -> Iterator[Fact]:
    """Check whether the store can be opened and written to, and whether it has resumable runs."""
    if isinstance(store, Path) and not store.exists():
        above = next(place for place in store.absolute().parents if place.exists())
        if os.access(above, os.W_OK):
            yield Fact("store", "fine", f"{store} does not exist yet; the first run creates it")
        else:
            yield Fact("store", "problem", f"cannot create {store}: {above} is not writable; set PODIUM_HOME")
        return
    if isinstance(store, PostgresAddress):
        yield from _check_postgres(store)
        return
    yield from _check_runs(store, about=str(store))


def _check_runs(store: StoreAddress, about: str) -> Iterator[Fact]:
    """Check whether the runs in a store can be read and written. `about` describes the store."""
    try:
        with StoreReader(store) as reader:
            runs = reader.list_runs()
    except PodiumError as error:
        yield Fact("store", "problem", str(error))
        return
    if isinstance(store, Path) and not (os.access(store, os.W_OK) and os.access(store.parent, os.W_OK)):
        yield Fact("store", "problem", f"{store} is not writable; check its permissions, or set PODIUM_HOME")
    else:
        yield Fact("store", "fine", f"{about}, {format_count(len(runs), 'run')}")
    if unconfirmed := list_unconfirmed_runs(store):
        yield Fact(
            "to confirm",
            "note",
            f"{', '.join(unconfirmed)}: a host of the fleet may have created these runs before the store recorded who "
            "creates a run, so they wait; look at each with podium show RUN, and confirm it with podium resume RUN",
        )
    waiting = [summary.id for summary in runs if summary.phase == "resumable"]
    if waiting:
        yield Fact("to resume", "note", f"{', '.join(waiting)}; continue with podium resume")


def _check_postgres(store: PostgresAddress) -> Iterator[Fact]:
    """Check the server of a PostgreSQL store, the version of its tables, its runs and its hosts."""
    try:
        require_postgres_packages()
        from ...store.postgres.schema import load_migrations  # imported here because it needs optional packages
        from ...store.postgres.server_check import check_server

        found, known = check_server(store), load_migrations()[-1].number
    except PodiumError as error:
        yield Fact("store", "problem", str(error))
        return
    if found.store_version == known:
        yield from _check_runs(store, about=f"{store} (PostgreSQL {found.server})")
    else:
        yield _check_version(store, found, known)
    yield _check_connection(found)
    yield _check_clock(found)
    yield from (_check_host(host) for host in found.hosts)


def _check_version(store: PostgresAddress, found: ServerCheck, known: int) -> Fact:
    """Report that the store has no tables, or that its tables are from another release."""
    place = f"{store} (PostgreSQL {found.server})"
    if found.store_version == 0:
        return Fact("store", "fine", f"{place} has no tables yet; the first run creates them")
    said = f"{place} has store version {found.store_version}, last migrated by Podium {found.release}"
    if found.store_version > known:
        wanted = f"this is Podium {__version__}, which supports store versions up to {known}"
        return Fact("store", "problem", f"{said}; {wanted}: update Podium on this machine")
    wanted = f"this is Podium {__version__}, which needs store version {known}"
    return Fact("store", "note", f"{said}; {wanted}: update Podium on all machines, then run podium store migrate")


def _check_connection(found: ServerCheck) -> Fact:
    """Report how long the server takes to answer, and whether the connection is encrypted."""
    secured = f"{found.tls}, sslmode={found.sslmode}" if found.tls else "without TLS"
    if found.is_local:
        secured += "; the connection does not leave this machine"
    said = f"the server answers in {_format_milliseconds(found.latency)}; {secured}"
    if found.latency > SLOW_SECONDS:
        return Fact(
            "connection", "note", f"{said}; every write takes at least this long, so use a server that is closer"
        )
    return Fact("connection", "fine", said)


def _check_clock(found: ServerCheck) -> Fact:
    """Report the difference between this machine's clock and the server's."""
    if abs(found.clock_offset) - found.latency / 2 <= SKEW_SECONDS:
        return Fact("clock", "fine", f"{_format_offset(found.clock_offset)} the server's")
    return Fact("clock", "note", f"{_format_offset(found.clock_offset)} the server's; {_EFFECT}")


def _check_host(host: HostCheck) -> Fact:
    """Report the state of a host, its release, and the difference between its clock and the server's."""
    what = f"host {host.name}"
    if host.seconds_ago is None:
        return Fact(what, "note", "never started; to start it, run podium host on its machine")
    said = f"Podium {host.version}, clock {_format_offset(host.clock_offset)} the server's"
    if host.state == "gone":
        return Fact(what, "fine", f"ended; {said}")
    if host.is_lost:
        return Fact(what, "note", f"lost: it has not reported for {host.seconds_ago:.0f} s; {said}")
    if not are_compatible(host.version, __version__):
        why = f"its version of Podium is not compatible with this version ({__version__})"
        how = "update Podium on the machine with the older version"
        return Fact(what, "problem", f"{host.state}; {said}; {why}; {how}")
    if abs(host.clock_offset) > SKEW_SECONDS:
        return Fact(what, "note", f"{host.state}; {said}; {_EFFECT}")
    return Fact(what, "fine", f"{host.state}; {said}")


def _format_offset(seconds: float) -> str:
    if abs(seconds) < 0.1:
        return "agrees with"
    return f"is {abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'}"


def _format_milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"
