"""`podium hosts` and `host`: manage the hosts of a fleet, and make this machine one of them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import click

from ... import __version__
from ...files.settings import Settings
from ...store.store_connection import open_connection, require_postgres_packages
from ...values.column import Column, encode_rows
from ...values.errors import Mistake
from ...values.event import SCHEMA
from ...values.fleet_job import are_compatible, check_name
from ...values.store_address import PostgresAddress, StoreAddress
from ..output.command_options import json_option
from ..output.table import format_table
from ..output.text import as_json, format_age, print_to_stderr

if TYPE_CHECKING:
    from ...fleet.fleet_database import FleetDatabase, HostRow
import os
from collections.abc import Mapping
from functools import partial

from ...store.run_leases import LEASE_SECONDS, MOST_LEASE_SECONDS, OwnerId

T = TypeVar("T")


@click.group("hosts", invoke_without_command=True)
@json_option
@click.pass_context
def hosts_command(ctx: click.Context, is_json: bool) -> None:
    """List the hosts in the fleet: their labels, slots, version and state."""
    if ctx.invoked_subcommand is not None:
        return
    hosts = _call_fleet(lambda database: database.list_hosts())
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "hosts": encode_rows(hosts, HOST_COLUMNS)}))
        return
    if not hosts:
        print_to_stderr("no hosts; create a login for one with podium hosts add NAME")
        return
    click.echo("\n".join(format_table(hosts, HOST_COLUMNS, now=time.time())))
    others = [host.name for host in hosts if host.is_alive and not are_compatible(host.version, __version__)]
    if others:
        print_to_stderr(
            f"Podium on {', '.join(others)} is not compatible with this version ({__version__}); update the older one"
        )


@hosts_command.command("add")
@click.argument("name")
@json_option
def hosts_add_command(name: str, is_json: bool) -> None:
    """Create a login for the host NAME, and print the store address that podium host needs on that machine.

    The address contains the password, which is shown only once and is not stored. Only the owner of the database can
    create logins.
    """
    check_name(name, "host")
    store = _require_host_store(Settings.load().store)
    from ...store.postgres.login import replace_login  # imported here because it needs optional packages

    password = secrets.token_urlsafe(24)
    login = _call_fleet(lambda database: database.add_host(name, password), installs_queue=True)
    address = replace_login(store, login, password)
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "host": name, "login": login, "store": address}))
        return
    click.echo(address)
    print_to_stderr(
        f"{name}: login {login} created; the password is not shown again. On that machine, set PODIUM_STORE to this "
        "address and run podium host"
    )


@hosts_command.command("remove")
@click.argument("name")
def hosts_remove_command(name: str) -> None:
    """Remove the host NAME and its login. Other hosts take over its runs."""
    if not _call_fleet(lambda database: database.remove_host(name)):
        known = ", ".join(host.name for host in _call_fleet(lambda database: database.list_hosts())) or "none"
        raise Mistake(f"host {name!r} not found; available: {known}")
    print_to_stderr(f"{name}: host and login removed")


def _require_host_store(store: StoreAddress) -> PostgresAddress:
    """Return the address of a PostgreSQL store. Raise PodiumError if the store is a file or packages are missing."""
    if not isinstance(store, PostgresAddress):
        raise Mistake(
            f"hosts need a PostgreSQL store, because other machines cannot open the file {store}; set PODIUM_STORE or "
            "store: to postgresql://…"
        )
    require_postgres_packages()
    return store


def _call_fleet(call: Callable[[FleetDatabase], Coroutine[Any, Any, T]], *, installs_queue: bool = False) -> T:
    store = _require_host_store(Settings.load().store)
    # Imported here because the packages are an extra.
    from ...fleet.fleet_database import open_fleet_database
    from ...fleet.pgqueuer_placement import install_queue

    async def open_and_call() -> T:
        open_connection(store, create=True).close()  # creates or migrates the tables
        if installs_queue:
            await install_queue(store.url)
        async with open_fleet_database(store) as database:
            return await call(database)

    return anyio.run(open_and_call)


def _describe_state(host: HostRow) -> str:
    if host.seconds_ago is None:
        return "never started"
    return host.state if host.state != "active" or host.is_alive else "lost"


HOST_COLUMNS: tuple[Column[HostRow], ...] = (
    Column("name", "Name", lambda host: host.name),
    Column("state", "State", _describe_state),
    Column("slots", "Slots", lambda host: host.slots, "number", text=lambda host: f"{host.running}/{host.slots}"),
    Column("running", "Running", lambda host: host.running, "number", shown="nowhere"),
    Column("labels", "Labels", lambda host: host.labels, "data", text=lambda host: ",".join(host.labels) or "-"),
    Column("version", "Version", lambda host: host.version),
    Column("store_version", "Store version", lambda host: host.store_version, "number", shown="nowhere"),
    Column(
        "seen_seconds_ago",
        "Seen",
        lambda host: host.seconds_ago,
        "duration",
        text=lambda host: "-" if host.seconds_ago is None else format_age(host.seconds_ago),
    ),
    Column("clock_offset_seconds", "Clock offset", lambda host: host.clock_offset, "duration", shown="nowhere"),
)
"""The columns of the list of hosts."""


@click.command("host")
@click.option("--labels", default="", metavar="LABEL,…", help="Labels for this machine, e.g. gpu,linux.")
@click.option(
    "--slots", type=click.IntRange(min=1), default=8, show_default=True, help="Maximum number of runs at once."
)
@click.option(
    "--name",
    default="",
    help="Expected name of this host. If the store's address contains the login of another host, the command fails.",
)
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Seconds that runs may continue after SIGTERM before they are handed back to the fleet.",
)
@click.option(
    "--lease",
    type=click.FloatRange(min=1, max=MOST_LEASE_SECONDS),
    default=LEASE_SECONDS,
    show_default=True,
    help="Seconds after which other hosts take over the runs of this host if it dies; use the same value on all hosts.",
)
def host_command(labels: str, slots: int, name: str, grace: float, lease: float) -> None:
    """Make this machine a host of the store's fleet: it executes the fleet's runs until SIGTERM or Ctrl-C.

    The store must be a PostgreSQL database; use the address that podium hosts add prints. The API keys for model
    providers are read from the environment of this command. After the first signal, the host takes no more runs, and
    exits when its runs have ended or been handed back. After the second signal, it hands them back at once.
    """
    wanted = tuple(sorted({label.strip() for label in labels.split(",")} - {""}))
    anyio.run(_offer_machine, dict(os.environ), wanted, slots, name, grace, lease)


async def _offer_machine(
    environ: Mapping[str, str], labels: tuple[str, ...], slots: int, name: str, grace: float, lease: float
) -> None:
    settings = Settings.load(environ)
    store = _require_host_store(settings.store)
    # Imported here because these modules need optional packages.
    from ...app import App
    from ...schedules.schedule_firing import fire_as_host
    from ...workers.host import HostOptions, require_host_login, run_host

    require_host_login(store, name)
    owner = OwnerId(lease_seconds=lease)
    async with App(settings, environ=environ, owner=owner) as app:
        options = HostOptions(labels=labels, slots=slots, grace=grace)
        firing = partial(fire_as_host, app.runs, environ)
        await run_host(app.runs, environ, owner, options, print_to_stderr, fire_schedules=firing)
