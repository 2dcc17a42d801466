"""Detect model servers that run on this machine, and installed coding agents.

Only loopback addresses are probed, and nothing that is found is used automatically: any program can
listen on a port, so the user has to agree to an address first.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from .model.providers import PROVIDERS, resolve_base_url, without_credentials

if TYPE_CHECKING:
    from aiohttp import ClientSession

PROBE_SECONDS = 0.3
MOST_BYTES = 1024 * 1024

CODING_AGENTS = ("goose", "copilot", "codex-acp", "claude", "claude-agent-acp", "opencode", "gemini", "qwen", "kimi")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """The address at which a provider's server is expected."""

    provider: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServer:
    """A server that answered, with the names of its models. The address has no credentials."""

    provider: str
    url: str
    models: tuple[str, ...]


class ModelEntry(Struct):
    """A model in a server's listing."""

    id: str


class ModelListing(Struct):
    """The response from a server's `/models` endpoint."""

    data: list[ModelEntry]


def list_local_addresses(environ: Mapping[str, str]) -> tuple[ServerAddress, ...]:
    """Return the addresses to probe: the loopback addresses of providers that need no key."""
    addresses = (
        ServerAddress(provider=one.name, url=resolve_base_url(one, environ))
        for one in PROVIDERS.values()
        if not one.key_name
    )
    return tuple(address for address in addresses if is_loopback(address.url))


def is_loopback(url: str) -> bool:
    """Return whether an address is on this machine, without a DNS lookup."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


async def find_servers(
    addresses: Iterable[ServerAddress], *, seconds: float = PROBE_SECONDS
) -> tuple[LocalServer, ...]:
    """Probe all addresses at once and return the servers that list their models within `seconds`."""
    # Importing these packages takes longer than most commands take to run.
    from aiohttp import ClientSession, DummyCookieJar
    from anyio import create_task_group, move_on_after

    candidates = tuple(addresses)
    found: dict[ServerAddress, LocalServer] = {}

    async def probe_server(client: ClientSession, address: ServerAddress) -> None:
        models = await _fetch_model_names(client, address.url)
        if models is not None:
            found[address] = LocalServer(provider=address.provider, url=without_credentials(address.url), models=models)

    async with ClientSession(cookie_jar=DummyCookieJar()) as client:
        with move_on_after(seconds):
            async with create_task_group() as group:
                for address in candidates:
                    group.start_soon(probe_server, client, address)
    return tuple(found[address] for address in candidates if address in found)


async def _fetch_model_names(client: ClientSession, url: str) -> tuple[str, ...] | None:
    from aiohttp import ClientError

    try:
        # A redirect could lead to another machine.
        async with client.get(f"{url}/models", allow_redirects=False) as answer:
            if answer.status != 200:
                return None
            body = bytearray()
            async for piece in answer.content.iter_any():
                body += piece
                if len(body) > MOST_BYTES:
                    return None
        return tuple(model.id for model in msgspec.json.decode(body, type=ModelListing).data)
    except (ClientError, OSError, ValueError, msgspec.MsgspecError):
        return None


def find_coding_agents(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the coding agents on the PATH, with the location of each, without running them."""
    path = environ.get("PATH", "")
    found = ((name, shutil.which(name, path=path)) for name in CODING_AGENTS)
    return {name: executable for name, executable in found if executable is not None}
