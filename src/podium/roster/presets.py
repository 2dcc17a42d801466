"""Presets: the person's own teams, kept in one file in the Podium home.

The file is replaced as a whole, and what in it cannot be understood stays in it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from sys import float_info
from tempfile import mkstemp
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from ..system.locations import shown
from ..values.agent import MODES_ELSEWHERE, Mode
from ..values.diagnostic import Finding
from ..values.errors import Mistake
from ..values.located_yaml import Fields, Items, Scalar, Written, quoted
from .agent_field import Page, Slot
from .squad import Member, Team, derive_role
from .team_keys import MODES, OPTIONS

FILE = "presets.json"
LOCK = ".presets.lock"
CHECKED = ("worktrees", "max_iterations")
"""Keys of a preset that mean what they do in the `team:` of an agent's file, as all keys of its manner do."""
LARGEST = 10**18
"""Numbers from here on are refused, as in agent files."""


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


class Flawed(Struct, frozen=True):
    """A preset that wants what cannot be, and so is not used."""

    name: str
    findings: tuple[Finding, ...]


class Presets(Struct, frozen=True):
    """What the file holds, in its order, and what to tell about it."""

    entries: tuple[Preset | Flawed, ...]
    notices: tuple[str, ...] = ()

    @property
    def presets(self) -> tuple[Preset, ...]:
        """Those that can be used."""
        return tuple(one for one in self.entries if isinstance(one, Preset))

    def get(self, name: str) -> Preset | None:
        """The preset of that name, ignoring case."""
        return next((one for one in self.presets if one.name.casefold() == name.casefold()), None)


class _File(Struct, frozen=True, kw_only=True):
    version: Literal[1] = 1
    presets: list[Any] = []


def load(home: Path) -> Presets:
    """The presets in this home. Raises Mistake where the file is none of ours."""
    found: list[Preset | Flawed] = []
    notices: list[str] = []
    for place, entry in enumerate(_file(_read(home)).presets, 1):
        try:
            found.append(_preset(entry, Page(file=home / FILE, path=shown(home / FILE)), notices))
        except msgspec.ValidationError as error:
            notices.append(f"{FILE}: preset {place} is left out, since it cannot be read: {error}")
    return Presets(tuple(found), tuple(notices))


def save(home: Path, preset: Preset) -> None:
    """Keep a preset, in the place of one of the same name."""
    if not preset.name.strip():
        raise Mistake("a preset without a name cannot be saved; give it one")
    must_be_sound(preset)
    with _alone(home):
        stored = _read(home)
        entries = _file(stored).presets
        entry = msgspec.to_builtins(preset)
        place = next((place for place, one in enumerate(entries) if _is_named(one, preset.name)), None)
        if place is None:
            entries.append(entry)
        else:
            entries[place] = _over(entries[place], entry)
        _write(home, {**stored, "presets": entries})


def must_be_sound(preset: Preset) -> None:
    """Refuse what would be read as flawed. Raises Mistake."""
    page = Page(file=Path(FILE), path=FILE)
    _options(msgspec.to_builtins(preset), page)
    for finding in page.findings:
        raise Mistake(f"{preset.name} cannot be saved: {finding.key}: {finding.message}")


def delete(home: Path, name: str) -> bool:
    """Keep no preset of that name any more; whether there was one."""
    with _alone(home):
        stored = _read(home)
        entries = _file(stored).presets
        kept = [one for one in entries if not _is_named(one, name)]
        if len(kept) == len(entries):
            return False
        _write(home, {**stored, "presets": kept})
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


def _preset(entry: Any, page: Page, notices: list[str]) -> Preset | Flawed:
    """A stored preset; one of an unknown mode sends its request to all."""
    if isinstance(entry, dict) and isinstance(called := entry.get("name"), str):
        entry = {**entry, **_options(entry, page)}
        if page.has_error:
            return Flawed(called, tuple(structs.replace(finding, line=None) for finding in page.findings))
    if isinstance(entry, dict) and isinstance(written := entry.get("mode"), str):
        mode = MODES_ELSEWHERE.get(written.lower(), written.lower())
        if mode not in MODES:
            name = quoted(str(entry.get("name", "")))
            notices.append(f"{FILE}: {name} has the mode {quoted(written)}, which there is not; it works as broadcast")
            mode = "broadcast"
        entry = {**entry, "mode": mode}
    return msgspec.convert(entry, Preset)


