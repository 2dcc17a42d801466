"""An MCP server as it is written down: a program to start, or an address to call.

What it names as `${NAME}` stays a name until the server starts; the values are neither stored nor
shown. How such a server is read belongs to the settings, and speaking to one to the MCP client.
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

from .errors import Mistake
from .plain_text import escape_unprintable, truncate_text

Source = Literal["user", "repo"]

LONGEST_NAME = 40
NAME_RULE = f"letters, digits, hyphens and single underscores between them would be right, at most {LONGEST_NAME}"
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|AUTH|CREDENTIAL|PRIVATE", re.IGNORECASE)
SHORTEST_SECRET = 6

_NAME = re.compile(r"[A-Za-z0-9]+(?:(?:_|-+)[A-Za-z0-9]+)*")


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
    def launch_summary(self) -> str:
        """What starting it means, in one line and as it is written."""
        if self.url:
            names = f" with the headers {', '.join(self.headers)}" if self.headers else ""
            return escape_unprintable(f"call {self.url}{names}")
        env = "".join(f"{name}={shlex.quote(truncate_text(value, 60))} " for name, value in self.env.items())
        return escape_unprintable(f"start {env}{shlex.join([self.command, *self.args])}")

    def resolve_variables(self, environ: Mapping[str, str]) -> ResolvedServer:
        """The server with the values of the variables that it names. Raises Mistake where one is not set."""
        secrets: dict[str, str] = {}

        def resolve_variable(match: re.Match[str]) -> str:
            name, default = match.groups()
            found = environ.get(name) or default
            if found is None:
                raise Mistake(f"the MCP server {self.name!r} needs the variable {name}, which is not set; set it")
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
    """A server with values in place of names, for the time that it runs; `secrets` are those to hide, by value."""

    server: McpServer
    secrets: Mapping[str, str]

    def redact_secrets(self, text: str) -> str:
        """`text` with names in place of the secrets that the server was given."""
        for value, name in self.secrets.items():
            text = text.replace(value, f"${{{name}}}")
        return text


def build_trust_name(server: McpServer, directory: Path | None) -> str:
    """The name that trust in a server goes by. What came with a repository is trusted in that repository only."""
    return server.name if server.source == "user" else qualify_with_directory(server.name, directory)


def build_tool_trust_name(server: McpServer, directory: Path | None, tool: str) -> str:
    """The name that trust in a server's tool goes by; another launch definition means another server."""
    return f"{build_trust_name(server, directory)} [{server.digest[:16]}] {tool}"


def qualify_with_directory(name: str, directory: Path | None) -> str:
    """A name that holds in one folder only, by whatever links that is reached."""
    return f"{name} in {directory and directory.resolve()}"


def is_server_name(name: str) -> bool:
    """Whether tools of a server can be called by this name."""
    return len(name) <= LONGEST_NAME and _NAME.fullmatch(name) is not None
