"""The name of the queue that a fleet's hosts take runs from."""

from __future__ import annotations

from .errors import Mistake

PGQUEUER = "pgqueuer"
"""The queue in the store's database, which is the only one."""


def require_known_queue(text: str) -> None:
    """Raise Mistake if this does not name the queue. The text may contain a password, so it is never in the message."""
    if text.startswith(("nats://", "tls://")):
        raise Mistake(
            "queues on NATS servers are no longer supported: a fleet's queue is in the store's database; remove this "
            "setting, and see podium doctor for runs that still wait on the NATS server"
        )
    if text != PGQUEUER:
        raise Mistake(f"expected {PGQUEUER}, the queue in the store's database")
