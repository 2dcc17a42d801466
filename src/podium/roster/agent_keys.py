"""Read the keys in the frontmatter of an agent's file, and build the agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import msgspec

from ..system import bounded_file
from ..values.agent import DEFAULT_REQUIRE, Advisors, Agent, Permissions, Router, Source
from ..values.field_reader import BUDGET_KEYS, FieldReader, Key, Keys, read_budget, to_camel_case
from ..values.hook import AGENT_HOOK_EVENTS
from ..values.key_schema import STRING, STRINGS, accepts
from ..values.located_yaml import ListNode, MappingNode, ScalarNode, quote_text, to_plain_value
from ..values.plain_text import join_words
from .agent_name import NAME_RULE, is_agent_name, read_agent_name, read_agent_names, resolve_agent_name, to_agent_name
from .team_keys import KEYS as TEAM_KEYS
from .team_keys import read_team

FORMATS = ("text", "markdown")
TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
ROUTER_KEYS: Keys = {
    "destinations": Key(read_agent_names),
    "fallback": Key(read_agent_name),
    "max_turns": Key(FieldReader.read_int),
}

PERMISSION_MODES = {"default": "", "plan": "plan", "dontAsk": "dont-ask", "dont-ask": "dont-ask"}
WIDER_MODES = ("acceptEdits", "accept-edits", "bypassPermissions", "bypass", "auto")

FOREIGN_KEYS = (
    "mcp_servers",
    "effort",
    "color",
    "initial_prompt",
    "background",
)
"""Keys that other programs use in agent files. They are stored with the agent and have no effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontmatterAgent:
    """An agent and its name; `agent` is None if the file has an error."""

    name: str
    agent: Agent | None


def read_keys(top: FieldReader, *, stem: str, prompt: str, description: str, source: Source) -> FrontmatterAgent:
    """Build the agent that the top-level mapping describes.

    `stem` and `description` are the defaults for a file without a name or a description.
    """
    below = dict.fromkeys(TEAM_KEYS, "team")
    fields = top.read_fields(("name", *KEYS, *FOREIGN_KEYS, "hooks"), also={"consult": "advisors"}, below=below)
    if "advisors" in fields and fields["advisors"].key == "consult":
        fields["advisors"].add_warning("consult is an alias of advisors; use advisors")
    values: dict[str, Any] = {name: key.read(fields[name]) for name, key in KEYS.items() if name in fields}
    other = {to_camel_case(key): read_foreign_key(fields[key]) for key in FOREIGN_KEYS if key in fields}
    if "hooks" in fields:
        other["hooks"] = read_agent_hooks(fields["hooks"])
    name, display_name = read_name(top, fields.get("name"), stem)
    reject_duplicate_destinations(fields)
    if top.context.has_error:
        return FrontmatterAgent(name=name, agent=None)
    values["description"] = values.get("description") or description
    identity: dict[str, Any] = {
        "name": name,
        "display_name": display_name,
        "source": source,
        "path": top.context.display_path,
    }
    return FrontmatterAgent(name=name, agent=Agent(prompt=prompt, other=other, **identity, **values))


def read_name(top: FieldReader, reader: FieldReader | None, stem: str) -> tuple[str, str]:
    """Return the agent's name and its display name, which is empty unless the name was converted.

    An invalid name is converted if the file was written for another program; otherwise it is an error.
    """
    if reader and not reader.text:
        reader.report_expected("a name (in quotes if it looks like a number, a date or a boolean)")
        return to_agent_name(stem), ""
    written = reader.read_single_line() if reader else stem
    if is_agent_name(written):
        return written, ""
    made = to_agent_name(written) or to_agent_name(stem)
    if top.context.foreign and made:
        return made, written
    right = f"use {made or 'another name'} ({NAME_RULE})"
    if reader:
        reader.add_error(f"invalid agent name {quote_text(written)}; {right}")
    else:
        message = f"invalid agent name {quote_text(written)}, which is taken from the file name; {right}"
        top.context.add_diagnostic("error", message)
    return made, ""


def reject_duplicate_destinations(fields: Mapping[str, FieldReader]) -> None:
    """Add an error if both `router` and `agents` list destinations."""
    router, agents = fields.get("router"), fields.get("agents")
    if router and agents and isinstance(router.node, MappingNode) and "destinations" in router.node.fields:
        line = agents.node.line
        router.add_error(f"destinations are listed here and under agents on line {line}; remove one of the lists")


@accepts({})
def read_foreign_key(reader: FieldReader) -> Any:
    """Return the value of a key that belongs to another program, and warn that it has no effect."""
    reader.add_warning("this key has no effect in Podium")
    return to_plain_value(reader.node)


