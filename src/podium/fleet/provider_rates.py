"""Limit the rate of calls to a provider across all machines. The owner of the database sets the limit."""

from __future__ import annotations

import time
from types import TracebackType

from ..values.errors import PlacementUnavailable
from ..values.store_address import PostgresAddress
from .fleet_database import open_fleet_database

REFRESH_SECONDS = 10.0
"""How long the list of rate-limited providers is cached."""


class ProviderRates:
    """Reserves capacity under the providers' rate limits for the calls that one process makes.

    Calls to providers without a rate limit need no reservation.
    """

    def __init__(self, store: PostgresAddress) -> None:
        self._database = open_fleet_database(store)
        self._limited: frozenset[str] = frozenset()
        self._read_at = -REFRESH_SECONDS

    async def __aenter__(self) -> ProviderRates:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._database.__aexit__(exc_type, exc, traceback)

    async def reserve_call(self, provider: str) -> float:
        """Reserve capacity for a call to a provider, and return how many seconds to wait before making it.

        Return 0 if the provider has no rate limit, or if the database is unavailable.
        """
        try:
            if time.monotonic() >= self._read_at + REFRESH_SECONDS:
                self._limited = await self._database.list_limited_providers()
                self._read_at = time.monotonic()
            return await self._database.reserve_calls(provider) if provider in self._limited else 0.0
        except PlacementUnavailable:
            return 0.0
