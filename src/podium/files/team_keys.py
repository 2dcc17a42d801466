"""Read the keys under `team:` in an agent's file: the members, the mode and its options."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import structs

from ..values.agent import Member, Team
from ..values.errors import Mistake
from ..values.field_reader import FieldReader
from ..values.key_schema import STRING, STRINGS, accepts
from ..values.located_yaml import ListNode, MappingNode, ScalarNode
from ..values.plain_text import join_words
from ..values.struct_reader import Keys, Reader, list_keys, read_each, read_values
from ..values.team_modes import MODE_ALIASES, MODES, choose_default_mode
from .agent_name import read_agent_name, read_agent_names

TERMINATIONS = ("consensus", "max_rounds", "coordinator_decides")
TERMINATIONS_ELSEWHERE = {"maxRounds": "max_rounds", "coordinatorDecides": "coordinator_decides"}


@accepts({"enum": [*TERMINATIONS, *TERMINATIONS_ELSEWHERE]})
def _read_termination(reader: FieldReader) -> str:
    """Read when a discussion ends, which other programs spell in camelCase."""
    return reader.read_choice(TERMINATIONS, also=TERMINATIONS_ELSEWHERE)


@accepts(STRINGS)
def read_commands(reader: FieldReader) -> list[str]:
    """Read one command or a list of commands."""
    return list(reader.read_texts(allow_blank=True))


def read_team(reader: FieldReader) -> Team:
    """Read a team. If it has no `mode`, the mode depends on the options; see `choose_default_mode`.

    Keys of other modes are read too, because a run can choose another mode for the team.
    """
    fields = reader.read_fields(TEAM_KEYS, also=SPELLINGS)
    options = read_each(fields, OPTION_KEYS)
    given = read_each({key: field for key, field in fields.items() if key not in OPTION_KEYS}, TEAM_KEYS)
    team = Team(
        **{"mode": choose_default_mode(options), "members": (), **given},
        evaluator=options.pop("evaluator", None),
        options=options,
    )
    _warn_about_idle_keys(fields, team.mode)
    return team


@accepts(STRING)
def _read_mode(reader: FieldReader) -> str:
    """Read the mode of a team: one of Podium's own, or the name of a plug-in's pattern."""
    word = reader.text
    if word and MODE_ALIASES.get(word, word) not in MODES and _has_plugin_pattern(reader, word):
        return word
    return reader.read_choice(MODES, also=MODE_ALIASES)


def _has_plugin_pattern(reader: FieldReader, name: str) -> bool:
    """Return whether a plug-in has a pattern with this name. Warn about a plug-in that cannot be loaded."""
    # For start-up time: looking for plug-ins takes longer than reading most files.
    from ..system.installed_plugins import find_plugin_part

    try:
        return find_plugin_part("patterns", name) is not None
    except Mistake as error:
        reader.add_warning(str(error))
        return False


def _warn_about_idle_keys(fields: Mapping[str, FieldReader], mode: str) -> None:
    """Add a warning for each key that is checked and stored, but has no effect in this mode."""
    for key, reader in fields.items():
        if why := describe_idle_key(key, mode, fields):
            reader.add_warning(why)


def describe_idle_key(key: str, mode: str, given: Collection[str]) -> str:
    """Return why a team key has no effect in this mode with the given keys, or an empty string if it has an effect."""
    if mode not in MODES or key not in OPTION_KEYS:
        return ""
    if key not in MODE_KEYS[mode]:
        return f"has no effect in {mode} mode, only in {join_words(list_modes(key))}"
    needed = MODE_KEYS[mode][key].key.needs
    return f"has no effect in {mode} mode without {needed}" if needed and needed not in given else ""


def list_modes(key: str) -> list[str]:
    """Return the modes in which a team key has an effect."""
    return [mode for mode, keys in MODE_KEYS.items() if key in keys]


@accepts({"type": ["string", "array"]})
def _read_members(reader: FieldReader) -> tuple[Member, ...]:
    """Read the members. Each is an agent's name, or a mapping that also overrides some of the agent's fields."""
    if isinstance(reader.node, ScalarNode):
        return tuple(Member(agent=name) for name in read_agent_names(reader))
    if not isinstance(reader.node, ListNode):
        reader.report_expected("a list of agents")
        return ()
    return tuple(read_member(item) for item in reader.iter_items())


def read_member(reader: FieldReader) -> Member:
    """Read one member, given as a name or a mapping."""
    if not isinstance(reader.node, MappingNode):
        return Member(agent=read_agent_name(reader))
    values = read_values(reader, MEMBER_KEYS)
    if "agent" not in values:
        reader.add_error("this member has no agent; add agent: NAME")
    return Member(**{"agent": "", **values})


KINDS: Mapping[str, Reader] = {
    "agent name": read_agent_name,
    "agent names": read_agent_names,
    "mode": _read_mode,
    "members": _read_members,
    "checks": read_commands,
    "termination": _read_termination,
}
MEMBER_KEYS = list_keys(Member, KINDS)
MODE_KEYS: Mapping[str, Keys] = {mode: list_keys(options, KINDS) for mode, options in MODES.items()}
"""The keys of each mode, in addition to `mode` and `members`."""
OPTION_KEYS: Keys = {name: key for keys in MODE_KEYS.values() for name, key in keys.items()}
_OWN_KEYS = list_keys(Team, KINDS)
_MODE_VALUE = "; ".join(
    (
        join_words([f"`{mode}`" for mode in MODES], last="or"),
        "`orchestrator` is accepted as an alias for `orchestrate`, and `orchestrator-reflect` for `reflect`",
    )
)
TEAM_KEYS: Keys = {**_OWN_KEYS, "mode": structs.replace(_OWN_KEYS["mode"], value=_MODE_VALUE), **OPTION_KEYS}
"""The keys of a team, in all modes."""
SPELLINGS = {"terminationMode": "termination", "termination_mode": "termination"}
"""Other spellings of keys."""
