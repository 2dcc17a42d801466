"""Define a worker's task: where the worker works, which commit it starts from, and which workers must succeed first."""

from pathlib import PurePath

from msgspec import Struct

from .repository_origin import RepositoryOrigin

DEFAULT_WORKER_AGENT = "worker"
"""The default agent for workers."""


class AlsoCheckout(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker's checkout of an additional repository, on a branch with the same name.

    `root` is the repository, `path` is its checkout, and `base` is the commit that the branch starts at. `checks`
    are the repository's checks as they were when the task was delegated.
    """

    root: str
    path: str
    base: str = ""
    checks: dict[str, tuple[str, ...]] = {}

    @property
    def name(self) -> str:
        """The name of the repository's folder, for display."""
        return PurePath(self.root).name


class WorkerTask(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The data that a worker process needs besides its request.

    `root` is the repository, and `path` is the worker's checkout of it, on `branch`. A worker without a branch has
    no checkout and works in `root`. If `is_here` is set, such a worker changes the repository itself; otherwise, it is
    read-only and can have a `name`. `base` is the commit that the branch starts at. `after` lists the runs of workers
    that must succeed first; their merged result is then the base. `parent` and `operation` are the run and the
    operation that started the worker. If `is_shared` is set, other members of the worker's team work in the same
    checkout. If `is_unattended` is set, nobody is asked: actions that need permission are denied. A
    task whose `origin` has a remote can move to another machine; `root` and `path` are then the paths on the machine
    where the task was delegated. `also` lists the worker's checkouts of additional repositories.
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
    """The worker's position in the trace of the run that started it; empty if no trace is recorded."""
    also: tuple[AlsoCheckout, ...] = ()
    endpoint: str = ""
    """The endpoint of the server where a client asked for this run, such as `a2a/lead`; empty for other runs."""

    @property
    def worker_name(self) -> str:
        """The worker's display name: its branch, or the name of a read-only worker; empty if it has neither."""
        return self.branch or self.name

    @property
    def roots(self) -> tuple[str, ...]:
        """The repositories that the worker works in, the primary one first."""
        return (self.root, *(one.root for one in self.also))

    @property
    def paths(self) -> tuple[str, ...]:
        """The folders that the worker works in, the primary one first."""
        return (self.path, *(one.path for one in self.also))

    @property
    def has_checkout(self) -> bool:
        return bool(self.branch)

    @property
    def is_reader(self) -> bool:
        return not self.has_checkout and not self.is_here
