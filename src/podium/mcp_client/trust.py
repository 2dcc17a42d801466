"""What the person trusts: launch definitions that came with a repository, and tools as they were first seen.

One small file in the Podium home. It is read anew for each question, so that an answer given in
another terminal holds at once, and replaced as a whole, so that nobody reads half of one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp
from typing import Literal

import msgspec
from msgspec import Struct

from ..errors import Mistake

FILE = "trust.json"
LOCK = ".trust.lock"

Kind = Literal["server", "tool"]


class Trusted(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The hash of what is trusted under a name, and where a later change shall be shown, the thing itself."""

    digest: str
    content: str = ""


class _Records(Struct, frozen=True, kw_only=True):
    version: Literal[1] = 1
    trusted: dict[Kind, dict[str, Trusted]] = {}


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
            trusted = self._read().trusted
            records = _Records(trusted={**trusted, kind: {**trusted.get(kind, {}), **given}})
            self._write(msgspec.json.format(msgspec.json.encode(records, order="sorted"), indent=1))

    def _read(self) -> _Records:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Records)
        except FileNotFoundError:
            return _Records()
        except (msgspec.MsgspecError, OSError) as error:
            raise Mistake(
                f"{self._path} cannot be read ({error}), so that nothing is trusted; move it away to begin anew"
            ) from error

    def _write(self, data: bytes) -> None:
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


def _lock(handle: int) -> None:
    try:
        import fcntl
    except ImportError:
        # There are no such locks on Windows: two writers at the same moment may lose one record, which is asked anew.
        return
    fcntl.flock(handle, fcntl.LOCK_EX)
