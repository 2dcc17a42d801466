"""Run a commander while its store needs one."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

import anyio
from anyio import to_thread

from ..files.settings_document import NotifyTarget
from ..runs.notifier import Notifier, open_notifier
from ..runs.runs import Runs
from ..values.errors import PodiumError
from .commander import Commander, Timetable
from .commander_socket import SocketInUse
from .provider_keys import KEYS_TIMEOUT_SECONDS, finish_delivery, send_keys
from .settings_cache import SettingsCache
from .unfinished_workers import has_work

KEY_RETRY_SECONDS = 0.05
"""How long to wait before the next attempt while another commander is starting or exiting."""


async def run_commander(
    runs: Runs, environ: Mapping[str, str], delivery_run: str = "", *, timetable: Timetable
) -> None:
    """Act as the commander of the store while there is work.

    If another process is already the store's commander, send that process the keys for the run `delivery_run`.
    """
    # The notifier is closed last, after the commander has released its socket. So the next commander can already start
    # while the last notifications are being sent.
    async with open_worker_notifier(runs, environ) as notifier:
        commander = Commander(runs, environ, notifier, delivery_run=delivery_run, timetable=timetable)
        await _run_while_needed(commander, runs, delivery_run, timetable)


@asynccontextmanager
async def open_worker_notifier(runs: Runs, environ: Mapping[str, str]) -> AsyncIterator[Notifier]:
    """Open the notifier for the workers of a commander or a host, with the targets in the current settings."""
    async with open_notifier(
        partial(_read_notify_targets, SettingsCache(environ)),
        home=runs.settings.home,
        tell=lambda sentence: sys.stderr.write(f"{sentence}\n"),
        environ=environ,
    ) as notifier:
        yield notifier


def _read_notify_targets(settings_cache: SettingsCache) -> tuple[NotifyTarget, ...]:
    """Return the notification commands and webhooks in the current settings, or none if these cannot be read."""
    try:
        return settings_cache.get_settings().notify
    except PodiumError:
        return ()


async def _run_while_needed(commander: Commander, runs: Runs, delivery_run: str, timetable: Timetable) -> None:
    store, is_needed = runs.settings.store, True
    tried_until = anyio.current_time() + KEYS_TIMEOUT_SECONDS
    while is_needed:
        try:
            await commander.run_until_done()
        except SocketInUse:
            if not delivery_run or anyio.current_time() > tried_until:
                return
            if send_keys(store, delivery_run, runs.provider_variables):
                finish_delivery(store, delivery_run)
                return
            await anyio.sleep(KEY_RETRY_SECONDS)
            continue
        # A task may have been delegated just before the socket was closed, while this commander still seemed active.
        is_needed = await timetable.has_plans() or await to_thread.run_sync(has_work, store, commander.abandoned_runs)
