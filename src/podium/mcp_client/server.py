"""An MCP server as it is written down: a program to start, or an address to call.

Reading it starts nothing. What it names as `${NAME}` stays a name until the server starts; the
values are neither stored nor shown.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, structs

from ..errors import Mistake
from .plain import cut, plain

Source = Literal["user", "repo"]

NAME = re.compile(r"[A-Za-z0-9]+(?:(?:_|-+)[A-Za-z0-9]+)*")
LONGEST_NAME = 40
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|AUTH|CREDENTIAL|PRIVATE", re.IGNORECASE)
SHORTEST_SECRET = 6
HTTP = ("http", "streamable-http", "streamable_http")


class McpServer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A server of tools. `source` says whose file it stands in: the person's own, or the repository's."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}
    source: Source = "user"

    @property
    def digest(self) -> str:
        """What a person trusts: the hash of all that says what is started or called."""
        told = (self.command, self.args, self.env, self.url, self.headers)
        return sha256(msgspec.json.encode(told, order="sorted")).hexdigest()

    @property
    def shown(self) -> str:
        """What starting it means, in one line and as it is written."""
        if self.url:
            names = f" with the headers {', '.join(self.headers)}" if self.headers else ""
            return plain(f"call {self.url}{names}")
        env = "".join(f"{name}={shlex.quote(cut(value, 60))} " for name, value in self.env.items())
        return plain(f"start {env}{shlex.join([self.command, *self.args])}")

    def filled(self, environ: Mapping[str, str]) -> Filled:
        """The server with the values of the variables that it names. Raises Mistake where one is not set."""
        secrets: dict[str, str] = {}

        def value(match: re.Match[str]) -> str:
            name, default = match.groups()
            found = environ.get(name) or default
            if found is None:
                raise Mistake(f"the MCP server {self.name!r} needs the variable {name}, which is not set; set it")
            if SECRET.search(name) and len(found) >= SHORTEST_SECRET:
                secrets[found] = name
            return found

        def texts(table: Mapping[str, str]) -> dict[str, str]:
            return {name: VARIABLE.sub(value, text) for name, text in table.items()}

        server = structs.replace(
            self,
            args=tuple(VARIABLE.sub(value, text) for text in self.args),
            env=texts(self.env),
            url=VARIABLE.sub(value, self.url),
            headers=texts(self.headers),
        )
        return Filled(server=server, secrets=secrets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A server with values in place of names, for the time that it runs; `secrets` are those to hide, by value."""

    server: McpServer
    secrets: Mapping[str, str]

    def hidden(self, text: str) -> str:
        """`text` with names in place of the secrets that the server was given."""
        for value, name in self.secrets.items():
            text = text.replace(value, f"${{{name}}}")
        return text


def trusted_name(server: McpServer, directory: Path | None) -> str:
    """The name that trust in a server goes by. What came with a repository is trusted in that repository only."""
    return server.name if server.source == "user" else f"{server.name} in {directory}"


def parse_servers(value: Mapping[str, object], *, source: Source, where: str) -> dict[str, McpServer]:
    """The servers of an `mcpServers` table, by name; one marked as disabled is left out. Raises Mistake."""
    if not isinstance(value, Mapping):
        raise Mistake(f"mcpServers of {where} is no table; a table of servers by name would be right")
    servers = {}
    for name, entry in value.items():
        place = f"the MCP server {str(name)!r} of {where}"
        if not isinstance(name, str) or len(name) > LONGEST_NAME or not NAME.fullmatch(name):
            raise Mistake(
                f"{place} has a name that tools cannot be called by; letters, digits, hyphens and single underscores "
                f"between them would be right, at most {LONGEST_NAME}"
            )
        if not isinstance(entry, Mapping):
            raise Mistake(f"{place} is no table; one with a command or a url would be right")
        if entry.get("disabled") is not True:
            servers[name] = _parsed(name, entry, source=source, place=place)
    return servers


def _parsed(name: str, entry: Mapping[str, object], *, source: Source, place: str) -> McpServer:
    known = {key: entry[key] for key in ("command", "args", "env", "url", "headers") if entry.get(key) is not None}
    for key in ("env", "headers"):
        if isinstance(table := known.get(key), Mapping):
            known[key] = {at: _text(of) for at, of in table.items()}
    if isinstance(args := known.get("args"), list | tuple):
        known["args"] = [_text(arg) for arg in args]
    try:
        server = msgspec.convert({**known, "name": name, "source": source}, McpServer)
    except msgspec.ValidationError as error:
        raise Mistake(f"{place} is not written as a server is: {error}") from error
    if bool(server.command) == bool(server.url):
        raise Mistake(f"{place} has {'both' if server.url else 'neither'} a command and a url; one would be right")
    kind = entry.get("type")
    if kind not in (None, *(HTTP if server.url else ("stdio",))):
        fits = "http" if server.url else "stdio"
        raise Mistake(f"{place} has the type {kind!r}; {fits!r} would be right for one with a {_key(server)}")
    if server.url and not server.url.startswith(("http://", "https://", "${")):
        raise Mistake(f"{place} has the url {server.url!r}; one that begins with https:// or http:// would be right")
    if any("\0" in text for text in (server.command, *server.args, *server.env, *server.env.values())):
        raise Mistake(f"{place} has a character that no program can be started with; text without it would be right")
    return server


def _text(value: object) -> object:
    """A number or a truth value as it would stand in the environment; anything else as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _key(server: McpServer) -> str:
    return "url" if server.url else "command"
