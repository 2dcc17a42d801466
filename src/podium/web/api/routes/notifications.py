"""Routes for notifications: read and change their settings, and send a test notification.

The command line uses the same settings.
"""

from __future__ import annotations

import time
from typing import Literal

from anyio import to_thread
from litestar import get, post
from litestar.params import JSONBody
from msgspec import Struct

from ....files.settings import Settings
from ....files.settings_document import NOTIFY_WORDS, NotifyCommand, NotifyTarget, describe_notify_target
from ....files.settings_edit import set_notify_words
from ....files.settings_files import USER_FILE
from ....runs.notifier import open_notifier
from ....system.locations import format_path
from ....values.column import Document
from ....values.errors import Mistake
from ....views.notification import Notification
from ..route_parameters import Server
from ..scopes import may_act, may_approve, may_read
from ..server_context import ServerContext

TEST_RUN = "000000000000"
"""The run id in a test notification. No run has this id."""


class TerminalWays(Struct, forbid_unknown_fields=True):
    """The methods that terminals use to notify the user, such as `bell`.

    Webhooks and commands are not included, because they can be changed only in the settings file.
    """

    words: tuple[Literal["bell", "title", "desktop"], ...]


class NotificationSettings(Document, frozen=True, kw_only=True):
    """How the user is notified: in terminals, by webhooks and by commands. `file` is the user's own settings file."""

    file: str
    terminal: dict[str, bool]
    webhooks: list[str]
    commands: list[str]


class SentTest(Struct, frozen=True, kw_only=True):
    """The number of test notifications that were sent, and what went wrong with the others."""

    sent: int
    problems: list[str]


@get("/api/notifications", guards=[may_read], sync_to_thread=True)
def read_notifications(server: Server) -> NotificationSettings:
    """Return how the user is notified: in terminals, by webhooks and by commands."""
    return _load_notification_settings(server)


@post("/api/notifications", guards=[may_approve], status_code=200, sync_to_thread=True)
def change_notifications(data: JSONBody[TerminalWays], server: Server) -> NotificationSettings:
    """Set how terminals notify the user, in the user's own settings file."""
    set_notify_words(server.settings.home / USER_FILE, data.words)
    return _load_notification_settings(server)


@post("/api/notifications/test", guards=[may_act], status_code=200)
async def test_notifications(server: Server) -> SentTest:
    """Send a test notification to every webhook and command, and say which of them failed."""
    targets = [one for one in await to_thread.run_sync(_load_targets, server) if one not in NOTIFY_WORDS]
    if not targets:
        raise Mistake("notify in your settings has no webhook and no command, so there is nothing to test")
    problems: list[str] = []
    async with open_notifier(lambda: targets, home=server.settings.home, tell=problems.append) as notifier:
        notifier.send(Notification(event="finished", run=TEST_RUN, at=time.time(), outcome="succeeded"))
    return SentTest(sent=len(targets) - len(problems), problems=problems)


def _load_notification_settings(server: ServerContext) -> NotificationSettings:
    targets = _load_targets(server)
    return NotificationSettings(
        file=format_path(server.settings.home / USER_FILE),
        terminal={word: word in targets for word in NOTIFY_WORDS},
        webhooks=[describe_notify_target(one) for one in targets if _is_webhook(one)],
        commands=[describe_notify_target(one) for one in targets if isinstance(one, NotifyCommand)],
    )


def _load_targets(server: ServerContext) -> tuple[NotifyTarget, ...]:
    return Settings.load(repo=server.repo, store=server.store, home=server.settings.home).notify


def _is_webhook(target: NotifyTarget) -> bool:
    return not isinstance(target, NotifyCommand) and target not in NOTIFY_WORDS


ROUTES = (read_notifications, change_notifications, test_notifications)
