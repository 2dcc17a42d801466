"""Read and write presets: the user's own teams, stored in one file in Podium's home folder.

The file is replaced atomically, and entries in it that cannot be read are preserved.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from sys import float_info
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from ..system.file_lock import hold_file_lock
from ..system.locations import format_path
from ..system.whole_file import replace_file
from ..values.errors import Diagnostic, Mistake
from ..values.field_reader import FieldReader, ParseContext
from ..values.json import Json, JsonObject
from ..values.located_yaml import ListNode, LocatedNode, MappingNode, ScalarNode, quote_text
from ..values.team_modes import Mode
from .agent_name import make_unique_name, suggest_names
from .squad import Member, Team, derive_role
from .squad.squad_team import to_single_line
from .squad.team_file import parse_mode
from .team_keys import OPTION_KEYS

PRESETS_FILE = "presets.json"
LOCK_FILE = ".presets.lock"
CHECKED_KEYS = ("worktrees", "max_iterations")
"""Keys outside `manner` that have the same meaning in a preset as under `team:` in an agent's file."""
ELSEWHERE = (*CHECKED_KEYS, "evaluator", "shared_context", "routing")
"""The options of a team that a preset stores outside `manner`, some under another name."""
UNSUPPORTED = ("checks", "expects", "adjust", "fallback_models")
"""The options of a team that only agents' files can have."""
MANNER_KEYS = {name: key for name, key in OPTION_KEYS.items() if name not in (*ELSEWHERE, *UNSUPPORTED)}
MAX_NUMBER = 10**18
"""Integers of this magnitude or larger are rejected where an integer is expected."""


