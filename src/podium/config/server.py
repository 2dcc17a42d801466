"""What settings files may start: MCP servers, and coding agents as engines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, structs

from ..errors import Mistake

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Launch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A program to start."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}


class McpServer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A server of tools: a program to start, or an address to call.

    `env` and `headers` are as written, with `${NAME}` in them; `filled` has the values, and is made
    when the server starts and never stored.
    """

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}
    source: Literal["user", "repo"] = "user"

    def filled(self, environ: Mapping[str, str]) -> McpServer:
        """The server with the values of the variables that it names. Raises Mistake where one is not set."""
        env, headers = (
            {name: _filled(f"{key}.{name}", text, environ) for name, text in texts.items()}
            for key, texts in (("env", self.env), ("headers", self.headers))
        )
        return structs.replace(self, env=env, headers=headers)


def _filled(key: str, text: str, environ: Mapping[str, str]) -> str:
    missing = [name for name in VARIABLE.findall(text) if name not in environ]
    if missing:
        raise Mistake(f"{key} of an MCP server needs the variable {missing[0]}, which is not set; set it and try again")
    return VARIABLE.sub(lambda match: environ[match[1]], text)
