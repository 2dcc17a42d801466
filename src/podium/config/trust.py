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


class Trusted(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The hash of what is trusted under a name, and where a later change shall be shown, the thing itself."""

    digest: str
    content: str = ""


class _Records(Struct, frozen=True, kw_only=True):
    version: Literal[1] = 1
    trusted: dict[Kind, dict[str, Trusted]] = {}
    changed: dict[str, Trusted] = {}
    """Tools as their servers describe them now, where that is not what is trusted."""


class Trust:
    """The person's trust, as it stands in the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def load(cls, home: Path) -> Trust:
        """The trust that is kept in this home. Raises Mistake where the file cannot be read."""
        trust = cls(home / FILE)
        trust._read()
        return trust

    def known(self, kind: Kind, name: str) -> Trusted | None:
        """What is trusted under this name."""
        return self._read().trusted.get(kind, {}).get(name)

    def is_trusted(self, kind: Kind, name: str, digest: str) -> bool:
        """Whether exactly this is trusted under this name."""
        known = self.known(kind, name)
        return known is not None and known.digest == digest

    def trust(self, kind: Kind, name: str, digest: str, *, content: str = "") -> None:
        """Trust this from now on; what was trusted under the name before is not any more."""
        self.trust_all(kind, {name: Trusted(digest=digest, content=content)})

    def trust_all(self, kind: Kind, given: Mapping[str, Trusted]) -> None:
        """Trust several things at once."""
        with self._locked():
            records = self._read()
            trusted = {**records.trusted, kind: {**records.trusted.get(kind, {}), **given}}
            changed = _without(records.changed, given if kind == "tool" else ())
            self._write(_Records(trusted=trusted, changed=changed))

    def revoke(self, kind: Kind, name: str) -> bool:
        """Trust nothing under this name any more; whether something was."""
        with self._locked():
            records = self._read()
            if name not in records.trusted.get(kind, {}):
                return False
            trusted = {**records.trusted, kind: _without(records.trusted[kind], (name,))}
            self._write(structs.replace(records, trusted=trusted))
        return True

    def changed(self) -> Mapping[str, Trusted]:
        """The tools that are not what is trusted any more, as they were described last, by name."""
        return self._read().changed

    def saw(self, *, changed: Mapping[str, Trusted], unchanged: Collection[str]) -> None:
        """Keep how tools are described that changed, so that a person can look at it later."""
        if _after(self._read(), changed, unchanged) is None:
            return
        with self._locked():
            if (records := _after(self._read(), changed, unchanged)) is not None:
                self._write(records)

    def _read(self) -> _Records:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Records)
        except FileNotFoundError:
            return _Records()
        except (msgspec.MsgspecError, OSError) as error:
            raise Mistake(
                f"{self._path} cannot be read ({error}), so that nothing is trusted; move it away to begin anew"
            ) from error

    def _write(self, records: _Records) -> None:
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
    def _locked(self) -> Iterator[None]:
        """The only writer among all processes, so that none takes back what another wrote meanwhile."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(self._path.parent / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Mistake(f"{self._path} cannot be written: {error.strerror}; change its permissions") from error
        try:
            _lock(handle)
            yield
        finally:
            os.close(handle)


def _after(records: _Records, changed: Mapping[str, Trusted], unchanged: Collection[str]) -> _Records | None:
    """The records once these tools were seen; None where that changes nothing."""
    now = {**_without(records.changed, unchanged), **changed}
    return None if now == records.changed else structs.replace(records, changed=now)


def _without(records: Mapping[str, Trusted], names: Collection[str]) -> dict[str, Trusted]:
    return {name: one for name, one in records.items() if name not in names}


def _lock(handle: int) -> None:
    try:
        import fcntl
    except ImportError:
        # There are no such locks on Windows: two writers at the same moment may lose one record, which is asked anew.
        return
    fcntl.flock(handle, fcntl.LOCK_EX)
