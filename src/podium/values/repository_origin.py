"""Describe the repository that the code of a run comes from, so that another machine can fetch the code."""

from msgspec import Struct


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
