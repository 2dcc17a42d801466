"""Read the keys in the frontmatter of an agent's file, and build the agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import msgspec

from ..policy.rule_keys import RULE_KINDS
from ..system import whole_file as bounded_file
from ..values.agent import DEFAULT_REQUIRE, Advisors, Agent, Permissions, Router, Source
from ..values.field_reader import FieldReader, to_camel_case
from ..values.hook import AGENT_HOOK_EVENTS
from ..values.json import JsonSchema
from ..values.key import Key
from ..values.key_schema import STRING, STRINGS, accepts
from ..values.located_yaml import ListNode, MappingNode, ScalarNode, quote_text, to_plain_value
from ..values.plain_text import join_words
from ..values.struct_reader import FileKey, Keys, Reader, list_keys, read_each, read_values
from .agent_name import NAME_RULE, is_agent_name, read_agent_name, read_agent_names, resolve_agent_name, to_agent_name
from .team_keys import KINDS as TEAM_KINDS
from .team_keys import TEAM_KEYS, read_team

FORMATS = ("text", "markdown")
TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
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
    fields = top.read_fields(KEYS, also={"consult": "advisors"}, below=dict.fromkeys(TEAM_KEYS, "team"))
    if "advisors" in fields and fields["advisors"].key == "consult":
        fields["advisors"].add_warning("consult is an alias of advisors; use advisors")
    values = read_each({key: field for key, field in fields.items() if key != "name"}, AGENT_KEYS)
    other = {to_camel_case(key): value for key, value in read_each(fields, OTHER_KEYS).items()}
    name, display_name = _read_name(top, fields.get("name"), stem)
    _reject_duplicate_destinations(fields)
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


def _read_name(top: FieldReader, reader: FieldReader | None, stem: str) -> tuple[str, str]:
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


def _reject_duplicate_destinations(fields: Mapping[str, FieldReader]) -> None:
    """Add an error if both `router` and `agents` list destinations."""
    router, agents = fields.get("router"), fields.get("agents")
    if router and agents and isinstance(router.node, MappingNode) and "destinations" in router.node.fields:
        line = agents.node.line
        router.add_error(f"destinations are listed here and under agents on line {line}; remove one of the lists")


@accepts({})
def _read_foreign_key(reader: FieldReader) -> Any:
    """Return the value of a key that belongs to another program, and warn that it has no effect."""
    reader.add_warning("this key has no effect in Podium")
    return to_plain_value(reader.node)


@accepts({"type": "object"})
def read_agent_hooks(reader: FieldReader) -> Any:
    """Return the hooks for the agent's actions. Hooks from a repository are called only if the user trusts them."""
    from ..values.hook_keys import read_hooks  # imported here to keep start-up fast: few files have hooks

    found = read_hooks(reader, events=AGENT_HOOK_EVENTS)
    return msgspec.to_builtins(found)


@accepts(STRINGS)
def _read_tools(reader: FieldReader) -> tuple[str, ...]:
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
def _read_permissions(reader: FieldReader) -> Permissions:
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
def _read_handoff(reader: FieldReader) -> str:
    """Return the name of the agent to hand off to. Lists are rejected: only one agent can give the final answer."""
    is_list = isinstance(reader.node, ListNode) or (isinstance(reader.node, ScalarNode) and "," in reader.node.raw)
    if is_list:
        reader.add_error("expected the name of one agent, got a list; only one agent can give the final answer")
        return ""
    return read_agent_name(reader)


@accepts({"type": "boolean"})
def _read_router(reader: FieldReader) -> Router | bool:
    """Return the value of the `router` key: a router if the value is a mapping, or else a boolean.

    True means that the agent is a router for the agents in `agents`.
    """
    if isinstance(reader.node, ScalarNode) and reader.node.kind == "flag":
        return reader.read_bool()
    if not isinstance(reader.node, MappingNode):
        reader.report_expected("true or a mapping with destinations")
        return False
    return Router(**read_values(reader, ROUTER_KEYS))