@accepts({"type": "object"})
def read_agent_hooks(reader: FieldReader) -> Any:
    """Return the hooks for the agent's actions. Hooks from a repository are called only if the user trusts them."""
    from ..values.hook_keys import read_hooks  # imported here to keep start-up fast: few files have hooks

    found = read_hooks(reader, events=AGENT_HOOK_EVENTS, may_leave_sandbox=reader.context.is_yours)
    return msgspec.to_builtins(found)


@accepts(STRINGS)
def read_tools(reader: FieldReader) -> tuple[str, ...]:
    """Return the names of tools. `Agent(a, b)` is treated as `Agent(a)` and `Agent(b)`."""
    found: dict[str, None] = {}
    for word in reader.read_comma_list():
        if word.count("(") != word.count(")"):
            reader.add_error(
                f"{quote_text(word)} has an unmatched parenthesis; quote list entries that contain a comma"
            )
            break
        if word.startswith("Agent(") and word.endswith(")"):
            names = (name.strip() for name in word.removeprefix("Agent(").removesuffix(")").split(","))
            found |= {f"Agent({resolve_agent_name(reader, name)})": None for name in names if name}
        else:
            found[word] = None
    return tuple(found)


@accepts({"type": "object"})
def read_permissions(reader: FieldReader) -> Permissions:
    """Return the `allow`, `ask` and `deny` rules.

    `allow` rules have no effect, because agent files can only tighten permissions.
    """
    # Imported here to keep start-up fast: most files have no rules.
    from ..policy.rule_entry import KINDS, read_rule_lists

    fields = reader.read_fields(KINDS)
    if "allow" in fields:
        fields["allow"].add_warning("ignored: agent files can only tighten permissions")
    return read_rule_lists(fields)


@accepts(STRING)
def read_handoff(reader: FieldReader) -> str:
    """Return the name of the agent to hand off to. Lists are rejected: only one agent can give the final answer."""
    is_list = isinstance(reader.node, ListNode) or (isinstance(reader.node, ScalarNode) and "," in reader.node.raw)
    if is_list:
        reader.add_error("expected the name of one agent, got a list; only one agent can give the final answer")
        return ""
    return read_agent_name(reader)


@accepts({"type": "boolean"})
def read_router(reader: FieldReader) -> Router | bool:
    """Return the value of the `router` key: a router if the value is a mapping, or else a boolean.

    True means that the agent is a router for the agents in `agents`.
    """
    if isinstance(reader.node, ScalarNode) and reader.node.kind == "flag":
        return reader.read_bool()
    if not isinstance(reader.node, MappingNode):
        reader.report_expected("true or a mapping with destinations")
        return False
    return Router(**reader.read_values(ROUTER_KEYS))


@accepts(STRINGS)
def read_advisors(reader: FieldReader) -> Advisors | None:
    """Return advisors from a list of agents, or from a mapping that can also have `require` and `timeout`."""
    if not isinstance(reader.node, MappingNode):
        names = read_agent_names(reader)
        return Advisors(agents=names, require=DEFAULT_REQUIRE) if names else None
    fields = reader.read_fields(ADVISORS_KEYS)
    names = read_agent_names(fields["agents"]) if "agents" in fields else ()
    if not names:
        reader.add_error("no advisors are listed; add agents: [NAME]")
    given: dict[str, Any] = {"agents": names, "require": DEFAULT_REQUIRE}
    if "require" in fields:
        given["require"] = required = read_required_count(fields["require"])
        if isinstance(required, int) and required > len(names):
            advice = f"set require to {len(names)} or less"
            fields["require"].add_error(f"requires {required} of {len(names)} advisors to succeed; {advice}")
    if "timeout" in fields:
        given["timeout"] = fields["timeout"].read_positive_number()
    return Advisors(**given)


@accepts({"anyOf": [{"enum": ["all", "any", "none"]}, {"type": "integer", "minimum": 0}]})
def read_required_count(reader: FieldReader) -> Literal["all", "any", "none"] | int:
    """Return how many advisors must succeed."""
    if isinstance(reader.node, ScalarNode) and reader.node.kind == "whole":
        return reader.read_int(least=0)
    word = to_plain_value(reader.node)
    if word not in ("all", "any", "none"):
        reader.report_expected("all, any, none or a number")
    return cast(Literal["all", "any", "none"], word)


@accepts({"type": ["string", "object"]})
def read_data_format(reader: FieldReader) -> str | dict[str, Any]:
    """Return `text`, `markdown` or a JSON schema. The schema can be in a separate file."""
    if isinstance(reader.node, MappingNode):
        return check_schema_type(reader, to_plain_value(reader.node))
    word = reader.read_text(allow_blank=True)
    if word.endswith(".json"):
        return read_schema_file(reader, word)
    if word and word not in FORMATS:
        reader.add_error(f"unknown value {quote_text(word)}; expected text, markdown, a JSON schema or a .json file")
    return word or "text"


