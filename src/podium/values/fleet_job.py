"""A job: a run that is waiting for a host, and what the host must offer.

A host claims jobs of the classes that it accepts. All jobs of one class need the same labels and the same store
version, and count towards the limits of the same team and provider. Each host has a label that no other host has. A
job for one particular host requires that label.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec
from msgspec import Struct

from .errors import Mistake

JobState = Literal["queued", "claimed"]
LOST_SECONDS = 10.0
"""How long after its last heartbeat a host is considered lost. Its runs are taken over when its lease expires."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


class JobClass(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A class of jobs with the same requirements for their host, and with the same team and provider.

    A host must have all `labels`, which are sorted, and must support at least version `store_version` of the store.
    The jobs count towards the limits of their team and provider.
    """

    labels: tuple[str, ...] = ()
    store_version: int = 0
    team: str = ""
    provider: str = ""

    @property
    def key(self) -> str:
        """The class as text; equal classes have equal keys."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_key(cls, key: str) -> JobClass:
        """Return the class that has this key. Raise msgspec.MsgspecError if the key is not valid."""
        return msgspec.json.decode(key, type=cls)


class FleetJob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run that a host can claim. `host` names the only host that can take it, and is empty if any host can.

    `parent` is the run that delegated to this run, or is empty.
    `repository` is the address that a host clones the code from. Jobs with a higher priority are claimed first.
    """

    run: str
    parent: str = ""
    labels: tuple[str, ...] = ()
    host: str = ""
    priority: int = 0
    team: str = ""
    provider: str = ""
    repository: str = ""
    store_version: int = 0

    @property
    def job_class(self) -> JobClass:
        """The class of this job."""
        labels = {*self.labels, *((_make_host_label(self.host),) if self.host else ())}
        return JobClass(
            labels=tuple(sorted(labels)), store_version=self.store_version, team=self.team, provider=self.provider
        )


class JobClaim(Struct, frozen=True, kw_only=True):
    """A job that a host has claimed. The token distinguishes this claim from all other claims on the same job."""

    job: FleetJob
    token: str
    handle: str
    """The job's name within the placement engine."""


class JobStatus(Struct, frozen=True, kw_only=True):
    """An unfinished job, and whether a host has claimed it."""

    job: FleetJob
    state: JobState


class HostOffer(Struct, frozen=True, kw_only=True):
    """A host's offer to claim jobs. The host claims no jobs for teams and providers that have reached their limits."""

    host: str
    labels: tuple[str, ...] = ()
    store_version: int = 0
    full_teams: frozenset[str] = frozenset()
    full_providers: frozenset[str] = frozenset()

    def accepts(self, wanted: JobClass) -> bool:
        """Return whether this host can take jobs of a class now."""
        return (
            {*self.labels, _make_host_label(self.host)}.issuperset(wanted.labels)
            and wanted.store_version <= self.store_version
            and wanted.team not in self.full_teams
            and wanted.provider not in self.full_providers
        )


def _make_host_label(host: str) -> str:
    """Return the label that only this host has."""
    return f"host={host}"


def check_job(job: FleetJob) -> None:
    """Raise Mistake if the run id, a label or the host name of a job is not valid."""
    check_name(job.run, "run")
    for label in job.labels:
        check_name(label, "label")
    if job.host:
        check_name(job.host, "host")


def check_name(name: str, kind: str) -> None:
    """Raise Mistake if a name is empty, too long or contains a character that is not allowed.

    `kind` is the kind of name, such as `host` or `label`. The error message starts with it.
    """
    if not _NAME.fullmatch(name):
        raise Mistake(
            f"{kind} {name!r} is not valid: use at most 63 letters, digits, dashes and underscores, "
            "beginning with a letter or a digit"
        )


def are_compatible(one: str, other: str) -> bool:
    """Return whether two releases can work on the same runs.

    They can if their major versions are equal and, before 1.0, their minor versions too. An empty release is compatible
    with every other, because runs from old releases do not say which release wrote them.
    """
    return not one or not other or _find_series(one) == _find_series(other)


def _find_series(release: str) -> str:
    """Return the part of a version number that all compatible releases share: `0.4` for 0.4.1, and `2` for 2.5.0."""
    numbers = re.match(r"(0\.\d+|[1-9]\d*)", release)
    return numbers[0] if numbers else release


def format_install_commands(extras: str) -> str:
    """Return the commands that install Podium with these extras, for each of the usual installers."""
    package = f"'podium[{extras}]'"
    return f"uv tool install {package}, pipx install --force {package} or pip install {package}"
