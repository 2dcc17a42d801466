"""The same heap for all that are compared.

An event loop reads into a new block of 256 kB each time. glibc asks the system for every such block, and gives
it back, until one as large was freed that had not shrunk; from then on it keeps them. Some programs happen to
free one early and some never do, and those pay for three system calls a read that nobody meant to measure.
"""

from __future__ import annotations

LARGER_THAN_A_READ = 2**20


def warm_up_heap() -> None:
    """Free a large block, so that the C library keeps those of reads from here on."""
    bytearray(LARGER_THAN_A_READ)
