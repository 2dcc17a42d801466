"""MCP servers as other tools write them: an `mcpServers` table, read into servers. Reading starts nothing."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ..values.errors import Mistake
from ..values.mcp_server import NAME_RULE, McpServer, ResolvedServer, Source, build_trust_name, is_server_name

__all__ = ["McpServer", "ResolvedServer", "Source", "build_trust_name", "parse_servers"]

HTTP = ("http", "streamable-http", "streamable_http")


def parse_servers(value: Mapping[str, object], *, source: Source, where: str) -> dict[str, McpServer]:
    """The servers of an `mcpServers` table, by name; one marked as disabled is left out. Raises Mistake."""
    if not isinstance(value, Mapping):
        raise Mistake(f"mcpServers of {where} is no table; a table of servers by name would be right")
    servers = {}
    for name, entry in value.items():
        place = f"the MCP server {str(name)!r} of {where}"
        if not isinstance(name, str) or not is_server_name(name):
            raise Mistake(f"{place} has a name that tools cannot be called by; {NAME_RULE}")
        if not isinstance(entry, Mapping):
            raise Mistake(f"{place} is no table; one with a command or a url would be right")
        if entry.get("disabled") is not True:
            servers[name] = _parse_server(name, entry, source=source, place=place)
    return servers


def _parse_server(name: str, entry: Mapping[str, object], *, source: Source, place: str) -> McpServer:
    known = {key: entry[key] for key in ("command", "args", "env", "url", "headers") if entry.get(key) is not None}
    for key in ("env", "headers"):
        if isinstance(table := known.get(key), Mapping):
            known[key] = {at: _stringify_scalar(of) for at, of in table.items()}
    if isinstance(args := known.get("args"), list | tuple):
        known["args"] = [_stringify_scalar(arg) for arg in args]
    try:
        server = msgspec.convert({**known, "name": name, "source": source}, McpServer)
    except msgspec.ValidationError as error:
        raise Mistake(f"{place} is not written as a server is: {error}") from error
    if bool(server.command) == bool(server.url):
        raise Mistake(f"{place} has {'both' if server.url else 'neither'} a command and a url; one would be right")
    kind = entry.get("type")
    if kind not in (None, *(HTTP if server.url else ("stdio",))):
        fits = "http" if server.url else "stdio"
        raise Mistake(
            f"{place} has the type {kind!r}; {fits!r} would be right for one with a {_get_launch_key(server)}"
        )
    if server.url and not server.url.startswith(("http://", "https://", "${")):
        raise Mistake(f"{place} has the url {server.url!r}; one that begins with https:// or http:// would be right")
    if any("\0" in text for text in (server.command, *server.args, *server.env, *server.env.values())):
        raise Mistake(f"{place} has a character that no program can be started with; text without it would be right")
    return server


def _stringify_scalar(value: object) -> object:
    """A number or a truth value as it would stand in the environment; anything else as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _get_launch_key(server: McpServer) -> str:
    return "url" if server.url else "command"
