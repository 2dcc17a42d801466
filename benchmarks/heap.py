"""The same heap behaviour for all programs that are compared.

An event loop reads into a new block of 256 kB each time. glibc requests every such block from the system, and
returns it, until a block of that size that had not shrunk has been freed; from then on it keeps them. Some programs
happen to free one early and others never do, which costs them three system calls per read that are not the subject.
"""

from __future__ import annotations

LARGER_THAN_A_READ = 2**20


def warm_up_heap() -> None:
    """Free a large block, so that the C library keeps blocks for reads from now on."""
    bytearray(LARGER_THAN_A_READ)
