"""Send notifications by running a command or calling a webhook.

Commands and URLs come only from the user's own settings. A command gets the notification as JSON on its standard
input, and a webhook gets it in the body of a POST request. Only the first failure or timeout of each command or webhook
is reported. Failures have no other effect.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from anyio import create_task_group, fail_after
from anyio.abc import TaskGroup
from msgspec import structs

from ..engines.model.providers import find_key_names
from ..files.settings_document import NOTIFY_WORDS, NotifyCommand, NotifyTarget
from ..system.child_process import run_process
from ..system.process_group import ProgramNotStarted
from ..system.unsandboxed_program import (
    build_unsandboxed_environment,
    find_current_checkouts,
    find_unsandboxed_program,
)
from ..values.errors import Mistake
from ..values.event import SCHEMA
from ..values.plain_text import escape_unprintable, truncate_text
from ..views.notification import Notification

NOTIFY_SECONDS = 5.0
"""The time limit for a command or webhook."""
LONGEST_OUTPUT = 4096


class Notifier:
    """Sends notifications to the commands and webhooks in the settings, without waiting for them."""

    def __init__(
        self,
        group: TaskGroup,
        targets: Callable[[], Sequence[NotifyTarget]],
        *,
        home: Path,
        environ: Mapping[str, str],
        tell: Callable[[str], object],
        seconds: float = NOTIFY_SECONDS,
    ) -> None:
        self._group = group
        self._targets = targets
        self._home = home
        secret = find_key_names(environ)
        self._environ = {name: value for name, value in environ.items() if name not in secret}
        self._tell = tell
        self._seconds = seconds
        self._failed: set[NotifyTarget] = set()

    @property
    def is_needed(self) -> bool:
        """Whether a command or a webhook is configured for notifications."""
        return any(target not in NOTIFY_WORDS for target in self._targets())

    def send(self, notification: Notification) -> None:
        """Start sending a notification to every command and webhook."""
        body = msgspec.json.encode({"schema": SCHEMA, **structs.asdict(notification), "text": notification.text})
        for target in self._targets():
            if target not in NOTIFY_WORDS:
                self._group.start_soon(self._deliver, target, body)

    async def _deliver(self, target: NotifyTarget, body: bytes) -> None:
        """Send a notification to a target, and report the target's first failure."""
        if isinstance(target, NotifyCommand):
            why = await self._run_command(target.command, body)
        else:
            why = await self._post_to_webhook(target, body)
        if why and target not in self._failed:
            self._failed.add(target)
            self._tell(f"the notification failed: {why}")

    async def _run_command(self, argv: Sequence[str], body: bytes) -> str:
        """Run a command with the notification as its input. Return why it failed, or an empty string on success."""
        output = bytearray()
        checkouts = find_current_checkouts(self._home)
        named = [path for word in argv[1:] for path in checkouts.list_named(word)]
        if named:
            where = escape_unprintable(truncate_text(named[0], 200))
            return (
                f"the command {argv[0]} names {where}, which agents' commands can change; move it out of the checkout"
            )

        def keep_start(chunk: bytes) -> bool:
            output.extend(chunk[: LONGEST_OUTPUT - len(output)])
            return True

        environ = build_unsandboxed_environment(self._environ, checkouts)
        try:
            program = argv[0]
            if "/" not in program or program.startswith("/"):
                program = find_unsandboxed_program(program, self._environ.get("PATH", os.defpath), checkouts)
            # Run in Podium's home, so that a relative path never refers to a file in a repository.
            ended = await run_process(
                [program, *argv[1:]],
                env=environ,
                directory=self._home,
                take=keep_start,
                timeout=self._seconds,
                stdin=body + b"\n",
            )
        except (ProgramNotStarted, Mistake) as error:
            return str(error)
        if ended.has_timed_out:
            return f"the command {argv[0]} took longer than {self._seconds:g} s"
        if ended.code == 0:
            return ""
        said = truncate_text(escape_unprintable(output.decode(errors="replace").strip()), 200)
        return f"the command {argv[0]} failed ({ended}){f': {said}' if said else ''}"

    async def _post_to_webhook(self, url: str, body: bytes) -> str:
        """Post a notification to a webhook. Return why that failed, or an empty string on success."""
        from aiohttp import ClientError, ClientSession, DummyCookieJar

        # Imported here for start-up time: importing aiohttp takes longer than most commands.
        from ..engines.model.http_wire import find_proxy

        # The path, the query and the user name may be secret.
        place = f"the webhook at {urlsplit(url).netloc.rpartition('@')[2]}"
        try:
            with fail_after(self._seconds):
                async with (
                    ClientSession(cookie_jar=DummyCookieJar(), headers={"User-Agent": "podium"}) as client,
                    client.post(
                        url,
                        data=body,
                        headers={"Content-Type": "application/json"},
                        proxy=find_proxy(url),
                        allow_redirects=False,
                    ) as response,
                ):
                    return "" if response.status < 300 else f"{place} returned status {response.status}"
        except TimeoutError:
            return f"{place} did not respond within {self._seconds:g} s"
        except (ClientError, OSError, ValueError):
            return f"{place} cannot be reached"


@asynccontextmanager
async def open_notifier(
    targets: Callable[[], Sequence[NotifyTarget]],
    *,
    home: Path,
    tell: Callable[[str], object],
    environ: Mapping[str, str] = os.environ,
    seconds: float = NOTIFY_SECONDS,
) -> AsyncIterator[Notifier]:
    """Yield a notifier. When the block ends, wait for notifications that are still being sent.

    `targets` returns the current commands and webhooks. `tell` is called with a message about each target that fails.
    `seconds` is the time limit for each notification.
    """
    async with create_task_group() as group:
        yield Notifier(group, targets, home=home, environ=environ, tell=tell, seconds=seconds)
