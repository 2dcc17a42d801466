"""The system call `openat2`, for which Python has no name: opening a path that cannot lead out of a directory."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from functools import cache
from pathlib import Path

SYSCALL_NUMBER = 437
"""Its number, on every processor that we run on."""
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_BENEATH = 0x08
ATTEMPTS = 100
"""The kernel gives up where a directory is moved while it climbs through `..`; it is asked again so often."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(directory: int, path: str, flags: int) -> int:
    """A descriptor of what the path leads to; EXDEV where that is not beneath the directory."""
    how = _OpenHow(flags | os.O_CLOEXEC, 0, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)
    for _ in range(ATTEMPTS):
        fd: int = _load_libc().syscall(
            SYSCALL_NUMBER, directory, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how)
        )
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(code, os.strerror(code), path)


@cache
def is_available() -> bool:
    """Whether the kernel has it and lets us use it, and says by which name a descriptor was reached."""
    if sys.platform != "linux" or not Path("/proc/self/fd").is_dir():
        return False
    top = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(open_beneath(top, ".", os.O_PATH))
    except OSError:
        return False
    finally:
        os.close(top)
    return True


@cache
def _load_libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
