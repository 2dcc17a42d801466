"""`podium host`: execute a fleet's runs on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial

import anyio
import click

from ...files.settings import Settings
from ...store.run_leases import LEASE_SECONDS, MOST_LEASE_SECONDS, OwnerId
from ..terminal.text import print_to_stderr
from .hosts import require_host_store


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
    store = require_host_store(settings.store)
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