def read_schema_file(reader: FieldReader, file_name: str) -> dict[str, Any]:
    """Read a schema from a file. `file_name` is relative to the agent's file.

    If the agent's file is in a repository, the schema must be in the repository too.
    """
    try:
        found = msgspec.json.decode(
            bounded_file.read_text_file(reader.context.file.parent / file_name, root=reader.context.root)
        )
    except bounded_file.UnreadableFile as error:
        reader.add_error(f"{quote_text(file_name)} {error}")
    except (msgspec.DecodeError, RecursionError) as error:
        reader.add_error(f"{quote_text(file_name)} is not valid JSON: {error}")
    else:
        if isinstance(found, dict):
            return check_schema_type(reader, found)
        reader.add_error(f"{quote_text(file_name)} is not a JSON schema; expected a JSON object")
    return {}


def check_schema_type(reader: FieldReader, found: dict[str, Any]) -> dict[str, Any]:
    """Return `found` after checking its `type`. The rest of the schema is checked when a value is validated."""
    given = found.get("type", "object")
    for kind in given if isinstance(given, list) else [given]:
        if kind not in TYPES:
            reader.add_error(f"unknown JSON schema type {quote_text(str(kind))}; expected one of {', '.join(TYPES)}")
    return found


@accepts({"enum": [*PERMISSION_MODES, *WIDER_MODES]})
def read_permission_mode(reader: FieldReader) -> str:
    """Return the permission mode; empty means the run's mode.

    A mode that could permit more than the run's mode is an error. If the file was written for another program, such a
    mode is ignored with a warning.
    """
    spelled = reader.read_text(join_words(list(PERMISSION_MODES), last="or"))
    if spelled in PERMISSION_MODES:
        return PERMISSION_MODES[spelled]
    if spelled in WIDER_MODES:
        message = "refused: agent files can only tighten permissions; use plan or dontAsk, or set the mode of the run"
        (reader.add_warning if reader.context.foreign else reader.add_error)(message)
    elif spelled:
        expected = join_words([*PERMISSION_MODES], last="or")
        reader.add_error(f"unknown value {quote_text(spelled)}; expected {expected}")
    return ""


@accepts({"enum": ["project", "user", "local"]})
def read_memory(reader: FieldReader) -> str:
    """Return the place of the agent's memory: `project` or `user`.

    The value `local` is treated as `project`, with a warning. In other programs, `local` means that the memory is not
    committed to git.
    """
    if reader.text == "local":
        reader.add_warning(
            '"local" is treated as "project"; to keep the memory out of git, add .podium/memory to .gitignore'
        )
        return "project"
    return reader.read_choice(words=("project", "user"))


