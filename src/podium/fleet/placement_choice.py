"""Open the queue selected in the settings: PgQueuer in the store's database, or a NATS server."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from ..core.job_placement import JobPlacement
from ..values.errors import DependencyMissing
from ..values.placement_address import PGQUEUER, check_placement
from ..values.release import format_install_commands
from ..values.store_address import PostgresAddress
from .pgqueuer_placement import LEASE_SECONDS, PgQueuerPlacement


def open_placement(
    store: PostgresAddress, placement: str, *, lease_seconds: float = LEASE_SECONDS
) -> AbstractAsyncContextManager[JobPlacement]:
    """Return the queue at the address `placement`, to be opened with `async with`.

    Raise Mistake if the address is invalid or not safe, and DependencyMissing if a package is not installed. Opening a
    queue on a NATS server raises PlacementUnavailable if the server does not answer.
    """
    if placement == PGQUEUER:
        return PgQueuerPlacement(store.url, lease_seconds=lease_seconds)
    check_placement(placement)
    try:
        from .nats_placement import NatsPlacement  # imported here because the NATS client is in a separate extra
    except ImportError as error:
        raise DependencyMissing(
            "a queue on a NATS server needs the extra podium[nats]; install it with "
            f"{format_install_commands('fleet,nats')}"
        ) from error
    return NatsPlacement(placement, lease_seconds=lease_seconds)
