"""Read the keys in the frontmatter of an agent's file, and build the agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import msgspec

from ..system import bounded_file
from ..values.agent import DEFAULT_REQUIRE, Advisors, Agent, Permissions, Router, Source
from ..values.field_reader import FieldReader, Readers, read_budget, to_camel_case
from ..values.hook import AGENT_HOOK_EVENTS
from ..values.located_yaml import ListNode, MappingNode, ScalarNode, quote_text, to_plain_value
from ..values.plain_text import join_words
from .agent_name import NAME_RULE, is_agent_name, read_agent_name, read_agent_names, resolve_agent_name, to_agent_name
from .team_keys import KEYS as TEAM_KEYS
from .team_keys import read_team

FORMATS = ("text", "markdown")
TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
ROUTER_READERS: Readers = {
    "destinations": read_agent_names,
    "fallback": read_agent_name,
    "max_turns": FieldReader.read_int,
}
ADVISORS_KEYS = ("agents", "require", "timeout")

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
    fields = top.read_fields(("name", *READERS, *FOREIGN_KEYS, "hooks"), also={"consult": "advisors"}, below=below)
    if "advisors" in fields and fields["advisors"].key == "consult":
        fields["advisors"].add_warning("consult is an alias of advisors; use advisors")
    values: dict[str, Any] = {key: read(fields[key]) for key, read in READERS.items() if key in fields}
    other = {to_camel_case(key): read_foreign_key(fields[key]) for key in FOREIGN_KEYS if key in fields}
    if "hooks" in fields:
        other["hooks"] = read_agent_hooks(fields["hooks"], source)
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


def read_foreign_key(reader: FieldReader) -> Any:
    """Return the value of a key that belongs to another program, and warn that it has no effect."""
    reader.add_warning("this key has no effect in Podium")
    return to_plain_value(reader.node)


def read_agent_hooks(reader: FieldReader, source: Source) -> Any:
    """Return the hooks for the agent's actions. Hooks from a repository are called only if the user trusts them."""
    from ..values.hook_keys import read_hooks  # imported here to keep start-up fast: few files have hooks

    found = read_hooks(reader, events=AGENT_HOOK_EVENTS, may_leave_sandbox=source == "user")
    return msgspec.to_builtins(found)


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


def read_handoff(reader: FieldReader) -> str:
    """Return the name of the agent to hand off to. Lists are rejected: only one agent can give the final answer."""
    is_list = isinstance(reader.node, ListNode) or (isinstance(reader.node, ScalarNode) and "," in reader.node.raw)
    if is_list:
        reader.add_error("expected the name of one agent, got a list; only one agent can give the final answer")
        return ""
    return read_agent_name(reader)


def read_router(reader: FieldReader) -> Router | bool:
    """Return the value of the `router` key: a router if the value is a mapping, or else a boolean.

    True means that the agent is a router for the agents in `agents`.
    """
    if isinstance(reader.node, ScalarNode) and reader.node.kind == "flag":
        return reader.read_bool()
    if not isinstance(reader.node, MappingNode):
        reader.report_expected("true or a mapping with destinations")
        return False
    return Router(**reader.read_values(ROUTER_READERS))


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
        given["require"] = read_required_count(fields["require"], len(names))
    if "timeout" in fields:
        given["timeout"] = fields["timeout"].read_positive_number()
    return Advisors(**given)


def read_required_count(reader: FieldReader, count: int) -> Literal["all", "any", "none"] | int:
    """Return how many advisors must succeed."""
    if isinstance(reader.node, ScalarNode) and reader.node.kind == "whole":
        number = reader.read_int(least=0)
        if number > count:
            reader.add_error(f"requires {number} of {count} advisors to succeed; set require to {count} or less")
        return number
    word = to_plain_value(reader.node)
    if word not in ("all", "any", "none"):
        reader.report_expected("all, any, none or a number")
    return cast(Literal["all", "any", "none"], word)


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


READERS: Readers = {
    "description": FieldReader.read_single_line,
    "model": FieldReader.read_single_line,
    "fallback_models": FieldReader.read_comma_list,
    "engine": FieldReader.read_single_line,
    "tools": read_tools,
    "disallowed_tools": read_tools,
    "role": FieldReader.read_single_line,
    "capabilities": FieldReader.read_comma_list,
    "permissions": read_permissions,
    "agents": read_agent_names,
    "handoff": read_handoff,
    "router": read_router,
    "advisors": read_advisors,
    "team": read_team,
    "input": read_data_format,
    "output": read_data_format,
    "max_turns": FieldReader.read_int,
    "max_tokens": FieldReader.read_int,
    "expects": partial(FieldReader.read_choice, words=("changes",)),
    "timeout": FieldReader.read_positive_number,
    "budget": read_budget,
    "permission_mode": read_permission_mode,
    "skills": FieldReader.read_comma_list,
    "pattern": FieldReader.read_single_line,
    "memory": read_memory,
    "isolation": partial(FieldReader.read_choice, words=("shared", "worktree", "process")),
}
"""The reader for each key. `name` is read separately, because its default is the file name."""
