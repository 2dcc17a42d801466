"""Start the commander. Podium runs `python -m podium.programs.commander` when there are workers to start."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping

import anyio

from ..app import App
from ..files.settings import Settings
from ..schedules.schedule_firing import ScheduleFiring
from ..values.errors import PodiumError, find_first_error
from ..workers.commander_run import run_commander
from ..workers.settings_cache import SettingsCache


async def open_and_command(environ: Mapping[str, str], delivery_run: str = "") -> None:
    """Open the store that the environment specifies, and act as its commander while there is work.

    If the store already has a commander, send it the keys for the run `delivery_run` instead.
    """
    async with App(Settings.load(environ), environ=environ) as app:
        schedules = ScheduleFiring(app.runs, SettingsCache(environ).get_settings)
        await run_commander(app.runs, environ, delivery_run, timetable=schedules)


def main() -> int:
    """Run the commander and return the exit code, which is 0 if the store already has a commander."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.chdir("/")
    try:
        anyio.run(open_and_command, dict(os.environ), "".join(sys.argv[1:2]))
    except (PodiumError, ExceptionGroup) as error:
        why = find_first_error(error)
        sys.stderr.write(f"podium: {why if isinstance(why, PodiumError) else repr(why)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
