"""Serve the API and the dashboard until a signal arrives."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from anyio import CancelScope, Event, create_task_group, open_signal_receiver, sleep, to_thread

from ..core.clock import CHECK_SECONDS
from ..files.settings import Settings
from ..schedules.schedule_firing import describe_unattended_schedules
from ..store.worker_index import WorkerIndex
from ..values.actor import AccessScope
from ..values.errors import Mistake
from ..workers.commander_socket import commander_socket_path, is_commander_listening
from ..workers.delegation import start_commander
from ..workers.unfinished_workers import has_work
from .api.access_tokens import SCOPES, TokenFile
from .api.server_context import ServerContext
from .api.server_log import LOG_CONFIG, EscapingFormatter
from .web_server import build_app

if TYPE_CHECKING:
    from .certificate import ServerCertificate

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
LOCAL_ADDRESSES = ("127.0.0.1", "localhost", "::1")
REMEMBERED_CODE_SECONDS = 120.0
SHUTDOWN_SECONDS = 1


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Where to listen, and what a browser that signs in with a code may do.

    If `is_remembered` is true, a browser that signs in stays signed in until its token is revoked. `public_names`
    lists the public host names of the server behind a reverse proxy. `certificate` is a file with the user's own
    certificate.
    """

    host: str = "127.0.0.1"
    port: int = 0
    scopes: Sequence[AccessScope] = SCOPES
    repo: Path
    is_remembered: bool = False
    public_names: Sequence[str] = ()
    certificate: Path | None = None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        return self.host in LOCAL_ADDRESSES


class QuietServer(uvicorn.Server):
    """A uvicorn server that leaves signals to its caller, and sets `is_listening` once it is listening."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_listening = Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_listening.set()


@dataclass(frozen=True, kw_only=True)
class RunningServer:
    """A server that accepts connections."""

    context: ServerContext
    address: str
    options: ServeOptions
    fingerprint: str = ""
    """The fingerprint of the certificate, if connections are encrypted."""

    def make_sign_in_address(self) -> str:
        """Return the dashboard's address with a new sign-in code.

        The code is in the fragment, after the #, which browsers do not send to servers.
        """
        if self.options.is_remembered:
            code = self.context.codes.create_code(self.options.scopes, seconds=REMEMBERED_CODE_SECONDS)
            return f"{self.address}/#code={code}&remember=1"
        return f"{self.address}/#code={self.context.codes.create_code(self.options.scopes)}"


@asynccontextmanager
async def open_server(settings: Settings, options: ServeOptions) -> AsyncIterator[RunningServer]:
    """Listen and serve until the block ends. Raise Mistake if the address cannot be used."""
    certificate = _choose_certificate(settings.home, options)
    listening = _bind_address(options.host, options.port)
    port = listening.getsockname()[1]
    context = ServerContext(settings=settings, tokens=TokenFile(settings.home), repo=options.repo)
    shown_host = f"[{options.host}]" if ":" in options.host else options.host
    hosts = {f"{host}:{port}" for host in (*LOOPBACK_HOSTS, shown_host)}
    is_tls = certificate is not None
    app = build_app(context, hosts=hosts, public_names=options.public_names, is_tls=is_tls)
    server = QuietServer(_make_config(app, certificate, has_proxy=bool(options.public_names)))
    address = f"{'https' if is_tls else 'http'}://{shown_host}:{port}"
    fingerprint = "" if certificate is None else certificate.fingerprint
    with closing(listening):
        async with create_task_group() as tasks:
            tasks.start_soon(server.serve, [listening])
            await server.is_listening.wait()
            if WorkerIndex(settings.store).list_open():
                start_commander(settings)  # the commander continues interrupted workers
            keeping = CancelScope()
            tasks.start_soon(_keep_schedules, settings, keeping)
            try:
                yield RunningServer(context=context, address=address, options=options, fingerprint=fingerprint)
            finally:
                context.hub.close()
                context.client_runs.close()
                server.should_exit = True
                keeping.cancel()


async def _keep_schedules(settings: Settings, scope: CancelScope) -> None:
    """Start a commander whenever schedules or workers need one and none is running, until `scope` is cancelled."""
    with scope:
        while True:
            if await to_thread.run_sync(_needs_commander, settings):
                start_commander(settings)
            await sleep(CHECK_SECONDS)


def _needs_commander(settings: Settings) -> bool:
    """Return whether schedules or workers need a commander but none is running.

    For example, a worker that is waiting for a limit to reset needs a commander to continue it afterwards.
    """
    if describe_unattended_schedules(settings):
        return True
    is_running = is_commander_listening(commander_socket_path(settings.store))
    return not is_running and settings.store.exists() and has_work(settings.store)


def _choose_certificate(home: Path, options: ServeOptions) -> ServerCertificate | None:
    """Return the certificate to use, or None if only this machine can connect and the user gave no certificate."""
    if options.is_local and options.certificate is None:
        return None
    from .certificate import load_certificate, read_given_certificate  # imported here for start-up time

    if options.certificate is not None:
        return read_given_certificate(options.certificate)
    return load_certificate(home, sorted({options.host, "localhost", "127.0.0.1", *options.public_names}))


def _make_config(app: Any, certificate: ServerCertificate | None = None, *, has_proxy: bool = False) -> uvicorn.Config:
    """Return uvicorn's configuration. Requests are not logged, because URLs can contain text that users typed.

    Headers that name the client of a proxy are read only if there is a proxy: any other client could make them up.
    """
    return uvicorn.Config(
        app,
        ssl_certfile=None if certificate is None else str(certificate.file),
        log_config=LOG_CONFIG,
        access_log=False,
        lifespan="on",
        http="h11",  # the limits and the check of the path are tested with this parser only
        proxy_headers=has_proxy,
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        h11_max_incomplete_event_size=64 * 1024,
        limit_concurrency=2000,
    )


def _bind_address(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address. Raise Mistake if this process cannot listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol, asyncio turns off Nagle's algorithm, which delays the second packet of a response by 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise Mistake(f"cannot listen on {host}:{port}: {error.strerror}; use another --port or --host") from error
    return listening


async def serve_until_signal(
    settings: Settings, options: ServeOptions, on_ready: Callable[[RunningServer], None]
) -> int:
    """Serve until SIGINT or SIGTERM arrives, and return the signal."""
    if logging.lastResort is not None:  # it prints what libraries log and nothing else handles
        logging.lastResort.setFormatter(EscapingFormatter())
    async with open_server(settings, options) as server:
        with open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            on_ready(server)
            async for received in signals:
                return received
    return 0
