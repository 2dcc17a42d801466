"""Call `openat2`, which Python does not provide. This system call opens a path that must stay inside a directory."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from functools import cache
from pathlib import Path

SYSCALL_NUMBER = 437
"""The number of the system call `openat2`, which is the same on every supported processor architecture."""
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_BENEATH = 0x08
ATTEMPTS = 100
"""The maximum number of attempts.

The system call is repeated if it fails with EAGAIN, which means that a directory was moved while `..` was being
resolved."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(directory: int, path: str, flags: int) -> int:
    """Open a path below a directory and return the descriptor. If the path leads outside, raise OSError with EXDEV."""
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
    """Return whether openat2 works and /proc is mounted. /proc is needed to find the path of a descriptor."""
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
