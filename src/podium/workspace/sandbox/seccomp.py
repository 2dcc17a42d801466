"""Define and compile the filter that denies certain system calls to commands in the sandbox.

All other calls are allowed, because namespaces and missing capabilities limit their effects. The denied calls bypass
those limits, or belong to parts of the kernel with many vulnerabilities. Most denied calls fail with EPERM,
so programs that do not depend on them continue.

If the kernel reads only the lower half of an argument, only that half is compared. If both halves were compared,
a call with garbage in the upper half would pass the filter.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from ...values.errors import Mistake

if TYPE_CHECKING:
    from pyseccomp import Arg, SyscallFilter  # type: ignore[import-untyped]  # it has no type hints

DENIED = (
    # access to other processes
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "process_madvise"),
    # io_uring: the filter does not apply to operations that are submitted through it
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
    # keyrings, which no namespace isolates
    *("keyctl", "add_key", "request_key"),
    # mounts and namespaces
    *("mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "fsopen", "fsconfig", "fsmount", "fspick"),
    *("mount_setattr", "open_tree_attr", "setns", "open_by_handle_at", "name_to_handle_at"),
    # the kernel itself
    *("bpf", "perf_event_open", "userfaultfd", "kexec_load", "kexec_file_load"),
    *("init_module", "finit_module", "delete_module", "reboot", "swapon", "swapoff", "acct", "quotactl", "syslog"),
    *("iopl", "ioperm", "lookup_dcookie", "nfsservctl", "vhangup"),
)
ABSENT = ("clone3", "openat2")
"""System calls whose arguments a filter cannot read. They fail with ENOSYS, so that programs fall back to older system
calls."""

NAMESPACES = (0x00000080, 0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
"""CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""
NEWTIME = NAMESPACES[0]
TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX, which inject input into a terminal."""
FAMILIES = frozenset((0, 2, 10, 16))
"""Allowed socket families: unspecified, IPv4, IPv6 and netlink, which can access only the sandbox's own network.

AF_UNIX can connect to sockets in the file system, and AF_VSOCK to the host of a virtual machine. The sockets of an
AF_UNIX pair (`socketpair`), which event loops need, can send only to each other unless they are datagram sockets.
"""
HIGHEST_FAMILY = 63
NEWER = {"process_madvise": 440, "mount_setattr": 442, "fchmodat2": 452, "open_tree_attr": 467}
"""System calls that an older libseccomp may not know, and their numbers, which are the same on every architecture."""
UNKNOWN = -1
LOWER_HALF = 0xFFFFFFFF
CREATING = (os.O_CREAT, os.O_TMPFILE & ~os.O_DIRECTORY)
"""The open flags that make the kernel use the mode argument."""
ADDRESSABLE_PAIRS = (socket.SOCK_DGRAM, socket.SOCK_RAW)
"""Types of AF_UNIX socket pairs whose sockets can send to other sockets. For AF_UNIX, raw sockets are datagram
sockets."""
SOCKET_KIND = 0xF
BORROWED_IDENTITY = (stat.S_ISUID, stat.S_ISGID)


@cache
def compile_filter() -> int:
    """Return a file descriptor for the compiled filter. Raise Mistake if libseccomp is not available."""
    try:
        # Imported here for start-up time: it loads a system library that only commands need.
        import pyseccomp
    except (ImportError, RuntimeError, OSError) as error:
        raise Mistake(
            f"commands need a sandbox, and libseccomp is not available ({error}); "
            "install libseccomp2 (Debian, Ubuntu) or libseccomp with your system's package manager"
        ) from error
    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    for name in DENIED:
        _add_rule(rules, errno.EPERM, name)
    for name in ABSENT:
        _add_rule(rules, errno.ENOSYS, name)
    for name, arguments in _iter_argument_rules():
        _add_rule(rules, errno.EPERM, name, *arguments)
    descriptor = os.memfd_create("seccomp", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        rules.export_bpf(file)
    return descriptor


def _add_rule(rules: SyscallFilter, number: int, name: str, *arguments: Arg) -> None:
    import pyseccomp

    if pyseccomp.resolve_syscall(pyseccomp.system_arch(), name) != UNKNOWN:
        rules.add_rule(pyseccomp.ERRNO(number), name, *arguments)
    elif name in NEWER:
        rules.add_rule(pyseccomp.ERRNO(number), NEWER[name], *arguments)


def _iter_argument_rules() -> Iterator[tuple[str, tuple[Arg, ...]]]:
    """Yield rules that deny a system call only with certain arguments. A rule is the call's name and the arguments."""
    from pyseccomp import MASKED_EQ, Arg

    for flag in NAMESPACES:
        yield "unshare", (Arg(0, MASKED_EQ, flag, flag),)
        # In clone, the lowest byte is a signal; clone cannot create time namespaces.
        if flag != NEWTIME:
            yield "clone", (Arg(0, MASKED_EQ, flag, flag),)
    for request in TERMINAL_INPUT:
        yield "ioctl", (Arg(1, MASKED_EQ, LOWER_HALF, request),)
    for family in range(HIGHEST_FAMILY + 1):
        if family not in FAMILIES:
            yield "socket", (Arg(0, MASKED_EQ, LOWER_HALF, family),)
    for kind in ADDRESSABLE_PAIRS:
        yield "socketpair", (Arg(1, MASKED_EQ, SOCKET_KIND, kind),)
    for bit in BORROWED_IDENTITY:
        has_bit = (MASKED_EQ, bit, bit)
        yield "chmod", (Arg(1, *has_bit),)
        yield "fchmod", (Arg(1, *has_bit),)
        yield "fchmodat", (Arg(2, *has_bit),)
        yield "fchmodat2", (Arg(2, *has_bit),)
        yield "mknod", (Arg(1, *has_bit),)
        yield "mknodat", (Arg(2, *has_bit),)
        yield "creat", (Arg(1, *has_bit),)
        for flag in CREATING:
            yield "open", (Arg(1, MASKED_EQ, flag, flag), Arg(2, *has_bit))
            yield "openat", (Arg(2, MASKED_EQ, flag, flag), Arg(3, *has_bit))
