"""Read the keys under `team:` in an agent's file: the members, the mode and its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ..values.agent import MODE_ALIASES, Member, Mode, Team, choose_default_mode
from ..values.errors import Mistake
from ..values.field_reader import FieldReader, Readers
from ..values.located_yaml import ListNode, MappingNode, ScalarNode
from ..values.plain_text import join_words
from .agent_name import read_agent_name, read_agent_names

MODES = ("broadcast", "sequential", "orchestrate", "reflect", "discuss", "collaborate")
TERMINATIONS = ("consensus", "max_rounds", "coordinator_decides")
TERMINATIONS_ELSEWHERE = {"maxRounds": "max_rounds", "coordinatorDecides": "coordinator_decides"}
MEMBER_READERS: Readers = {
    "agent": read_agent_name,
    "name": FieldReader.read_single_line,
    "role": FieldReader.read_single_line,
    "capabilities": FieldReader.read_comma_list,
    "model": FieldReader.read_single_line,
    "prompt": partial(FieldReader.read_text, allow_blank=True),
    "weight": FieldReader.read_positive_number,
}


def make_choice_reader(*words: str) -> Callable[[FieldReader], str]:
    """Return a reader that accepts one of `words`."""
    return partial(FieldReader.read_choice, words=words)


def read_text_mapping(reader: FieldReader) -> dict[str, str]:
    """Read a mapping of names to strings."""
    entries = reader.iter_entries("a mapping of names to strings")
    return {name: entry.read_text(allow_blank=True) for name, entry in entries}


def read_commands(reader: FieldReader) -> list[str]:
    """Read one command or a list of commands."""
    return list(reader.read_texts(allow_blank=True))


OPTION_READERS: Readers = {
    "max_iterations": FieldReader.read_int,
    "dispatch": make_choice_reader("ask", "force"),
    "answer_directly": FieldReader.read_bool,
    "participation": make_choice_reader("any", "all"),
    "checks": read_commands,
    "expects": make_choice_reader("changes"),
    "adjust": make_choice_reader("ask", "auto"),
    "worker_timeout": FieldReader.read_positive_number,
    "collection_timeout": FieldReader.read_positive_number,
    "termination": partial(FieldReader.read_choice, words=TERMINATIONS, also=TERMINATIONS_ELSEWHERE),
    "max_rounds": FieldReader.read_int,
    "round_timeout": FieldReader.read_positive_number,
    "worktrees": make_choice_reader("shared", "team", "lead", "each"),
    "shared_context": partial(FieldReader.read_text, allow_blank=True),
    "routing": partial(FieldReader.read_text, allow_blank=True),
    "prompts": read_text_mapping,
    "choose": make_choice_reader("checks", "judge", "person"),
    "keep": make_choice_reader("last", "best"),
    "approve_plan": make_choice_reader("lead", "person"),
    "decide_by": make_choice_reader("lead", "person"),
    "review_by": make_choice_reader("member", "person"),
    "vote": FieldReader.read_single_line,
    "vote_window": FieldReader.read_positive_number,
    "adr": FieldReader.read_bool,
    "lockout": FieldReader.read_bool,
    "max_attempts": FieldReader.read_int,
    "max_concurrent": FieldReader.read_int,
    "fresh": FieldReader.read_bool,
    "constraints": FieldReader.read_texts,
    "needs": FieldReader.read_comma_list,
    "fallback_models": FieldReader.read_comma_list,
}
PLANNED: tuple[Mode, ...] = ("orchestrate", "reflect")
ACTING_MODES: Mapping[str, tuple[Mode, ...]] = {
    "evaluator": ("broadcast", "reflect"),
    "choose": ("broadcast",),
    "keep": ("reflect",),
    "max_iterations": ("reflect",),
    "dispatch": PLANNED,
    "answer_directly": PLANNED,
    "participation": ("reflect",),
    "checks": ("broadcast", "reflect", "collaborate"),
    "adjust": ("reflect",),
    "worker_timeout": ("broadcast", "sequential", *PLANNED, "collaborate"),
    "collection_timeout": ("broadcast", *PLANNED),
    "termination": ("discuss",),
    "max_rounds": ("discuss",),
    "round_timeout": ("discuss",),
    "routing": (*PLANNED, "collaborate"),
    "max_concurrent": ("broadcast", *PLANNED, "discuss", "collaborate"),
    "fresh": ("reflect",),
    "approve_plan": ("collaborate",),
    "review_by": ("collaborate",),
    "adr": ("collaborate",),
    "lockout": ("collaborate",),
    "max_attempts": ("collaborate",),
    "constraints": ("collaborate",),
    "needs": ("collaborate",),
}
"""For each key that does not apply in every mode, the modes in which it has an effect."""
KEYS = ("mode", "members", "evaluator", *OPTION_READERS)
SPELLINGS = {"terminationMode": "termination", "termination_mode": "termination"}


def read_team(reader: FieldReader) -> Team:
    """Read a team. If it has no `mode`, the mode depends on the options; see `choose_default_mode`."""
    fields = reader.read_fields(KEYS, also=SPELLINGS)
    options = {key: read(fields[key]) for key, read in OPTION_READERS.items() if key in fields}
    mode = read_mode(fields["mode"]) if "mode" in fields else choose_default_mode(options)
    warn_about_idle_keys(fields, mode)
    return Team(
        mode=mode,
        members=read_members(fields["members"]) if "members" in fields else (),
        evaluator=read_agent_name(fields["evaluator"]) if "evaluator" in fields else None,
        options=options,
    )


def read_mode(reader: FieldReader) -> str:
    """Read the mode of a team: one of Podium's own, or the name of a plug-in's pattern."""
    word = reader.text
    if word and MODE_ALIASES.get(word, word) not in MODES and has_plugin_pattern(reader, word):
        return word
    return reader.read_choice(MODES, also=MODE_ALIASES)


def has_plugin_pattern(reader: FieldReader, name: str) -> bool:
    """Return whether a plug-in has a pattern with this name. Warn about a plug-in that cannot be loaded."""
    # For start-up time: looking for plug-ins takes longer than reading most files.
    from ..system.installed_plugins import find_plugin_part

    try:
        return find_plugin_part("patterns", name) is not None
    except Mistake as error:
        reader.add_warning(str(error))
        return False


def warn_about_idle_keys(fields: Mapping[str, FieldReader], mode: str) -> None:
    """Add a warning for each key that is checked and stored, but has no effect in this mode."""
    for key, reader in fields.items():
        if why := describe_idle_key(key, mode):
            reader.add_warning(why)
        elif mode == "broadcast" and key in ("checks", "evaluator") and "choose" not in fields:
            reader.add_warning("has no effect in broadcast mode without choose")


def describe_idle_key(key: str, mode: str) -> str:
    """Return why a team key has no effect in this mode, or an empty string if it has an effect."""
    modes = ACTING_MODES.get(key, MODES)
    if mode in modes or mode not in MODES:
        return ""
    return f"has no effect in {mode} mode, only in {join_words(modes)}"


def read_members(reader: FieldReader) -> tuple[Member, ...]:
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
    values = reader.read_values(MEMBER_READERS)
    if "agent" not in values:
        reader.add_error("this member has no agent; add agent: NAME")
    return Member(**{"agent": "", **values})
