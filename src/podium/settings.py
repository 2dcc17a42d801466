"""Settings: what the person configured, from the environment or given in code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from .engines.model.providers import base_url, configured, parse_model
from .engines.names import REHEARSAL
from .errors import Mistake
from .patience import PATIENCE, Patience


class Settings(Struct, frozen=True, kw_only=True):
    """How Podium works here.

    `model` is what agents think with that name nothing themselves, as `provider:model`; empty where
    nothing is configured, and `rehearsal` where nothing shall be asked. `base_url` is where its
    provider is. Keys are not settings: they stay in the environment and are never stored.
    """

    home: Path
    store: Path
    model: str = ""
    base_url: str = ""
    patience: Patience = PATIENCE

    @classmethod
    def load(cls, environ: Mapping[str, str] = os.environ, **given: Any) -> Settings:
        """The settings of this environment; what is given wins."""
        home = Path(given.get("home") or environ.get("PODIUM_HOME") or _own_folder()).absolute()
        model = given.get("model") or environ.get("PODIUM_MODEL") or _configured(environ)
        found: dict[str, Any] = {
            "home": home,
            "store": Path(environ.get("PODIUM_STORE") or home / "podium.db").absolute(),
            "model": model,
            "base_url": "" if model in ("", REHEARSAL) else base_url(parse_model(model)[0], environ),
        }
        return cls(**(found | {key: value for key, value in given.items() if value is not None}))

    def recorded(self) -> dict[str, Any]:
        """What a run remembers of them, so that resuming it thinks with the same."""
        return {
            "model": self.model,
            "base_url": without_credentials(self.base_url),
            "patience": msgspec.to_builtins(self.patience),
        }

    def as_recorded(self, recorded: Mapping[str, Any]) -> Settings:
        """These settings with what a run remembers."""
        known = self.recorded()
        other = {key: recorded[key] for key in known if recorded.get(key, known[key]) != known[key]}
        if "patience" in other:
            other["patience"] = msgspec.convert(other["patience"], Patience)
        return structs.replace(self, **other) if other else self


def _own_folder() -> Path:
    try:
        return Path.home() / ".podium"
    except RuntimeError as error:
        raise Mistake("there is no home folder to keep runs in; set PODIUM_HOME to a folder of your own") from error


def without_credentials(url: str) -> str:
    """An address without the name and password that it may carry."""
    scheme, mark, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}"


def _configured(environ: Mapping[str, str]) -> str:
    provider = configured(environ)
    return "" if provider is None else f"{provider.name}:{provider.default_model}"