@accepts(STRINGS)
def _read_advisors(reader: FieldReader) -> Advisors | None:
    """Return advisors from a list of agents, or from a mapping that can also have `require` and `timeout`."""
    if not isinstance(reader.node, MappingNode):
        names = read_agent_names(reader)
        return Advisors(agents=names, require=DEFAULT_REQUIRE) if names else None
    fields = reader.read_fields(ADVISORS_KEYS)
    names = read_agent_names(fields["agents"]) if "agents" in fields else ()
    if not names:
        reader.add_error("no advisors are listed; add agents: [NAME]")
    given = read_each({key: field for key, field in fields.items() if key != "agents"}, ADVISORS_KEYS)
    required = given.get("require")
    if isinstance(required, int) and required > len(names):
        advice = f"set require to {len(names)} or less"
        fields["require"].add_error(f"requires {required} of {len(names)} advisors to succeed; {advice}")
    return Advisors(**{"agents": names, "require": DEFAULT_REQUIRE, **given})


@accepts({"anyOf": [{"enum": ["all", "any", "none"]}, {"type": "integer", "minimum": 0}]})
def _read_required_count(reader: FieldReader) -> Literal["all", "any", "none"] | int:
    """Return how many advisors must succeed."""
    if isinstance(reader.node, ScalarNode) and reader.node.kind == "whole":
        return reader.read_int(least=0)
    word = to_plain_value(reader.node)
    if word not in ("all", "any", "none"):
        reader.report_expected("all, any, none or a number")
    return cast(Literal["all", "any", "none"], word)


@accepts({"type": ["string", "object"]})
def _read_data_format(reader: FieldReader) -> str | JsonSchema:
    """Return `text`, `markdown` or a JSON schema. The schema can be in a separate file."""
    if isinstance(reader.node, MappingNode):
        return _check_schema_type(reader, to_plain_value(reader.node))
    word = reader.read_text(allow_blank=True)
    if word.endswith(".json"):
        return _read_schema_file(reader, word)
    if word and word not in FORMATS:
        reader.add_error(f"unknown value {quote_text(word)}; expected text, markdown, a JSON schema or a .json file")
    return word or "text"


def _read_schema_file(reader: FieldReader, file_name: str) -> JsonSchema:
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
            return _check_schema_type(reader, found)
        reader.add_error(f"{quote_text(file_name)} is not a JSON schema; expected a JSON object")
    return {}


def _check_schema_type(reader: FieldReader, found: JsonSchema) -> JsonSchema:
    """Return `found` after checking its `type`. The rest of the schema is checked when a value is validated."""
    given = found.get("type", "object")
    for kind in given if isinstance(given, list) else [given]:
        if kind not in TYPES:
            reader.add_error(f"unknown JSON schema type {quote_text(str(kind))}; expected one of {', '.join(TYPES)}")
    return found


@accepts({"enum": [*PERMISSION_MODES, *WIDER_MODES]})
def _read_permission_mode(reader: FieldReader) -> str:
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
def _read_memory(reader: FieldReader) -> str:
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


KINDS: Mapping[str, Reader] = {
    **TEAM_KINDS,
    **RULE_KINDS,
    "tools": _read_tools,
    "agent permissions": _read_permissions,
    "handoff": _read_handoff,
    "router": _read_router,
    "advisors": _read_advisors,
    "required count": _read_required_count,
    "team": read_team,
    "data format": _read_data_format,
    "permission mode": _read_permission_mode,
    "memory": _read_memory,
}
ROUTER_KEYS = list_keys(Router, KINDS)
ADVISORS_KEYS = list_keys(Advisors, KINDS)
AGENT_KEYS = list_keys(Agent, KINDS)
_HOOKS = Key(
    "commands that run before or after the agent's tool calls, or when the agent asks for permission, see "
    "[Hooks](hooks.md); hooks in a repository's agent files run only after you [trust](hooks.md#hooks-in-a-repository) "
    "them",
    scope="trust",
)
_FOREIGN = Key("a key that other programs use; Podium stores it with a warning, and it has no effect")
OTHER_KEYS: Keys = {
    "hooks": FileKey(field="hooks", read=read_agent_hooks, key=_HOOKS, default="none"),
    **{name: FileKey(field=name, read=_read_foreign_key, key=_FOREIGN) for name in FOREIGN_KEYS},
}
"""The keys whose values are stored with the agent under `other`."""
KEYS: Keys = {**AGENT_KEYS, "team": msgspec.structs.replace(AGENT_KEYS["team"], keys=TEAM_KEYS), **OTHER_KEYS}
"""All keys of an agent's file."""
