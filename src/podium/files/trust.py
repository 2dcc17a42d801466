"""Record which proposals from repositories and which definitions of MCP tools the user trusts.

The first definition of a tool is trusted without asking the user. The record is a small file in Podium's home folder.
The file is read for each query, so an answer given in another terminal takes effect at once. Writing replaces the file
atomically.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, structs

from ..system.file_lock import hold_file_lock
from ..system.whole_file import replace_file
from ..values.errors import Mistake

FILE = "trust.json"
LOCK = ".trust.lock"

Kind = Literal["server", "settings", "tool"]


class TrustRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The hash of trusted content, and the content itself if later changes to it should be shown."""

    digest: str
    content: str = ""


class _TrustFile(Struct, frozen=True, kw_only=True):
    version: Literal[1] = 1
    trusted: dict[Kind, dict[str, TrustRecord]] = {}
    changed: dict[str, TrustRecord] = {}
    """The current definitions of tools that differ from the trusted ones, keyed by name."""


class Trust:
    """Reads and writes the file that records what the user trusts."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def home(self) -> Path:
        """The home folder that contains the file."""
        return self._path.parent

    @classmethod
    def load(cls, home: Path) -> Trust:
        """Load the user's trust records from this home folder. Raise Mistake if the file cannot be read."""
        trust = cls(home / FILE)
        trust._read_file()
        return trust

    def find_record(self, kind: Kind, name: str) -> TrustRecord | None:
        """Return the trust record for this name, or None if nothing is trusted under it."""
        return self._read_file().trusted.get(kind, {}).get(name)

    def is_trusted(self, kind: Kind, name: str, digest: str) -> bool:
        """Return whether exactly this content is trusted under this name."""
        known = self.find_record(kind, name)
        return known is not None and known.digest == digest

    def trust(self, kind: Kind, name: str, digest: str, *, content: str = "") -> None:
        """Trust this content under this name, replacing any content that was trusted under it before."""
        self.trust_all(kind, {name: TrustRecord(digest=digest, content=content)})

    def trust_all(self, kind: Kind, given: Mapping[str, TrustRecord]) -> None:
        """Trust the content of several records. `given` maps the name of each record to the record."""
        with self._hold_file_lock():
            records = self._read_file()
            trusted = {**records.trusted, kind: {**records.trusted.get(kind, {}), **given}}
            changed = _without_names(records.changed, given if kind == "tool" else ())
            self._write_file(_TrustFile(trusted=trusted, changed=changed))

    def revoke(self, kind: Kind, name: str) -> bool:
        """Revoke the trust recorded under this name. Return False if no trust was recorded."""
        with self._hold_file_lock():
            records = self._read_file()
            if name not in records.trusted.get(kind, {}):
                return False
            trusted = {**records.trusted, kind: _without_names(records.trusted[kind], (name,))}
            self._write_file(structs.replace(records, trusted=trusted))
        return True

    def list_changed_tools(self) -> Mapping[str, TrustRecord]:
        """Return the latest definitions of tools that differ from the trusted ones, keyed by name."""
        return self._read_file().changed

    def record_seen_tools(self, *, changed: Mapping[str, TrustRecord], unchanged: Collection[str]) -> None:
        """Record the definitions of changed tools for later review, and remove those of unchanged tools."""
        if _update_changed(self._read_file(), changed, unchanged) is None:
            return
        with self._hold_file_lock():
            if (records := _update_changed(self._read_file(), changed, unchanged)) is not None:
                self._write_file(records)

    def _read_file(self) -> _TrustFile:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_TrustFile)
        except FileNotFoundError:
            return _TrustFile()
        except (msgspec.MsgspecError, OSError) as error:
            raise Mistake(
                f"{self._path} cannot be read ({error}), so nothing is trusted; delete or rename it to start over"
            ) from error

    def _write_file(self, records: _TrustFile) -> None:
        replace_file(self._path, msgspec.json.format(msgspec.json.encode(records, order="sorted"), indent=1))

    def _hold_file_lock(self) -> AbstractContextManager[None]:
        return hold_file_lock(self._path.with_name(LOCK), protects=self._path)


def _update_changed(
    records: _TrustFile, changed: Mapping[str, TrustRecord], unchanged: Collection[str]
) -> _TrustFile | None:
    """Return the records with these tools updated, or None if nothing changes."""
    now = {**_without_names(records.changed, unchanged), **changed}
    return None if now == records.changed else structs.replace(records, changed=now)


def _without_names(records: Mapping[str, TrustRecord], names: Collection[str]) -> dict[str, TrustRecord]:
    return {name: one for name, one in records.items() if name not in names}
