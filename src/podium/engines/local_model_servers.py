"""Detect model servers that run on this machine, and installed coding agents.

Only loopback addresses are probed, and nothing that is found is used automatically: any program can
listen on a port, so the user has to confirm an address first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ..system.unsandboxed_program import find_current_program
from ..values.errors import Mistake
from .acp.agent_program import AGENT_PROGRAMS
from .model.providers import PROVIDERS, resolve_base_url, without_credentials

if TYPE_CHECKING:
    from aiohttp import ClientSession

PROBE_SECONDS = 0.3
ASK_SECONDS = 5.0
"""How long to wait for a server that the user has named."""

MOST_BYTES = 1024 * 1024

OWNERS = {"library": "ollama", "llamacpp": "llamacpp", "vllm": "vllm", "organization_owner": "lmstudio"}
"""The provider for each value of `owned_by` in a server's list of models."""

ANY_SERVER = "vllm"
"""The provider for a server of an unknown kind. It has no features beyond the API that all servers support."""

CODING_AGENTS = (*(program.command[0] for program in AGENT_PROGRAMS.values()), "claude")
"""The programs to look for: those of the known coding agents, and Claude Code, whose ACP program is separate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """The address where a provider's server is expected. The provider is empty if it is not known."""

    provider: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServer:
    """A server that answered, with the names of its models. The address has no credentials."""

    provider: str
    url: str
    models: tuple[str, ...]


class ModelEntry(Struct):
    """A model in a server's listing. Its `owned_by` usually shows the kind of server."""

    id: str
    owned_by: str | None = None


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
    """Probe all addresses at once and return the servers that list their models within `seconds`.

    An address without a provider gets the provider that its list of models suggests.
    """
    # Importing these packages takes longer than most commands take to run.
    from aiohttp import ClientSession, DummyCookieJar
    from anyio import create_task_group, move_on_after

    candidates = tuple(addresses)
    found: dict[ServerAddress, LocalServer] = {}

    async def probe_server(client: ClientSession, address: ServerAddress) -> None:
        models = await _fetch_model_list(client, address.url)
        if models is not None:
            found[address] = LocalServer(
                provider=address.provider or guess_provider(address.url, models),
                url=without_credentials(address.url),
                models=tuple(model.id for model in models),
            )

    async with ClientSession(cookie_jar=DummyCookieJar()) as client:
        with move_on_after(seconds):
            async with create_task_group() as group:
                for address in candidates:
                    group.start_soon(probe_server, client, address)
    return tuple(found[address] for address in candidates if address in found)


async def _fetch_model_list(client: ClientSession, url: str) -> list[ModelEntry] | None:
    body = await fetch_document(client, f"{url}/models")
    try:
        return None if body is None else msgspec.json.decode(body, type=ModelListing).data
    except (ValueError, msgspec.MsgspecError):
        return None


async def fetch_document(client: ClientSession, url: str, *, post: object = None, **options: Any) -> bytes | None:
    """Return the body of a response, or None if the request fails or the body is too long.

    `post` is a JSON document to send, and `options` contains options for the HTTP client.
    """
    from aiohttp import ClientError

    method = "GET" if post is None else "POST"
    try:
        # A redirect could lead to another machine.
        async with client.request(method, url, json=post, allow_redirects=False, **options) as answer:
            if answer.status != 200:
                return None
            body = bytearray()
            async for piece in answer.content.iter_any():
                body += piece
                if len(body) > MOST_BYTES:
                    return None
            return bytes(body)
    except (ClientError, OSError, ValueError):
        return None


def list_address_candidates(address: str, environ: Mapping[str, str], provider: str = "") -> tuple[ServerAddress, ...]:
    """Return the addresses to probe for a server that the user has named: a URL, a host with a port, or a provider.

    `provider` is the server's provider, if it is known. Raise Mistake if `address` is none of these.
    """
    known = {one.name: resolve_base_url(one, environ) for one in PROVIDERS.values() if not one.key_name}
    if address.lower() in known:
        return (ServerAddress(provider=address.lower(), url=known[address.lower()]),)
    base = (address if "://" in address else f"http://{address}").rstrip("/")
    try:
        parts = urlsplit(base)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or any(sign.isspace() for sign in base):
        raise Mistake(
            f"{without_credentials(address)!r} is not the address of a model server; use one such as "
            f"http://127.0.0.1:11434/v1, or one of: {', '.join(known)}"
        )
    by_url = {without_credentials(url): name for name, url in known.items()}
    urls = (base,) if parts.path.endswith("/v1") else (f"{base}/v1", base)
    return tuple(ServerAddress(provider=provider or by_url.get(without_credentials(url), ""), url=url) for url in urls)


def guess_provider(url: str, models: Iterable[ModelEntry]) -> str:
    """Guess the provider of a server from the owner of its models or from its port."""
    by_port = {urlsplit(one.base_url).port: one.name for one in PROVIDERS.values() if not one.key_name}
    owners = (OWNERS[model.owned_by] for model in models if model.owned_by in OWNERS)
    return next(owners, by_port.get(urlsplit(url).port, ANY_SERVER))


def find_coding_agents(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the coding agents on the PATH, with the location of each, without running them."""
    path = environ.get("PATH", "")
    found = ((name, find_current_program(name, path, None)) for name in CODING_AGENTS)
    return {name: executable for name, executable in found if executable is not None}
