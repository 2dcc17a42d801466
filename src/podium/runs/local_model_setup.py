"""Add local models by name, URL or file, remove them, and describe what can be added."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..engines.local.engine_process import LocalEngine, check_library
from ..engines.local.model_folder import ModelFolder, estimate_memory, load_catalogue
from ..engines.local.model_installation import Installation, ModelInstaller, remove_model
from ..values.column import Document, DocumentPart
from ..values.errors import Mistake


async def add_local_model(installer: ModelInstaller, source: str, *, name: str = "", sha256: str = "") -> Installation:
    """Add a model from the catalogue, a URL or a file. Raise Mistake if `source` is none of these.

    Nothing is fetched unless this machine can run models. `name` and `sha256` are only for URLs and files; raise
    Mistake if they are given with a model from the catalogue.
    """
    known = next((model for model in installer.catalogue if model.name == source), None)
    path = _find_file(source)
    if known is not None and (name or sha256):
        raise Mistake(f"{source} already has a name and a SHA-256; use --name and --sha256 only with a URL or a file")
    if known is None and "://" not in source and path is None:
        there = ", ".join(model.name for model in installer.catalogue)
        raise Mistake(f"{source!r} is neither a known model nor a file or URL; known: {there}")
    await check_library(installer.environ, installer.folder)
    if known is not None:
        return await installer.add_catalogue_model(known)
    if path is None:
        return await installer.add_url(source, name=name, sha256=sha256)
    return installer.add_file(path, name=name, sha256=sha256)


def _find_file(source: str) -> Path | None:
    """Return the file with this path, or None if there is none."""
    path = Path(source).expanduser()
    return path if path.is_file() else None


def remove_local_model(folder: ModelFolder, name: str, environ: Mapping[str, str]) -> int:
    """Remove a model and end its engine. Return the number of bytes freed."""
    freed = remove_model(folder, name)
    LocalEngine(folder=folder, name=name, environ=environ).ask_to_end()
    return freed


class ListedModel(DocumentPart, frozen=True, kw_only=True):
    """A model that can be fetched by name."""

    name: str
    title: str
    licence: str
    size: int
    memory: int
    sha256: str
    packages: list[str]
    note: str
    is_installed: bool


class CatalogueList(Document, frozen=True, kw_only=True):
    """The models that can be fetched by name."""

    models: list[ListedModel]


def list_catalogue(folder: ModelFolder) -> CatalogueList:
    """Return the models that can be fetched by name."""
    models = [
        ListedModel.of(
            one,
            memory=estimate_memory(one.size, one.window, one.cache_bytes_per_token),
            packages=[part.requirement for part in one.parts],
            is_installed=folder.find_model(one.name) is not None,
        )
        for one in load_catalogue()
    ]
    return CatalogueList(models=models)
