"""A disk whose writes and flushes are recorded, and its images after a power failure at any moment.

An image has every write before the last flush, and any of the writes after it.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

SIZE = 64 << 20
FLUSH = (1 << 64) - 1
SOURCE = Path(__file__).with_name("recording_disk.c")
PROGRAMS = ("gcc", "mkfs.ext4", "mount", "umount")


@dataclass(frozen=True, slots=True)
class Write:
    """A write to the disk, or a flush if `data` is None."""

    offset: int
    data: bytes | None


class RecordedDisk:
    """An ext4 file system on a disk whose writes are recorded. It is mounted at `path`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "mounted"
        self.path.mkdir()
        self._image, self._log = folder / "image", folder / "log"
        self._program = _build_program(folder)
        self._numbers = count(1)

    @contextmanager
    def record(self) -> Iterator[None]:
        """Mount an empty file system, and record what is written to its disk until the block ends."""
        with self._image.open("wb") as file:
            file.truncate(SIZE)
        run("mkfs.ext4", "-q", "-F", str(self._image))
        shutil.copyfile(self._image, self.folder / "first")
        self._log.touch()
        served = self.folder / "served"
        served.mkdir()
        with subprocess.Popen([self._program, self._image, self._log, served], stderr=subprocess.PIPE) as serving:
            try:
                _wait_for_file(served / "disk", serving)
                with _mount(served / "disk", self.path):
                    yield
            finally:
                # Lazily, because the system detaches the device some time after its unmounting.
                subprocess.run(["umount", "--lazy", served], capture_output=True)
                serving.terminate()

    @property
    def moment(self) -> int:
        """The number of bytes recorded so far, as the moment that is now."""
        return self._log.stat().st_size

    def cut_power(self, at: Sequence[int], chance: random.Random) -> Iterator[int]:
        """Mount the images after a power failure at each of these moments, in order, while the caller looks at them."""
        disk = bytearray((self.folder / "first").read_bytes())
        unflushed: list[Write] = []
        moments = iter(sorted(at))
        moment = next(moments, None)
        for position, write in _read_log(self._log.read_bytes()):
            while moment is not None and moment <= position:
                kept = [one for one in unflushed if chance.random() < chance.choice((0.0, 0.5, 1.0))]
                yield from self._mount_image(disk, kept, moment)
                moment = next(moments, None)
            if write.data is None:
                _apply(disk, unflushed)
                unflushed.clear()
            else:
                unflushed.append(write)

    def _mount_image(self, disk: bytearray, kept: Sequence[Write], moment: int) -> Iterator[int]:
        image = bytearray(disk)
        _apply(image, kept)
        # Each in its own file, because the system detaches the device of the one before some time after its unmounting.
        file = self.folder / f"after-{moment}-{next(self._numbers)}"
        file.write_bytes(image)
        with _mount(file, self.path):
            yield moment
        file.unlink()


def find_lack() -> str:
    """Return why no disk can be recorded here, or an empty string."""
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        return f"{' and '.join(missing)} not installed"
    if not Path("/usr/include/fuse3/fuse.h").exists():
        return "libfuse3-dev is not installed"
    if os.geteuid() != 0:
        return "only root can mount a disk"
    lacking = [name for name in ("/dev/fuse", "/dev/loop-control") if not Path(name).exists()]
    return f"there is no {' and no '.join(lacking)} here" if lacking else ""


def run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(argv)}: {done.stderr}")


def _build_program(folder: Path) -> Path:
    program = folder / "recording_disk"
    own = ("-D_FILE_OFFSET_BITS=64", "-I/usr/include/fuse3", str(SOURCE), "-o", str(program), "-lfuse3")
    run("gcc", "-O1", "-Wall", *own)
    return program


@contextmanager
def _mount(image: Path, path: Path) -> Iterator[None]:
    done = subprocess.run(["mount", "-o", "loop", image, path], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no power can be cut here: {done.stderr.strip()}")
    try:
        yield
    finally:
        run("umount", str(path))


def _wait_for_file(file: Path, serving: subprocess.Popen[bytes]) -> None:
    while not file.exists():
        if serving.poll() is not None and serving.stderr is not None:
            pytest.skip(f"no power can be cut here: {serving.stderr.read().decode().strip()}")
        time.sleep(0.01)


def _read_log(log: bytes) -> Iterator[tuple[int, Write]]:
    """Yield the recorded writes and flushes, each with the moment before it."""
    at = 0
    while at < len(log):
        offset, size = struct.unpack_from("QQ", log, at)
        yield at, Write(offset, None if offset == FLUSH else log[at + 16 : at + 16 + size])
        at += 16 + size
    yield at, Write(FLUSH, None)


def _apply(disk: bytearray, writes: Sequence[Write]) -> None:
    for write in writes:
        assert write.data is not None
        disk[write.offset : write.offset + len(write.data)] = write.data
