"""The relay for one sandbox: the socket pair, the services that it offers, and their addresses inside the sandbox.

The sandbox has no network except its own loopback. A forwarder in the sandbox listens on one port for each service, and
the relay serves the connections outside the sandbox.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ...values.errors import Mistake
from . import _forwarder_program
from .host_grant import LOCAL_NAMES, HostGrant

if TYPE_CHECKING:
    from .asgi_service import AsgiApplication
    from .stream_channel import ServeStream

MODEL_PORT = 47701
COORDINATION_PORT = 47702
PROXY_PORT = 47703
MODEL_URL = f"http://127.0.0.1:{MODEL_PORT}"
"""The model's address inside the sandbox."""
COORDINATION_URL = f"http://127.0.0.1:{COORDINATION_PORT}"
"""The address of the coordination tools inside the sandbox."""
PROXY_URL = f"http://127.0.0.1:{PROXY_PORT}"
FORWARDER = Path(_forwarder_program.__file__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEndpoint:
    """The model server that an agent may call.

    The path of each call is appended to `url`. A call whose path leads outside `url` is refused. `headers` are added to
    every call and replace the agent's headers with the same names; they are not shown in messages. The constructor
    raises Mistake if `url` is invalid.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    proxy: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            is_host = bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
            is_valid = is_host and parts.scheme in ("http", "https") and not parts.query and not parts.fragment
        except ValueError:
            is_valid = False
        if not is_valid:
            raise Mistake(f"{self.url!r} is not the address of a model server; give one such as https://host/v1")


@dataclass(frozen=True, kw_only=True, eq=False)
class RelayConfiguration:
    """The services that a sandbox can reach: a model server, an application with coordination tools, and granted hosts.

    `report` is called with a sentence about each refused host, each failed connection and each violation of the relay's
    protocol.
    """

    model: ModelEndpoint | None = None
    coordination: AsgiApplication | None = None
    hosts: tuple[HostGrant, ...] = ()
    report: Callable[[str], object] = lambda text: None

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports of the services. The sandbox refers to a service by the index of its port in this tuple."""
        offered = ((self.model, MODEL_PORT), (self.coordination, COORDINATION_PORT), (self.hosts, PROXY_PORT))
        return tuple(port for service, port in offered if service)

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables that make programs use the proxy, or none if no hosts are granted."""
        if not self.hosts:
            return {}
        told = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), PROXY_URL)
        told["NODE_USE_ENV_PROXY"] = "1"
        is_loopback = any(grant.host in LOCAL_NAMES or grant.host.startswith(("127.", "::1")) for grant in self.hosts)
        if self.model or self.coordination or not is_loopback:
            # Programs in the sandbox reach each other, and the services above, without the proxy.
            told |= dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost,::1")
        return told


LEAST_DESCRIPTOR = 10


class SandboxRelay:
    """The relay for one program in a sandbox."""

    def __init__(self, configuration: RelayConfiguration) -> None:
        self.environment = configuration.environment
        self._configuration = configuration
        import fcntl  # missing on Windows, where there is no sandbox

        self._outer, inner = socket.socketpair()
        # The shell that starts the sandbox redirects a descriptor of one digit, which may be this one.
        with inner:
            self._inner = socket.socket(fileno=fcntl.fcntl(inner, fcntl.F_DUPFD_CLOEXEC, LEAST_DESCRIPTOR))

    @property
    def descriptor(self) -> int:
        """The descriptor that the sandbox inherits."""
        return self._inner.fileno()

    @property
    def command(self) -> tuple[str, ...]:
        """The command prefix that runs a program alongside the forwarder."""
        ports = ",".join(map(str, self._configuration.ports))
        return (sys.executable, "-I", "-S", str(FORWARDER), str(self.descriptor), ports)

    async def serve(self) -> None:
        """Let the sandboxed program start when its sandbox is ready, and serve its connections until it ends."""
        from .stream_channel import StreamChannel  # imported here for start-up time: few commands need a relay

        async with self._open_services() as services:
            await StreamChannel(self._outer, services, report=self._configuration.report).serve()

    def close_inner(self) -> None:
        """Close this process's copy of the descriptor that the sandbox has inherited."""
        self._inner.close()

    def close(self) -> None:
        """Close both ends."""
        self._inner.close()
        self._outer.close()

    @asynccontextmanager
    async def _open_services(self) -> AsyncIterator[list[ServeStream]]:
        """Yield the services, in the order of the ports."""
        # Imported here for start-up time: few commands need a relay.
        from .asgi_service import make_asgi_service
        from .host_proxy import open_host_proxy
        from .model_service import open_model_service

        offered = self._configuration
        async with AsyncExitStack() as stack:
            services: list[ServeStream] = []
            if offered.model:
                services.append(await stack.enter_async_context(open_model_service(offered.model)))
            if offered.coordination:
                services.append(make_asgi_service(offered.coordination))
            if offered.hosts:
                proxy = open_host_proxy(offered.hosts, report=offered.report)
                services.append(await stack.enter_async_context(proxy))
            yield services
