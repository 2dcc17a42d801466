"""The system calls that a command in the sandbox cannot make.

All others are allowed: namespaces and missing capabilities bound what they can do. What is denied here
reaches around those bounds, or is a part of the kernel where most of its holes have been. A denied call
fails with EPERM, so that programs which only try it go on.

Arguments are compared by their lower half where the kernel reads no more of them: with rubbish in the
upper half, a plain comparison would let them pass.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from ...values.errors import Mistake

if TYPE_CHECKING:
    from pyseccomp import Arg, SyscallFilter  # type: ignore[import-untyped]  # it comes without types

DENIED = (
    # into other processes
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "process_madvise"),
    # rings of requests that no filter sees
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
    # keys, which no namespace separates
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
"""Calls whose arguments no filter can read. They seem not to exist, and programs use the older ones."""

NAMESPACES = (0x00000080, 0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
"""CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""
NEWTIME = NAMESPACES[0]
TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX, which type on somebody's terminal."""
FAMILIES = frozenset((0, 2, 10, 16))
"""Kinds of sockets that may be made: IPv4, IPv6 and netlink, all of which have the sandbox's own network only.

AF_UNIX reaches sockets of the file system, AF_VSOCK the machine's host. A pair of connected AF_UNIX
sockets (`socketpair`) leads nowhere but to its maker, and event loops are made of it.
"""
HIGHEST_FAMILY = 63
NEWER = {"process_madvise": 440, "mount_setattr": 442, "fchmodat2": 452, "open_tree_attr": 467}
"""Calls that the kernel may know and an older library not, by the number that they have everywhere."""
UNKNOWN = -1
LOWER_HALF = 0xFFFFFFFF
BORROWED_IDENTITY = (stat.S_ISUID, stat.S_ISGID)


@cache
def compile_filter() -> int:
    """A descriptor of this process that holds the compiled filter. A mistake where there is no seccomp."""
    try:
        # Here, because it looks for a library of the system, which only those who run commands need.
        import pyseccomp
    except (ImportError, RuntimeError, OSError) as error:
        raise Mistake(
            f"commands need a sandbox, and libseccomp is not there ({error}); "
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
    """Calls that are denied with some arguments."""
    from pyseccomp import MASKED_EQ, Arg

    for flag in NAMESPACES:
        yield "unshare", (Arg(0, MASKED_EQ, flag, flag),)
        # For clone, the lowest byte is a signal; it makes no namespace of time.
        if flag != NEWTIME:
            yield "clone", (Arg(0, MASKED_EQ, flag, flag),)
    for request in TERMINAL_INPUT:
        yield "ioctl", (Arg(1, MASKED_EQ, LOWER_HALF, request),)
    for family in range(HIGHEST_FAMILY + 1):
        if family not in FAMILIES:
            yield "socket", (Arg(0, MASKED_EQ, LOWER_HALF, family),)
    for bit in BORROWED_IDENTITY:
        has_bit = (MASKED_EQ, bit, bit)
        yield "chmod", (Arg(1, *has_bit),)
        yield "fchmod", (Arg(1, *has_bit),)
        yield "fchmodat", (Arg(2, *has_bit),)
        yield "fchmodat2", (Arg(2, *has_bit),)
        yield "mknod", (Arg(1, *has_bit),)
        yield "mknodat", (Arg(2, *has_bit),)
        yield "creat", (Arg(1, *has_bit),)
        yield "open", (Arg(1, MASKED_EQ, os.O_CREAT, os.O_CREAT), Arg(2, *has_bit))
        yield "openat", (Arg(2, MASKED_EQ, os.O_CREAT, os.O_CREAT), Arg(3, *has_bit))
