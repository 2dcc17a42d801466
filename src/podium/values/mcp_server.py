"""Define MCP servers: programs to start, or URLs to call.

Variables such as `${NAME}` are resolved only when the server starts; their values are neither stored nor shown. The
definitions are read from the settings, and the MCP client connects to the servers.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Struct, structs

from .errors import Mistake
from .key import Key
from .plain_text import escape_unprintable, truncate_text

Source = Literal["user", "repo"]

LONGEST_NAME = 40
NAME_RULE = (
    f"use at most {LONGEST_NAME} characters: letters and digits, with hyphens or single underscores between them"
)
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|AUTH|CREDENTIAL|PRIVATE", re.IGNORECASE)
SHORTEST_SECRET = 6

_NAME = re.compile(r"[A-Za-z0-9]+(?:(?:_|-+)[A-Za-z0-9]+)*")


class McpServer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The definition of an MCP server. `source` says whose file contains it: the user's or the repository's.

    `cwd` is the folder that its program starts in, relative to the repository; empty means an empty folder.
    """

    name: str
    command: Annotated[str, Key()] = ""
    args: Annotated[tuple[str, ...], Key()] = ()
    env: Annotated[dict[str, str], Key(kind="secrets")] = {}
    cwd: Annotated[str, Key()] = ""
    url: Annotated[str, Key(kind="url")] = ""
    headers: Annotated[dict[str, str], Key(kind="secrets")] = {}
    source: Source = "user"

    @property
    def digest(self) -> str:
        """The hash that is stored when the user trusts the server.

        The hash covers everything that determines what is started or called.
        """
        told = (self.command, self.args, self.env, self.url, self.headers, *((self.cwd,) if self.cwd else ()))
        return sha256(msgspec.json.encode(told, order="sorted")).hexdigest()

    @property
    def launch_summary(self) -> str:
        """A one-line description of what is started or called, with variables unresolved."""
        if self.url:
            names = f" with the headers {', '.join(self.headers)}" if self.headers else ""
            return escape_unprintable(f"call {self.url}{names}")
        env = "".join(f"{name}={shlex.quote(truncate_text(value, 60))} " for name, value in self.env.items())
        there = f" in the folder {truncate_text(self.cwd, 200)}" if self.cwd else ""
        return escape_unprintable(f"start {env}{shlex.join([self.command, *self.args])}{there}")

    def fill_in_known_variables(self, environ: Mapping[str, str]) -> "McpServer":
        """Return the server with the variables in `args` and `env` replaced, except those that are not set."""

        def find_value(match: re.Match[str]) -> str:
            return environ.get(match[1]) or match[2] or match[0]

        return structs.replace(
            self,
            args=tuple(VARIABLE.sub(find_value, text) for text in self.args),
            env={name: VARIABLE.sub(find_value, text) for name, text in self.env.items()},
        )

    def resolve_variables(self, environ: Mapping[str, str]) -> "ResolvedServer":
        """Return the server with its variables replaced by their values. Raise Mistake if a variable is not set."""
        secrets: dict[str, str] = {}

        def resolve_variable(match: re.Match[str]) -> str:
            name, default = match.groups()
            found = environ.get(name) or default
            if found is None:
                raise Mistake(f"the MCP server {self.name!r} needs the environment variable {name}, which is not set")
            if SECRET.search(name) and len(found) >= SHORTEST_SECRET:
                secrets[found] = name
            return found

        def resolve_table(table: Mapping[str, str]) -> dict[str, str]:
            return {name: VARIABLE.sub(resolve_variable, text) for name, text in table.items()}

        server = structs.replace(
            self,
            args=tuple(VARIABLE.sub(resolve_variable, text) for text in self.args),
            env=resolve_table(self.env),
            url=VARIABLE.sub(resolve_variable, self.url),
            headers=resolve_table(self.headers),
        )
        return ResolvedServer(server=server, secrets=secrets)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedServer:
    """A server with its variables resolved, ready to start; `secrets` maps secret values to their names."""

    server: McpServer
    secrets: Mapping[str, str]

    def redact_secrets(self, text: str) -> str:
        """Return `text` with the server's secrets replaced by their names."""
        for value, name in self.secrets.items():
            text = text.replace(value, f"${{{name}}}")
        return text


def build_trust_name(server: McpServer, directory: Path | None) -> str:
    """Return the name under which the user's trust in a server is stored.

    Trust in a repository's server applies only to that repository.
    """
    return server.name if server.source == "user" else qualify_with_directory(server.name, directory)


def build_tool_trust_name(server: McpServer, directory: Path | None, tool: str) -> str:
    """Return the name under which trust in a server's tool is stored. It changes with the server's definition."""
    return f"{build_trust_name(server, directory)} [{server.digest[:16]}] {tool}"


def qualify_with_directory(name: str, directory: Path | None) -> str:
    """Append a folder's path to a name, so that the result differs between folders. Symbolic links are resolved."""
    return f"{name} in {directory and directory.resolve()}"


def is_server_name(name: str) -> bool:
    """Return whether this is a valid server name, which can be part of a tool name."""
    return len(name) <= LONGEST_NAME and _NAME.fullmatch(name) is not None
