"""An errand: what a worker is sent to do besides its request: where, from what, and after whom."""

from __future__ import annotations

from msgspec import Struct


class WorkerTask(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Work for a process of its own.

    `root` is the repository, `path` the worker's checkout of it on `branch`. Without a branch of its own it has no
    checkout and works in `root`: it is a reader, which may have a `name`, or `is_here` to change the repository itself.
    `base` is what the branch begins at. `after` are the runs of workers that have to succeed first, whose merged
    result is then the base. `parent` is the run that sent it, and `operation` the place there. With `is_shared`
    others of its team work in the same checkout. Where it is unattended nobody is asked: what needs leave is denied.
    """

    root: str
    path: str
    branch: str = ""
    name: str = ""
    base: str = ""
    after: tuple[str, ...] = ()
    role: str = ""
    parent: str = ""
    operation: str = ""
    is_here: bool = False
    is_shared: bool = False
    is_unattended: bool = False
    max_restarts: int = 1

    @property
    def worker_name(self) -> str:
        """What people call its worker by: its branch, or a reader's name; nothing, where it was given none."""
        return self.branch or self.name

    @property
    def has_checkout(self) -> bool:
        return bool(self.branch)

    @property
    def is_reader(self) -> bool:
        return not self.has_checkout and not self.is_here
