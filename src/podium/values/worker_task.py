"""Define a worker's task: where it works, from which commit it starts, and which workers must succeed first."""

from collections.abc import Iterable
from pathlib import PurePath

from msgspec import Struct, field, structs


class RepositoryOrigin(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The repository of a run that may move between machines.

    `path` is the repository's folder on the machine `host`, where the run was started. `remote` is the URL of the
    remote repository, without credentials. If the repository has no remote, `remote` is empty, and the run is pinned to
    `host`. `base` is the commit that the work starts from. It is empty if the work starts from the results of workers
    that have not finished.
    """

    path: str
    host: str
    remote: str = ""
    base: str = ""

    def explain_pinned(self, host: str) -> str:
        """Return why the machine `host` cannot fetch the code of the run, or an empty string if it can."""
        if self.remote or host == self.host:
            return ""
        return f"{self.describe_pinned()}; add a remote with git remote add origin URL, and delegate again"

    def describe_pinned(self) -> str:
        """Return a sentence about a run that is pinned to its machine."""
        return f"the repository {self.path} has no remote, so only {self.host} can work on this run"


DEFAULT_WORKER_AGENT = "worker"
"""The default agent for workers."""


class RunCheckout(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A repository that a run works in, and the folder in which it works there.

    `root` is the repository. `path` is a worker's own checkout of it, or the repository itself. `base` is the commit
    that a worker's branch starts at. `checks` are the checks of an additional repository as they were when the task was
    delegated; those of the primary repository are in the run's settings.
    """

    root: str
    path: str
    base: str = ""
    checks: dict[str, tuple[str, ...]] = {}

    @property
    def name(self) -> str:
        """The name of the repository's folder, for display."""
        return PurePath(self.root).name


def list_folders(checkouts: Iterable[RunCheckout]) -> list[str]:
    """Return the folders of checkouts and of their repositories, each once."""
    return list(dict.fromkeys(folder for one in checkouts for folder in (one.path, one.root)))


class WorkerTask(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The data that a worker process needs besides its request.

    The worker has a checkout of one or more repositories, each on `branch`; read them with `checkouts`. A worker
    without a branch has no checkout of its own and works in the repository. If `is_here` is set, such a worker changes
    the repository itself; otherwise, it is read-only and can have a `name`. `after` lists the runs of workers that must
    succeed first; their merged result is then the base. `parent` and `operation` are the run and the operation that
    started the worker. If `is_shared` is set, other members of the worker's team work in the same checkout. If
    `is_unattended` is set, nobody is asked: actions that need permission are denied. A task whose `origin` has a remote
    can move to another machine; the paths are then those on the machine where the task was delegated.

    `root`, `path` and `base` are those of the primary checkout. `others` is the stored form of the other checkouts.
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
    others: tuple[RunCheckout, ...] = field(default=(), name="also")
    endpoint: str = ""
    """The endpoint of the server where a client asked for this run, such as `a2a/lead`; empty for other runs."""

    @property
    def worker_name(self) -> str:
        """The worker's display name: its branch, or the name of a read-only worker; empty if it has neither."""
        return self.branch or self.name

    @property
    def checkouts(self) -> tuple[RunCheckout, ...]:
        """The checkouts that the worker works in, that of its primary repository first."""
        return (RunCheckout(root=self.root, path=self.path, base=self.base), *self.others)

    def with_checkouts(self, primary: RunCheckout, *others: RunCheckout) -> "WorkerTask":
        """Return the task with other checkouts."""
        return structs.replace(self, root=primary.root, path=primary.path, base=primary.base, others=others)

    def with_bases(self, bases: Iterable[str]) -> "WorkerTask":
        """Return the task with the commits at which the branch starts, one for each checkout that exists."""
        found = [structs.replace(one, base=base) for one, base in zip(self.checkouts, bases, strict=False)]
        return self.with_checkouts(*found) if found else self

    @property
    def roots(self) -> tuple[str, ...]:
        """The repositories that the worker works in, the primary one first."""
        return tuple(one.root for one in self.checkouts)

    @property
    def has_checkout(self) -> bool:
        return bool(self.branch)

    @property
    def is_reader(self) -> bool:
        return not self.has_checkout and not self.is_here
