"""What the person trusts: what a repository proposes, and tools of MCP servers as they were first seen.

One small file in the Podium home. It is read anew for each question, so that an answer given in
another terminal holds at once, and replaced as a whole, so that nobody reads half of one.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp
from typing import Literal

import msgspec
from msgspec import Struct, structs

from ..values.errors import Mistake

FILE = "trust.json"
LOCK = ".trust.lock"

Kind = Literal["server", "settings", "tool"]


class TrustRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The hash of what is trusted under a name, and where a later change shall be shown, the thing itself."""

    digest: str
    content: str = ""


class _TrustFile(Struct, frozen=True, kw_only=True):
    version: Literal[1] = 1
    trusted: dict[Kind, dict[str, TrustRecord]] = {}
    changed: dict[str, TrustRecord] = {}
    """Tools as their servers describe them now, where that is not what is trusted."""


class Trust:
    """The person's trust, as it stands in the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def load(cls, home: Path) -> Trust:
        """The trust that is kept in this home. Raises Mistake where the file cannot be read."""
        trust = cls(home / FILE)
        trust._read_file()
        return trust

    def find_record(self, kind: Kind, name: str) -> TrustRecord | None:
        """What is trusted under this name."""
        return self._read_file().trusted.get(kind, {}).get(name)

    def is_trusted(self, kind: Kind, name: str, digest: str) -> bool:
        """Whether exactly this is trusted under this name."""
        known = self.find_record(kind, name)
        return known is not None and known.digest == digest

    def trust(self, kind: Kind, name: str, digest: str, *, content: str = "") -> None:
        """Trust this from now on; what was trusted under the name before is not any more."""
        self.trust_all(kind, {name: TrustRecord(digest=digest, content=content)})

    def trust_all(self, kind: Kind, given: Mapping[str, TrustRecord]) -> None:
        """Trust several things at once."""
        with self._hold_file_lock():
            records = self._read_file()
            trusted = {**records.trusted, kind: {**records.trusted.get(kind, {}), **given}}
            changed = _without_names(records.changed, given if kind == "tool" else ())
            self._write_file(_TrustFile(trusted=trusted, changed=changed))

    def revoke(self, kind: Kind, name: str) -> bool:
        """Trust nothing under this name any more; whether something was."""
        with self._hold_file_lock():
            records = self._read_file()
            if name not in records.trusted.get(kind, {}):
                return False
            trusted = {**records.trusted, kind: _without_names(records.trusted[kind], (name,))}
            self._write_file(structs.replace(records, trusted=trusted))
        return True

    def list_changed_tools(self) -> Mapping[str, TrustRecord]:
        """The tools that are not what is trusted any more, as they were described last, by name."""
        return self._read_file().changed

    def record_seen_tools(self, *, changed: Mapping[str, TrustRecord], unchanged: Collection[str]) -> None:
        """Keep how tools are described that changed, so that a person can look at it later."""
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
                f"{self._path} cannot be read ({error}), so that nothing is trusted; move it away to begin anew"
            ) from error

    def _write_file(self, records: _TrustFile) -> None:
        data = msgspec.json.format(msgspec.json.encode(records, order="sorted"), indent=1)
        handle, name = mkstemp(dir=self._path.parent, prefix=f".{FILE}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(handle)
            Path(name).replace(self._path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    @contextmanager
    def _hold_file_lock(self) -> Iterator[None]:
        """The only writer among all processes, so that none takes back what another wrote meanwhile."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(self._path.parent / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Mistake(f"{self._path} cannot be written: {error.strerror}; change its permissions") from error
        try:
            _lock_exclusively(handle)
            yield
        finally:
            os.close(handle)


def _update_changed(
    records: _TrustFile, changed: Mapping[str, TrustRecord], unchanged: Collection[str]
) -> _TrustFile | None:
    """The records once these tools were seen; None where that changes nothing."""
    now = {**_without_names(records.changed, unchanged), **changed}
    return None if now == records.changed else structs.replace(records, changed=now)


def _without_names(records: Mapping[str, TrustRecord], names: Collection[str]) -> dict[str, TrustRecord]:
    return {name: one for name, one in records.items() if name not in names}


def _lock_exclusively(handle: int) -> None:
    try:
        import fcntl
    except ImportError:
        # There are no such locks on Windows: two writers at the same moment may lose one record, which is asked anew.
        return
    fcntl.flock(handle, fcntl.LOCK_EX)
