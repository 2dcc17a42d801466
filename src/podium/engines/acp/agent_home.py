"""Prepare a separate home folder for a coding agent, and the environment that it runs in.

Some agents remember what a user has allowed and never ask again, and two agents that share a home would mix up their
sessions. So each run has its own homes, with copies of the files that contain the user's login.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from ...system.child_process import build_environment
from ...system.owned_files import make_private_folder, remove_folder
from ...values.errors import OutsideFailed
from .agent_program import AgentProgram

HOMES_FOLDER = "agent-homes"
KEPT_SECONDS = 14 * 24 * 3600.0
"""How long the home folders of a run are kept after their last use."""
NO_KEY = "none"
"""The placeholder that an agent gets instead of a real key. Most agents do not start without a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentModel:
    """A model that a coding agent should use: its name, and the API, address and key of its provider.

    `relayed_url` is the address that an agent in a sandbox uses to call the model. The key is added outside the
    sandbox.
    """

    name: str
    wire: str
    url: str
    key: str = field(repr=False)
    relayed_url: str = ""

    def fill_in(self, template: str) -> str:
        """Return a template with the model's values in place of `$MODEL`, `$URL`, `$HOST`, `$PATH` and `$KEY`."""
        url = self.relayed_url or self.url
        parts = urlsplit(url)
        values = {
            "$MODEL": self.name,
            "$URL": url,
            "$HOST": f"{parts.scheme}://{parts.netloc}",
            "$PATH": parts.path.strip("/"),
            "$KEY": NO_KEY if self.relayed_url else self.key or NO_KEY,
        }
        for name, value in values.items():
            template = template.replace(name, value)
        return template


def prepare_home(program: AgentProgram, folder: Path, run: str, *, user_home: str, model: AgentModel | None) -> Path:
    """Return the home of an agent in a run. A new one gets the configuration for its model, or the user's login files.

    Nothing is written to a home that an agent has already used, because the agent may have placed links in it.
    """
    homes = folder / HOMES_FOLDER
    variant = "" if model is None else f"-{sha256(f'{model.url} {model.name}'.encode()).hexdigest()[:8]}"
    home = homes / run / f"{program.name}{variant}"
    if not home.exists():
        make_private_folder(home)
        for name in program.login_files if user_home and model is None else ():
            with suppress(OSError):  # most users have only some of these files
                _write_private(home / name, (Path(user_home) / name).read_bytes())
        if model is not None:
            for name, template in program.model_files.get(model.wire, {}).items():
                _write_private(home / name, model.fill_in(template).encode())
    os.utime(home.parent)
    _remove_old_homes(homes)
    return home


def build_agent_environment(
    program: AgentProgram, home: Path, environ: Mapping[str, str], model: AgentModel | None
) -> dict[str, str]:
    """Return an agent's environment: a few inherited variables, those that `program` sets, and those for the model.

    If `model` is None, the agent uses its own configured model. Only then does it get the user's keys.
    """
    wanted = program.passed_variables if model is None else ()
    passed = {name: environ[name] for name in wanted if environ.get(name)}
    model_env = {} if model is None else program.model_env.get(model.wire, {})
    named = {} if model is None else {name: model.fill_in(value) for name, value in model_env.items()}
    return build_environment(environ) | {"HOME": str(home)} | passed | dict(program.env) | named


def _remove_old_homes(homes: Path) -> None:
    """Remove the homes of runs that have not been used for a long time."""
    oldest = time.time() - KEPT_SECONDS
    for run in homes.iterdir():
        with suppress(OSError, OutsideFailed):
            if run.stat().st_mtime < oldest:
                remove_folder(run)


def _write_private(path: Path, data: bytes) -> None:
    make_private_folder(path.parent)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
