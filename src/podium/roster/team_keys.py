"""Read the keys under `team:` in an agent's file: the members, the mode and its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ..values.agent import MODE_ALIASES, Member, Mode, Team, choose_default_mode
from ..values.errors import Mistake
from ..values.field_reader import FieldReader, Key, Keys
from ..values.key_schema import STRING, STRING_TABLE, STRINGS, accepts
from ..values.located_yaml import ListNode, MappingNode, ScalarNode
from ..values.plain_text import join_words
from .agent_name import read_agent_name, read_agent_names

MODES = ("broadcast", "sequential", "orchestrate", "reflect", "discuss", "collaborate")
TERMINATIONS = ("consensus", "max_rounds", "coordinator_decides")
TERMINATIONS_ELSEWHERE = {"maxRounds": "max_rounds", "coordinatorDecides": "coordinator_decides"}
MEMBER_KEYS: Keys = {
    "agent": Key(read_agent_name),
    "name": Key(FieldReader.read_single_line),
    "role": Key(FieldReader.read_single_line),
    "capabilities": Key(FieldReader.read_comma_list),
    "model": Key(FieldReader.read_single_line),
    "prompt": Key(partial(FieldReader.read_text, allow_blank=True)),
    "weight": Key(FieldReader.read_positive_number),
}


def make_choice_reader(*words: str) -> Callable[[FieldReader], str]:
    """Return a reader that accepts one of `words`."""
    return partial(FieldReader.read_choice, words=words)


@accepts(STRING_TABLE)
def read_text_mapping(reader: FieldReader) -> dict[str, str]:
    """Read a mapping of names to strings."""
    entries = reader.iter_entries("a mapping of names to strings")
    return {name: entry.read_text(allow_blank=True) for name, entry in entries}


@accepts(STRINGS)
def read_commands(reader: FieldReader) -> list[str]:
    """Read one command or a list of commands."""
    return list(reader.read_texts(allow_blank=True))


def read_team(reader: FieldReader) -> Team:
    """Read a team. If it has no `mode`, the mode depends on the options; see `choose_default_mode`."""
    fields = reader.read_fields(KEYS, also=SPELLINGS)
    options = {name: key.read(fields[name]) for name, key in OPTION_KEYS.items() if name in fields}
    mode = read_mode(fields["mode"]) if "mode" in fields else choose_default_mode(options)
    warn_about_idle_keys(fields, mode)
    return Team(
        mode=mode,
        members=read_members(fields["members"]) if "members" in fields else (),
        evaluator=read_agent_name(fields["evaluator"]) if "evaluator" in fields else None,
        options=options,
    )


@accepts(STRING)
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
    modes = KEYS[key].modes if key in KEYS else ()
    if mode in (modes or MODES) or mode not in MODES:
        return ""
    return f"has no effect in {mode} mode, only in {join_words(modes)}"


@accepts({"type": ["string", "array"]})
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
    values = reader.read_values(MEMBER_KEYS)
    if "agent" not in values:
        reader.add_error("this member has no agent; add agent: NAME")
    return Member(**{"agent": "", **values})


PLANNED: tuple[Mode, ...] = ("orchestrate", "reflect")
OPTION_KEYS: Keys = {
    "max_iterations": Key(
        FieldReader.read_int, "an integer, 1 or greater", "the maximum number of iterations", "5", modes=("reflect",)
    ),
    "dispatch": Key(
        make_choice_reader("ask", "force"),
        "`ask` or `force`",
        "`force`: a [plan](teams.md#plans) that assigns nothing sends the request to all members, instead of failing",
        "`ask`",
        modes=PLANNED,
    ),
    "answer_directly": Key(
        FieldReader.read_bool,
        "true or false",
        "whether the lead may answer instead of planning",
        "true in orchestrate, false in reflect",
        modes=PLANNED,
    ),
    "participation": Key(
        make_choice_reader("any", "all"),
        "`any` or `all`",
        "`all`: the work is complete only after every member has been given a task",
        "`any`",
        modes=("reflect",),
    ),
    "checks": Key(
        read_commands,
        "a list of commands",
        "commands that must pass on a clean checkout of the work",
        "none",
        modes=("broadcast", "reflect", "collaborate"),
    ),
    "expects": Key(
        make_choice_reader("changes"), "`changes`", "the team must change files; if it changes none, it fails", "none"
    ),
    "adjust": Key(
        make_choice_reader("ask", "auto"),
        "`ask` or `auto`",
        "`auto`: proposed changes are applied to the next iteration",
        "`ask`",
        modes=("reflect",),
    ),
    "worker_timeout": Key(
        FieldReader.read_positive_number,
        "seconds",
        "the time limit for one member",
        "600",
        modes=("broadcast", "sequential", *PLANNED, "collaborate"),
    ),
    "collection_timeout": Key(
        FieldReader.read_positive_number,
        "seconds",
        "the time limit for all members together",
        "900",
        modes=("broadcast", *PLANNED),
    ),
    "termination": Key(
        partial(FieldReader.read_choice, words=TERMINATIONS, also=TERMINATIONS_ELSEWHERE),
        "`consensus`, `max_rounds` or `coordinator_decides`; `maxRounds` and `coordinatorDecides` are "
        "accepted too, and the key may be spelled `terminationMode`",
        "when a discussion ends",
        "`consensus`",
        modes=("discuss",),
    ),
    "max_rounds": Key(
        FieldReader.read_int, "an integer, 1 or greater", "the maximum number of rounds", "10", modes=("discuss",)
    ),
    "round_timeout": Key(
        FieldReader.read_positive_number, "seconds", "the time limit for a round", "300", modes=("discuss",)
    ),
    "worktrees": Key(
        make_choice_reader("shared", "team", "lead", "each"),
        "`shared`, `team`, `lead` or `each`",
        "which [checkout](teams.md#where-a-team-works) the team works in",
        "`shared`",
    ),
    "shared_context": Key(
        partial(FieldReader.read_text, allow_blank=True), "text", "text that every member gets", "none"
    ),
    "routing": Key(
        partial(FieldReader.read_text, allow_blank=True),
        "text",
        "text that the lead or the planner gets when it plans, to say who does what",
        "none",
        modes=(*PLANNED, "collaborate"),
    ),
    "prompts": Key(read_text_mapping, "a mapping of names to strings", "your own [prompt templates](teams.md#prompts)"),
    "choose": Key(
        make_choice_reader("checks", "judge", "person"),
        "`checks`, `judge` or `person`",
        "how the [best answer](teams.md#best-of-several) is chosen",
        "none",
        modes=("broadcast",),
    ),
    "keep": Key(
        make_choice_reader("last", "best"),
        "`last` or `best`",
        "the [iteration](teams.md#the-best-iteration) whose files are kept",
        "`last`",
        modes=("reflect",),
    ),
    "approve_plan": Key(
        make_choice_reader("lead", "person"),
        "`lead` or `person`",
        "`person`: the plan waits for your approval",
        "`lead`",
        modes=("collaborate",),
    ),
    "decide_by": Key(
        make_choice_reader("lead", "person"), "`lead` or `person`", "who decides if a vote is inconclusive", "`lead`"
    ),
    "review_by": Key(
        make_choice_reader("member", "person"),
        "`member` or `person`",
        "`person`: you review every step",
        "`member`",
        modes=("collaborate",),
    ),
    "vote": Key(
        FieldReader.read_single_line,
        "`majority`, `unanimous`, `weighted` or `quorum:N`",
        "the rule for [votes](decisions.md)",
        "`majority`",
    ),
    "vote_window": Key(FieldReader.read_positive_number, "seconds", "how long a vote is open", "120"),
    "adr": Key(
        FieldReader.read_bool,
        "true or false",
        "true: every decision is also written to a file in `docs/adr` on the result branch",
        "false",
        modes=("collaborate",),
    ),
    "lockout": Key(
        FieldReader.read_bool,
        "true or false",
        "true: if a step is not accepted, a member other than its author revises it",
        "false",
        modes=("collaborate",),
    ),
    "max_attempts": Key(
        FieldReader.read_int,
        "an integer, 1 or greater",
        "how many times a step is attempted",
        "2",
        modes=("collaborate",),
    ),
    "max_concurrent": Key(
        FieldReader.read_int,
        "an integer, 1 or greater",
        "how many members work at the same time",
        "all members; 4 in collaborate",
        modes=("broadcast", *PLANNED, "discuss", "collaborate"),
    ),
    "fresh": Key(
        FieldReader.read_bool,
        "true or false",
        "true: a member that gets another task begins a new conversation",
        "false",
        modes=("reflect",),
    ),
    "constraints": Key(
        FieldReader.read_texts,
        "a list of strings",
        "requirements for the planner, the owners and the reviewers; `podium run --constraint` adds more",
        "none",
        modes=("collaborate",),
    ),
    "needs": Key(
        FieldReader.read_comma_list,
        "a list of strings",
        "roles and capabilities that the work requires",
        "none",
        modes=("collaborate",),
    ),
    "fallback_models": Key(
        FieldReader.read_comma_list,
        "a list of models",
        "[fallback models](engines.md#fallback-models) for the lead, the members and the evaluator; an agent "
        "whose file lists its own uses those instead",
        "none",
    ),
}
KEYS: Keys = {
    "mode": Key(
        read_mode,
        "`broadcast`, `sequential`, `orchestrate`, `reflect`, `discuss` or `collaborate`; `orchestrator` is accepted "
        "as an alias for `orchestrate`, and `orchestrator-reflect` for `reflect`",
        "how the team works",
        "`discuss` if `termination` or `max_rounds` is given, otherwise `orchestrate`",
    ),
    "members": Key(
        read_members,
        "names, or mappings with `agent`, `name`, `role`, `capabilities`, `model`, `prompt` and `weight`",
        "the agents in the team",
        keys=MEMBER_KEYS,
    ),
    "evaluator": Key(
        read_agent_name,
        "an agent other than the lead",
        "the agent that judges the work",
        "none",
        modes=("broadcast", "reflect"),
    ),
    **OPTION_KEYS,
}
"""The keys of a team. A key that does not apply in every mode names the modes in which it has an effect."""
SPELLINGS = {"terminationMode": "termination", "termination_mode": "termination"}
