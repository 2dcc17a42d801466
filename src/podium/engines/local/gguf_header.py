"""Read the header of a GGUF file: the name and architecture of the model, the size of its context, and its tensors.

The file may be damaged or hostile, so every length in the header is checked before it is used. The weights are not
read.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ...values.errors import Mistake

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


def read_gguf_header(path: Path) -> GgufHeader:
    """Return the header of a model file. Raise Mistake if the file is not a complete, supported GGUF file."""
    try:
        with path.open("rb") as file:
            return _Reader(file, path.stat().st_size).read_header()
    except (struct.error, ValueError, OverflowError, UnicodeDecodeError) as error:
        raise Mistake(f"{path.name} is not a valid or supported GGUF file: {error}") from None
    except OSError as error:
        raise Mistake(f"{path} cannot be read: {error.strerror or error}") from error


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