def _options(entry: dict[str, Any], page: Page) -> dict[str, Any]:
    """What a preset says about its mode, read as in an agent's file; the page gets what is wrong."""
    name = entry["name"]
    said = {key: entry[key] for key in CHECKED if entry.get(key) not in (None, "")}
    found = {key: OPTIONS[key](_slot(page, f"{name}.{key}", value)) for key, value in said.items()}
    manner = entry.get("manner", {})
    if not isinstance(manner, dict):
        _slot(page, f"{name}.manner", manner).wrong("a mapping with keys such as dispatch")
        return found
    told = {key: manner[key] for key in Manner.__struct_fields__ if manner.get(key) is not None}
    return found | {
        "manner": {key: OPTIONS[key](_slot(page, f"{name}.manner.{key}", value)) for key, value in told.items()}
    }


def _slot(page: Page, key: str, value: Any) -> Slot:
    return Slot(page=page, key=key, written=_written(value))


def _written(value: Any, depth: int = 2) -> Written:
    """A value of JSON as an agent's file would have it; what is nested deeper than any key allows is left out."""
    match value:
        case dict():
            return Fields(line=0, fields={key: _written(one, depth - 1) for key, one in value.items() if depth})
        case list():
            return Items(line=0, items=tuple(_written(one, depth - 1) for one in value if depth))
        case None:
            return Scalar(line=0, kind="nothing", value=None, raw="")
        case bool():
            return Scalar(line=0, kind="flag", value=value, raw=str(value).lower())
        case int() if abs(value) < LARGEST:
            return Scalar(line=0, kind="whole", value=value, raw=str(value))
        case int() | float() if abs(value) <= float_info.max:
            return Scalar(line=0, kind="number", value=value, raw=str(value))
        case _:
            return Scalar(line=0, kind="text", value=str(value), raw=str(value))


def _over(old: Any, new: dict[str, Any]) -> dict[str, Any]:
    """A preset in the place of an older one, of which it keeps what is not ours to know."""
    if not isinstance(old, dict):
        return new
    before, after = (_by_name(one.get("workers")) for one in (old, new))
    workers = [_kept(before.get(place), worker, Worker.__struct_fields__) for place, worker in after.items()]
    manner = _kept(old.get("manner"), new.get("manner", {}), Manner.__struct_fields__)
    said = {key: value for key, value in (("workers", workers), ("manner", manner)) if value}
    return _kept(old, {**new, **said}, Preset.__struct_fields__)


def _by_name(workers: Any) -> dict[tuple[str, int], Any]:
    """Workers by their names and, where several have one, by which of these they are."""
    found: dict[tuple[str, int], Any] = {}
    for worker in workers if isinstance(workers, list | tuple) else ():
        name = str(worker.get("name", "")).casefold() if isinstance(worker, dict) else ""
        found[name, sum(name == other for other, _ in found)] = worker
    return found


def _kept(old: Any, new: dict[str, Any], known: Collection[str]) -> dict[str, Any]:
    theirs = {key: value for key, value in old.items() if key not in known} if isinstance(old, dict) else {}
    return {**new, **theirs}


def _is_named(entry: Any, name: str) -> bool:
    found = entry.get("name") if isinstance(entry, dict) else None
    return isinstance(found, str) and found.casefold() == name.casefold()


def _file(stored: dict[str, Any]) -> _File:
    return msgspec.convert(stored, _File)


def _read(home: Path) -> dict[str, Any]:
    """The file with all of its keys, those of others too."""
    path = home / FILE
    try:
        stored: dict[str, Any] = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        _file(stored)
        return stored
    except FileNotFoundError:
        return msgspec.to_builtins(_File())  # type: ignore[no-any-return]  # of a struct it is a mapping
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OSError) as error:
        raise Mistake(f"{path} cannot be read as presets ({error}); mend it, or move it away to begin anew") from error


def _write(home: Path, stored: dict[str, Any]) -> None:
    path = home / FILE
    data = msgspec.json.format(msgspec.json.encode(stored), indent=1)
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