class PresetWorker(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker in a preset. It is generic if it has no prompt, and gets the default tools if `tools` is None."""

    name: str = ""
    role: str = ""
    model: str = ""
    prompt: str = ""
    tools: tuple[str, ...] | None = None


class Preset(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A team in the presets file. If it is a copy of a squad, `source` is the squad's folder."""

    name: str
    description: str = ""
    mode: Mode = "reflect"
    lead_model: str = ""
    lead_prompt: str = ""
    evaluator: str = ""
    workers: tuple[PresetWorker, ...] = ()
    shared_context: str = ""
    routing_context: str = ""
    worktrees: str = ""
    max_iterations: int | None = None
    manner: dict[str, Any] = {}
    """The other options of the team, as under `team:` in an agent's file."""
    source: str = ""
    is_user_defined: bool = True
    is_repo_level: bool = False

    def to_members(self, taken: Collection[str] = ()) -> tuple[Member, ...]:
        """Return the workers as members. Each gets a role, and a unique name that is not in `taken`."""
        names = {*(name.casefold() for name in taken)}
        found: list[Member] = []
        for number, worker in enumerate(self.workers, 1):
            name = make_unique_name(
                to_single_line(worker.name) or f"worker-{number}", lambda one: one.casefold() in names
            )
            names.add(name.casefold())
            role = worker.role or derive_role(name, worker.prompt)
            found.append(Member(name, role, worker.prompt, worker.model))
        return tuple(found)


class InvalidPreset(Struct, frozen=True):
    """A preset that is not used, because it has invalid values."""

    name: str
    diagnostics: tuple[Diagnostic, ...]


class Presets(Struct, frozen=True):
    """The content of the presets file, in file order, and notices about the file."""

    entries: tuple[Preset | InvalidPreset, ...]
    notices: tuple[str, ...] = ()

    @property
    def presets(self) -> tuple[Preset, ...]:
        """The valid presets."""
        return tuple(one for one in self.entries if isinstance(one, Preset))

    def get(self, name: str) -> Preset | None:
        """Return the valid preset with this name, ignoring case, or None."""
        return next((one for one in self.presets if one.name.casefold() == name.casefold()), None)


class _PresetsFile(Struct, frozen=True, kw_only=True):
    version: Literal[1] = 1
    presets: list[Any] = []


def load_presets(home: Path) -> Presets:
    """Load the presets in this home folder. Raise Mistake if the file cannot be read as a presets file."""
    found: list[Preset | InvalidPreset] = []
    notices: list[str] = []
    for place, entry in enumerate(_validate_file(_read_file(home)).presets, 1):
        try:
            found.append(
                _read_preset(
                    entry,
                    ParseContext(file=home / PRESETS_FILE, display_path=format_path(home / PRESETS_FILE)),
                    notices,
                )
            )
        except msgspec.ValidationError as error:
            notices.append(f"{PRESETS_FILE}: preset {place} cannot be read and is skipped: {error}")
    return Presets(tuple(found), tuple(notices))


def save_preset(home: Path, preset: Preset) -> None:
    """Save a preset. It replaces the preset with the same name, ignoring case, but keeps unknown keys of that preset.

    Raise Mistake if the preset has no name or invalid options, or if the file cannot be read.
    """
    if not preset.name.strip():
        raise Mistake("the preset has no name and cannot be saved; give it a name")
    check_preset(preset)
    with _lock_presets(home):
        stored = _read_file(home)
        entries = _validate_file(stored).presets
        entry = msgspec.to_builtins(preset)
        place = next((place for place, one in enumerate(entries) if _has_name(one, preset.name)), None)
        if place is None:
            entries.append(entry)
        else:
            entries[place] = _merge_preset(entries[place], entry)
        _write_file(home, {**stored, "presets": entries})


def check_preset(preset: Preset) -> None:
    """Raise Mistake if the preset could not be loaded again after saving."""
    _require_valid_options(msgspec.to_builtins(preset))


def parse_mode_options(name: str, given: JsonObject) -> JsonObject:
    """Return a team's mode options, given as in the presets file. Raise Mistake if an option is unknown or invalid."""
    if unknown := [key for key in given if key not in MANNER_KEYS]:
        known = suggest_names(unknown[0], sorted(MANNER_KEYS))
        raise Mistake(f"{name} cannot be saved: unknown option {quote_text(unknown[0])}; {known}")
    found: JsonObject = _require_valid_options({"name": name, "manner": given})["manner"]
    return found


def _require_valid_options(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a preset's team options. Raise Mistake if one of them is invalid."""
    context = ParseContext(file=Path(PRESETS_FILE), display_path=PRESETS_FILE)
    found = _read_options(entry, context)
    for diagnostic in context.diagnostics:
        raise Mistake(f"{entry['name']} cannot be saved: {diagnostic.key}: {diagnostic.message}")
    return found


def delete_preset(home: Path, name: str) -> bool:
    """Delete the preset with this name, ignoring case. Return whether it existed."""
    with _lock_presets(home):
        stored = _read_file(home)
        entries = _validate_file(stored).presets
        kept = [one for one in entries if not _has_name(one, name)]
        if len(kept) == len(entries):
            return False
        _write_file(home, {**stored, "presets": kept})
    return True


def preset_from_team(team: Team, *, description: str = "", lead_model: str = "") -> Preset:
    """Convert a squad to a preset, which is the user's own copy of the repository's team."""
    workers = tuple(
        PresetWorker(name=one.name, role=one.role, model=one.model, prompt=one.prompt) for one in team.members
    )
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


def build_workers(models: Sequence[str], prompts: Sequence[str] = ()) -> tuple[PresetWorker, ...]:
    """Build a worker for each model, with the prompt at the same index. Workers without a prompt are generic."""
    return tuple(
        PresetWorker(model=model, prompt=prompts[place] if place < len(prompts) else "")
        for place, model in enumerate(models)
    )


def _read_preset(entry: Any, context: ParseContext, notices: list[str]) -> Preset | InvalidPreset:
    """Read a stored preset. An unknown mode is replaced by `broadcast`, and a notice is added."""
    if isinstance(entry, dict) and isinstance(called := entry.get("name"), str):
        entry = {**entry, **_read_options(entry, context)}
        if context.has_error:
            return InvalidPreset(
                called, tuple(structs.replace(diagnostic, line=None) for diagnostic in context.diagnostics)
            )
    if isinstance(entry, dict) and isinstance(written := entry.get("mode"), str):
        mode = parse_mode(written)
        if mode is None:
            name = quote_text(str(entry.get("name", "")))
            notices.append(f"{PRESETS_FILE}: {name} has the unknown mode {quote_text(written)}; using broadcast")
        entry = {**entry, "mode": mode or "broadcast"}
    return msgspec.convert(entry, Preset)


def _read_options(entry: dict[str, Any], context: ParseContext) -> dict[str, Any]:
    """Read a preset's team options with the same checks as in an agent's file. Diagnostics are added to `context`."""
    name = entry["name"]
    said = {key: entry[key] for key in CHECKED_KEYS if entry.get(key) not in (None, "")}
    found = {key: OPTION_KEYS[key].read(_make_reader(context, f"{name}.{key}", value)) for key, value in said.items()}
    manner = entry.get("manner", {})
    if not isinstance(manner, dict):
        _make_reader(context, f"{name}.manner", manner).report_expected("a mapping with keys such as dispatch")
        return found
    told = {key: manner[key] for key in MANNER_KEYS if manner.get(key) is not None}
    return found | {
        "manner": {
            key: OPTION_KEYS[key].read(_make_reader(context, f"{name}.manner.{key}", value))
            for key, value in told.items()
        }
    }


def _make_reader(context: ParseContext, key: str, value: Json) -> FieldReader:
    return FieldReader(context=context, key=key, node=_to_node(value))


def _to_node(value: Json, depth: int = 2) -> LocatedNode:
    """Convert a JSON value to a node. Values that are nested more deeply than in any valid preset are dropped."""
    match value:
        case dict():
            return MappingNode(line=0, fields={key: _to_node(one, depth - 1) for key, one in value.items() if depth})
        case list():
            return ListNode(line=0, items=tuple(_to_node(one, depth - 1) for one in value if depth))
        case None:
            return ScalarNode(line=0, kind="nothing", value=None, raw="")
        case bool():
            return ScalarNode(line=0, kind="flag", value=value, raw=str(value).lower())
        case int() if abs(value) < MAX_NUMBER:
            return ScalarNode(line=0, kind="whole", value=value, raw=str(value))
        case int() | float() if abs(value) <= float_info.max:
            return ScalarNode(line=0, kind="number", value=value, raw=str(value))
        case _:
            return ScalarNode(line=0, kind="text", value=str(value), raw=str(value))


def _merge_preset(old: Any, new: dict[str, Any]) -> JsonObject:
    """Return the preset `new` with the unknown keys of the stored preset `old`."""
    if not isinstance(old, dict):
        return new
    before, after = (_index_workers(one.get("workers")) for one in (old, new))
    workers = [
        _keep_unknown_keys(before.get(place), worker, PresetWorker.__struct_fields__) for place, worker in after.items()
    ]
    manner = _keep_unknown_keys(old.get("manner"), new.get("manner", {}), MANNER_KEYS)
    said = {key: value for key, value in (("workers", workers), ("manner", manner)) if value}
    return _keep_unknown_keys(old, {**new, **said}, Preset.__struct_fields__)


def _index_workers(workers: Any) -> dict[tuple[str, int], Any]:
    """Index workers by name and by their position among the workers with the same name."""
    found: dict[tuple[str, int], Any] = {}
    for worker in workers if isinstance(workers, list | tuple) else ():
        name = str(worker.get("name", "")).casefold() if isinstance(worker, dict) else ""
        found[name, sum(name == other for other, _ in found)] = worker
    return found


def _keep_unknown_keys(old: Json, new: JsonObject, known: Collection[str]) -> dict[str, Json]:
    theirs = {key: value for key, value in old.items() if key not in known} if isinstance(old, dict) else {}
    return {**new, **theirs}


def _has_name(entry: Json, name: str) -> bool:
    found = entry.get("name") if isinstance(entry, dict) else None
    return isinstance(found, str) and found.casefold() == name.casefold()


def _validate_file(stored: JsonObject) -> _PresetsFile:
    return msgspec.convert(stored, _PresetsFile)


def _read_file(home: Path) -> dict[str, Any]:
    """Read the file with all its keys, including unknown ones."""
    path = home / PRESETS_FILE
    try:
        stored: dict[str, Any] = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        _validate_file(stored)
        return stored
    except FileNotFoundError:
        return msgspec.to_builtins(_PresetsFile())  # type: ignore[no-any-return]  # a struct becomes a dict
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OSError) as error:
        raise Mistake(
            f"{path} cannot be read as a presets file ({error}); fix it, or move it out of the way to start over"
        ) from error


def _write_file(home: Path, stored: JsonObject) -> None:
    replace_file(home / PRESETS_FILE, msgspec.json.format(msgspec.json.encode(stored), indent=1))


def _lock_presets(home: Path) -> AbstractContextManager[None]:
    return hold_file_lock(home / LOCK_FILE, protects=home / PRESETS_FILE)