ADVISORS_KEYS: Keys = {
    "agents": Key(read_agent_names),
    "require": Key(read_required_count),
    "timeout": Key(FieldReader.read_positive_number),
}
KEYS: Keys = {
    "description": Key(
        FieldReader.read_single_line,
        "one line, shown to people, team leads and routers",
        default="the first sentence of the prompt",
    ),
    "model": Key(
        FieldReader.read_single_line,
        (
            "`provider:model`, a [model role](settings.md#models-and-roles) from the settings, an alias such "
            "as `sonnet`, or `inherit`"
        ),
        default="the model from the settings",
    ),
    "fallback_models": Key(
        FieldReader.read_comma_list,
        (
            "models that are tried in order if `model` is not available or fails, see [Fallback "
            "models](engines.md#fallback-models)"
        ),
        default="the `fallbackModels` of its team, if any",
    ),
    "engine": Key(
        FieldReader.read_single_line,
        (
            "the [engine](engines.md) that produces the agent's replies: `model`, `scripted`, `rehearsal`, a "
            "[coding agent](engines.md#coding-agents) such as `goose`, or the name of an engine that your "
            "program or a [plug-in](plugins.md) provides"
        ),
        default="`model`",
    ),
    "tools": Key(
        read_tools,
        (
            "[tools](tools.md), as a list or a comma-separated string; `Agent(name)` in `tools` has the same "
            "effect as `name` in `agents`"
        ),
        default="the read-only tools and [a few others](tools.md)",
    ),
    "disallowed_tools": Key(read_tools, "tools that are taken away from `tools`", default="none"),
    "role": Key(
        FieldReader.read_single_line,
        (
            "a short description of what the agent does in a team, shown to the lead during planning; not "
            "related to model roles"
        ),
        default="none",
    ),
    "capabilities": Key(
        FieldReader.read_comma_list,
        "what the agent can do, shown to the lead during planning as the member's expertise",
        default="none",
    ),
    "permissions": Key(
        read_permissions,
        (
            "lists of [rules](permissions.md#rules) under `ask` and `deny`; each rule is a string or `{rule, "
            "match, not_match}`. `allow` is ignored with a warning, because an agent's file can only make the"
            " rules stricter"
        ),
        default="none",
    ),
    "agents": Key(read_agent_names, "agents offered as tools; with `router: true`, the destinations", default="none"),
    "handoff": Key(
        read_handoff,
        "the agent that gives the final answer instead of this one; a single name, not a list",
        default="none",
    ),
    "router": Key(
        read_router,
        (
            "`true`, or a mapping with `destinations`, `fallback` (an agent) and `max_turns`, the maximum "
            "number of model calls for one choice (default 1); if it is greater than 1, the router can use "
            "the tools that its file lists before it chooses"
        ),
        default="none",
        keys=ROUTER_KEYS,
    ),
    "advisors": Key(
        read_advisors,
        (
            "a list of agents, or a mapping with `agents`, `require` (`none`, `any`, `all` or a number; "
            "default `none`) and `timeout` (in seconds; default 120); `consult` is accepted as an alias for "
            "`advisors`, with a warning"
        ),
        default="none",
        keys=ADVISORS_KEYS,
    ),
    "team": Key(read_team, "makes the agent the lead of a [team](teams.md); see below", default="none", keys=TEAM_KEYS),
    "input": Key(
        read_data_format,
        (
            "`text`, `markdown`, a JSON schema, or the path of a `.json` file that contains a schema, "
            "relative to the agent's folder"
        ),
        default="`text`",
    ),
    "output": Key(read_data_format, "as `input`", default="`text`"),
    "max_turns": Key(FieldReader.read_int, "maximum number of model calls per request to the agent", default="50"),
    "max_tokens": Key(FieldReader.read_int, "maximum length of each reply, in tokens", default="none"),
    "expects": Key(
        partial(FieldReader.read_choice, words=("changes",)),
        (
            "`changes`: the agent must change files. If it changes none, it fails. Only what a commit of its "
            "work would contain counts, so caches such as `__pycache__` do not"
        ),
        default="none",
    ),
    "timeout": Key(FieldReader.read_positive_number, "maximum time in seconds", default="none"),
    "budget": Key(
        read_budget,
        "limits: a mapping with `usd`, `tokens`, `seconds`, `turns` and `files_changed`",
        default="the budget of the model role that `model` refers to, if any",
        keys=BUDGET_KEYS,
    ),
    "permission_mode": Key(
        read_permission_mode,
        (
            "`plan`: neither this agent nor the agents that it starts can change anything. `dontAsk`: "
            "permission requests are denied. `acceptEdits` and `bypassPermissions` are not accepted, because "
            "an agent's file can only make the rules stricter. They cause an error in Podium's own agent "
            "files, and a warning in the agent files of other programs"
        ),
        default="the mode of the run",
    ),
    "skills": Key(
        FieldReader.read_comma_list,
        (
            "[skills](skills.md) that are included in the agent's prompt from the start. An agent with this "
            "key can also load other skills, even if its `tools` key does not list `Skill`"
        ),
        default="none",
    ),
    "pattern": Key(
        FieldReader.read_single_line,
        (
            "the name of a [pattern](patterns.md#writing-a-pattern) from a [plug-in](plugins.md) or your own "
            "program: a function that handles the agent's requests in place of Podium's default"
        ),
        default="none",
    ),
    "memory": Key(
        read_memory,
        "`project` or `user`: where the agent keeps notes for its later runs, see [Memory](memory.md)",
        default="none",
    ),
    "isolation": Key(
        partial(FieldReader.read_choice, words=("shared", "worktree", "process")),
        (
            "`shared`: the agent works in the run's own checkout. `worktree` or `process`: whenever another "
            "agent starts it, it runs as a [worker](workers.md#agents-that-delegate) with its own checkout "
            "and process"
        ),
        default="`shared`",
    ),
}
"""The keys of an agent. `name` is read separately, because its default is the file name."""
FILE_KEYS: Keys = {
    "name": Key(
        FieldReader.read_single_line,
        "lower-case letters, digits and hyphens; at most 64 characters, not starting with a hyphen",
        default="the file's name without `.md` or `.agent.md`",
    ),
    **KEYS,
    "hooks": Key(
        read_agent_hooks,
        "commands that run before or after the agent's tool calls, or when the agent asks for permission, see "
        "[Hooks](hooks.md); hooks in a repository's agent files run only after you "
        "[trust](hooks.md#hooks-in-a-repository) them",
        default="none",
    ),
    **{
        key: Key(
            read_foreign_key, "a key that other programs use; Podium stores it with a warning, and it has no effect"
        )
        for key in FOREIGN_KEYS
    },
}
"""All keys of an agent's file, in the order of the documentation."""
