"""Parse an `mcpServers` table in the format that other tools use. Parsing does not start any server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from ..values.errors import Mistake
from ..values.mcp_server import NAME_RULE, McpServer, ResolvedServer, Source, build_trust_name, is_server_name


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTimeouts:
    """The timeouts, in seconds, for starting a server and listing its tools, for a call, and for each shutdown step."""

    start: float = 30.0
    call: float = 60.0
    grace: float = 2.0


class ServerUnavailable(Exception):
    """The server is not available. The message says how it ended or why it could not be started."""


__all__ = ["McpServer", "ResolvedServer", "Source", "build_trust_name", "parse_servers"]
HTTP = ("http", "streamable-http", "streamable_http")


def parse_servers(value: Mapping[str, object], *, source: Source, where: str) -> dict[str, McpServer]:
    """Return the servers in an `mcpServers` table that are not disabled. Raise Mistake if a server is invalid."""
    if not isinstance(value, Mapping):
        raise Mistake(f"mcpServers in {where} must be a table that maps names to servers, got {type(value).__name__}")
    servers = {}
    for name, entry in value.items():
        place = f"the MCP server {str(name)!r} in {where}"
        if not isinstance(name, str) or not is_server_name(name):
            raise Mistake(f"{place} has an invalid name; {NAME_RULE}")
        if not isinstance(entry, Mapping):
            raise Mistake(f"{place} must be a table with a command or a url, got {type(entry).__name__}")
        if entry.get("disabled") is not True:
            servers[name] = _parse_server(name, entry, source=source, place=place)
    return servers


def _parse_server(name: str, entry: Mapping[str, object], *, source: Source, place: str) -> McpServer:
    known = {
        key: entry[key] for key in ("command", "args", "env", "cwd", "url", "headers") if entry.get(key) is not None
    }
    for key in ("env", "headers"):
        if isinstance(table := known.get(key), Mapping):
            known[key] = {at: _stringify_scalar(of) for at, of in table.items()}
    if isinstance(args := known.get("args"), list | tuple):
        known["args"] = [_stringify_scalar(arg) for arg in args]
    try:
        server = msgspec.convert({**known, "name": name, "source": source}, McpServer)
    except msgspec.ValidationError as error:
        raise Mistake(f"{place} is invalid: {error}") from error
    if bool(server.command) == bool(server.url):
        raise Mistake(
            f"{place} has {'both a command and a url' if server.url else 'neither a command nor a url'}; "
            "give exactly one of them"
        )
    kind = entry.get("type")
    if kind not in (None, *(HTTP if server.url else ("stdio",))):
        fits = "http" if server.url else "stdio"
        raise Mistake(
            f"{place} has the type {kind!r}, but a server with a {_get_launch_key(server)} needs the type {fits!r}"
        )
    if server.url and not server.url.startswith(("http://", "https://", "${")):
        raise Mistake(f"{place} has the url {server.url!r}; the url must start with https:// or http://")
    if any("\0" in text for text in (server.command, *server.args, *server.env, *server.env.values())):
        raise Mistake(f"{place} has a NUL character in its command, args or env; remove it")
    return server


def _stringify_scalar(value: object) -> object:
    """Convert a number or boolean to a string, and return other values unchanged."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _get_launch_key(server: McpServer) -> str:
    return "url" if server.url else "command"
