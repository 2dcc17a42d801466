"""Define a worker's task: where the worker works, which commit it starts from, and which workers must succeed first."""

from msgspec import Struct

from .repository_origin import RepositoryOrigin

DEFAULT_WORKER_AGENT = "worker"
"""The default agent for workers."""


class WorkerTask(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The data that a worker process needs besides its request.

    `root` is the repository, and `path` is the worker's checkout of it, on `branch`. A worker without a branch has
    no checkout and works in `root`: it is read-only and can have a `name` or, with `is_here`, it changes the
    repository itself. `base` is the commit that the branch starts at. `after` lists the runs of workers that must
    succeed first; their merged result is then the base. `parent` is the run that started the worker, and
    `operation` is the operation in that run. With `is_shared`, other members of its team work in the same checkout.
    With `is_unattended`, nobody is asked: actions that need permission are denied. A task whose `origin` has a remote
    can move to another machine; `root` and `path` are then the paths on the machine on which it was delegated.
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
    origin: RepositoryOrigin | None = None
    trace_parent: str = ""
    """The position in the trace of the run that started the worker, if it is recorded."""

    @property
    def worker_name(self) -> str:
        """The worker's display name: its branch, or the name of a read-only worker; empty if it has neither."""
        return self.branch or self.name

    @property
    def has_checkout(self) -> bool:
        return bool(self.branch)

    @property
    def is_reader(self) -> bool:
        return not self.has_checkout and not self.is_here
