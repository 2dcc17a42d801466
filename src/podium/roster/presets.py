"""Presets: the person's own teams, kept in one file in the Podium home.

The file is replaced as a whole, and what in it cannot be understood stays in it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from ..agent import Mode
from ..errors import Mistake
from ..marked import quoted
from .squad import Member, Team, derive_role
from .team import MODES, MODES_ELSEWHERE

FILE = "presets.json"
LOCK = ".presets.lock"


class Worker(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker of a preset; one without a prompt is generic, and one without tools has all that work needs."""

    name: str = ""
    role: str = ""
    model: str = ""
    prompt: str = ""
    tools: tuple[str, ...] | None = None


class Manner(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a team says about its mode, where it says anything."""

    dispatch: Literal["ask", "force"] | None = None
    answer_directly: bool | None = None
    participation: Literal["any", "all"] | None = None
    worker_timeout: float | None = None
    collection_timeout: float | None = None
    termination: Literal["consensus", "max_rounds", "coordinator_decides"] | None = None
    max_rounds: int | None = None
    round_timeout: float | None = None
    prompts: dict[str, str] | None = None

    def options(self) -> dict[str, Any]:
        """The same as the keys of a team."""
        return {key: value for key, value in structs.asdict(self).items() if value is not None}


class Preset(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A team to be made whenever it is wanted."""

    name: str
    description: str = ""
    mode: Mode = "reflect"
    lead_model: str = ""
    lead_prompt: str = ""
    evaluator: str = ""
    workers: tuple[Worker, ...] = ()
    shared_context: str = ""
    routing_context: str = ""
    worktrees: str = ""
    max_iterations: int | None = None
    manner: Manner = Manner()
    source: str = ""
    is_user_defined: bool = True
    is_repo_level: bool = False

    def members(self, taken: Collection[str] = ()) -> tuple[Member, ...]:
        """Its workers as members, each with a role and a model, by names that are not taken."""
        names = {*(name.casefold() for name in taken)}
        found: list[Member] = []
        for number, worker in enumerate(self.workers, 1):
            name = numbered(worker.name or f"worker-{number}", names)
            names.add(name.casefold())
            role = worker.role or derive_role(name, worker.prompt)
            found.append(Member(name, role, worker.prompt, worker.model))
        return tuple(found)


class Presets(Struct, frozen=True):
    """What the file holds, and what to tell about it."""

    presets: tuple[Preset, ...]
    notices: tuple[str, ...] = ()

    def get(self, name: str) -> Preset | None:
        """The preset of that name, ignoring case."""
        return next((one for one in self.presets if one.name.casefold() == name.casefold()), None)


class _File(Struct, frozen=True, kw_only=True):
    version: Literal[1] = 1
    presets: list[Any] = []


def load(home: Path) -> Presets:
    """The presets in this home. Raises Mistake where the file is none of ours."""
    found: list[Preset] = []
    notices: list[str] = []
    for place, entry in enumerate(_read(home).presets, 1):
        try:
            found.append(_preset(entry, notices))
        except msgspec.ValidationError as error:
            notices.append(f"{FILE}: preset {place} is left out, since it cannot be read: {error}")
    return Presets(tuple(found), tuple(notices))


def save(home: Path, preset: Preset) -> None:
    """Keep a preset, in the place of one of the same name."""
    if not preset.name.strip():
        raise Mistake("a preset without a name cannot be saved; give it one")
    with _alone(home):
        entries = _read(home).presets
        entry = msgspec.to_builtins(preset)
        place = next((place for place, one in enumerate(entries) if _is_named(one, preset.name)), None)
        if place is None:
            entries.append(entry)
        else:
            entries[place] = entry
        _write(home, entries)


def delete(home: Path, name: str) -> bool:
    """Keep no preset of that name any more; whether there was one."""
    with _alone(home):
        entries = _read(home).presets
        kept = [one for one in entries if not _is_named(one, name)]
        if len(kept) == len(entries):
            return False
        _write(home, kept)
    return True


def of_team(team: Team, *, description: str = "", lead_model: str = "") -> Preset:
    """A team as a preset: the person's own copy of what is saved in the repository."""
    workers = tuple(Worker(name=one.name, role=one.role, model=one.model, prompt=one.prompt) for one in team.members)
    return Preset(
        name=team.name,
        description=description,
        mode=team.mode,
        lead_model=lead_model,
        workers=workers,
        shared_context=team.shared_context,
        routing_context=team.routing_context,
        source=str(team.source or ""),
    )


def workers(models: Sequence[str], prompts: Sequence[str] = ()) -> tuple[Worker, ...]:
    """A worker for each model; where there are fewer prompts, the rest is generic."""
    return tuple(
        Worker(model=model, prompt=prompts[place] if place < len(prompts) else "") for place, model in enumerate(models)
    )


def numbered(name: str, taken: Collection[str]) -> str:
    """`name`, with a number where it is taken."""
    names = {one.casefold() for one in taken}
    number, free = 1, name
    while free.casefold() in names:
        number += 1
        free = f"{name}-{number}"
    return free


def _preset(entry: Any, notices: list[str]) -> Preset:
    """A stored preset; one of an unknown mode sends its request to all."""
    if isinstance(entry, dict) and isinstance(written := entry.get("mode"), str):
        mode = MODES_ELSEWHERE.get(written.lower(), written.lower())
        if mode not in MODES:
            name = quoted(str(entry.get("name", "")))
            notices.append(f"{FILE}: {name} has the mode {quoted(written)}, which there is not; it works as broadcast")
            mode = "broadcast"
        entry = {**entry, "mode": mode}
    return msgspec.convert(entry, Preset)


def _is_named(entry: Any, name: str) -> bool:
    found = entry.get("name") if isinstance(entry, dict) else None
    return isinstance(found, str) and found.casefold() == name.casefold()


def _read(home: Path) -> _File:
    path = home / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=_File)
    except FileNotFoundError:
        return _File()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OSError) as error:
        raise Mistake(f"{path} cannot be read as presets ({error}); mend it, or move it away to begin anew") from error


def _write(home: Path, entries: list[Any]) -> None:
    path = home / FILE
    data = msgspec.json.format(msgspec.json.encode(_File(presets=entries)), indent=1)
    handle, name = mkstemp(dir=home, prefix=f".{FILE}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """The only writer among all processes, so that none takes back what another wrote meanwhile."""
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(home / LOCK, os.O_CREAT | os.O_RDWR | getattr(os, "O_CLOEXEC", 0), 0o600)
    except OSError as error:
        raise Mistake(f"{home / FILE} cannot be written: {error.strerror}; change its permissions") from error
    try:
        if os.name == "posix":
            import fcntl  # there is none elsewhere

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    except OSError as error:
        raise Mistake(f"{home / FILE} cannot be written: {error.strerror or error}") from error
    finally:
        os.close(handle)
