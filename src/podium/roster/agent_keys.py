"""The keys of an agent's file: which there are, and what the value of each becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from ..values.agent import Advisors, Agent, Budget, Permissions, Router, Source
from ..values.errors import Mistake
from ..values.located_yaml import ListNode, MappingNode, ScalarNode, quote_text, to_plain_value
from . import bounded_file
from .agent_field import ValueReader, to_camel_case
from .agent_name import NAME_RULE, is_agent_name, to_agent_name
from .team_keys import read_team

if TYPE_CHECKING:
    from ..policy.rule_entry import Kind

KINDS: tuple[Kind, ...] = ("allow", "ask", "deny")
FORMATS = ("text", "markdown")
TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
ROUTER_KEYS = ("destinations", "fallback", "max_turns")
ADVISORS_KEYS = ("agents", "require", "timeout")

FOREIGN_KEYS = (
    "skills",
    "mcp_servers",
    "effort",
    "color",
    "initial_prompt",
    "permission_mode",
    "background",
    "memory",
    "hooks",
)
"""Keys of other programs' agent files, which are kept for those who may come to act on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontmatterAgent:
    """An agent by its name; no agent when its page has an error."""

    name: str
    agent: Agent | None


def read_keys(top: ValueReader, *, stem: str, prompt: str, description: str, source: Source) -> FrontmatterAgent:
    """The agent that the top-level mapping describes.

    `stem` and `description` are what holds where the file gives no name and no description.
    """
    fields = top.read_fields(("name", *READERS, *FOREIGN_KEYS), also={"consult": "advisors"})
    if "advisors" in fields and fields["advisors"].key == "consult":
        fields["advisors"].add_warning("consult is read as advisors; advisors would be right")
    values: dict[str, Any] = {key: read(fields[key]) for key, read in READERS.items() if key in fields}
    other = {to_camel_case(key): read_foreign_key(fields[key]) for key in FOREIGN_KEYS if key in fields}
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


def read_name(top: ValueReader, reader: ValueReader | None, stem: str) -> tuple[str, str]:
    """The agent's name and, where that had to be made from another, the other as display name."""
    if reader and not (isinstance(reader.node, ScalarNode) and reader.node.kind == "text" and reader.node.raw.strip()):
        reader.report_expected("a name (in quotes where it looks like something else)")
        return to_agent_name(stem), ""
    written = reader.read_single_line() if reader else stem
    if is_agent_name(written):
        return written, ""
    made = to_agent_name(written) or to_agent_name(stem)
    if top.context.foreign and made:
        return made, written
    right = f"{made or 'a name'} would be right ({NAME_RULE})"
    if reader:
        reader.add_error(f"{quote_text(written)} cannot be a name; {right}")
    else:
        top.context.add_diagnostic("error", f"the file's name gives the agent's name {quote_text(written)}; {right}")
    return made, ""


def reject_duplicate_destinations(fields: Mapping[str, ValueReader]) -> None:
    """A router's destinations stand in one place: in `router` or in `agents`."""
    router, agents = fields.get("router"), fields.get("agents")
    if router and agents and isinstance(router.node, MappingNode) and "destinations" in router.node.fields:
        line = agents.node.line
        router.add_error(f"destinations stand here and agents on line {line}; one list of destinations would be right")


def read_foreign_key(reader: ValueReader) -> Any:
    """The value of a key that belongs to another program."""
    reader.add_warning("is kept, but not acted on")
    return to_plain_value(reader.node)


def read_tools(reader: ValueReader) -> tuple[str, ...]:
    """Tools by name; `Agent(a, b)` is read as `Agent(a)` and `Agent(b)`."""
    found: dict[str, None] = {}
    for word in reader.read_comma_list():
        if word.count("(") != word.count(")"):
            reader.add_error(
                f"{quote_text(word)} has no matching parenthesis; an entry with a comma needs quotes in a list"
            )
            break
        if word.startswith("Agent(") and word.endswith(")"):
            names = (name.strip() for name in word.removeprefix("Agent(").removesuffix(")").split(","))
            found |= {f"Agent({reader.resolve_agent_name(name)})": None for name in names if name}
        else:
            found[word] = None
    return tuple(found)


def read_permissions(reader: ValueReader) -> Permissions:
    """Rules by what they decide; those that allow are kept, and never hold."""
    fields = reader.read_fields(KINDS)
    if "allow" in fields:
        fields["allow"].add_warning("is ignored: agent files can only tighten")
    return Permissions(**{kind: read_rules(fields[kind], kind) for kind in KINDS if kind in fields})


def read_rules(reader: ValueReader, kind: Kind) -> tuple[str, ...]:
    """Texts of rules, each of which was tried with its examples."""
    if isinstance(reader.node, MappingNode):
        reader.report_expected("a list of rules")
        return ()
    # Only those who have rules pay for what reads them.
    from ..policy.rule_entry import parse_verified_entry

    found = []
    for item in reader.iter_items():
        try:
            entry = parse_verified_entry(item.node, kind)
        except Mistake as mistake:
            item.add_error(str(mistake))
        else:
            found.append(entry.rule)
            reader.context.lines[f"permissions.{kind}.{entry.rule}"] = entry.line
    return tuple(found)


def read_handoff(reader: ValueReader) -> str:
    """One agent; a list is refused, because only one can give the final answer."""
    is_list = isinstance(reader.node, ListNode) or (isinstance(reader.node, ScalarNode) and "," in reader.node.raw)
    if is_list:
        reader.add_error("a list stands here; one agent's name would be right, because only one gives the final answer")
        return ""
    return reader.read_agent_name()


def read_router(reader: ValueReader) -> Router | bool:
    """True where `agents` are the destinations."""
    if isinstance(reader.node, ScalarNode) and reader.node.kind == "flag":
        return reader.read_bool()
    if not isinstance(reader.node, MappingNode):
        reader.report_expected("true, or a mapping with destinations,")
        return False
    fields = reader.read_fields(ROUTER_KEYS)
    return Router(
        destinations=fields["destinations"].read_agent_names() if "destinations" in fields else (),
        fallback=fields["fallback"].read_agent_name() if "fallback" in fields else None,
        max_turns=fields["max_turns"].read_int() if "max_turns" in fields else 1,
    )


def read_advisors(reader: ValueReader) -> Advisors | None:
    """A list of agents, or a mapping that also says how many of them have to succeed, and how fast."""
    if not isinstance(reader.node, MappingNode):
        names = reader.read_agent_names()
        return Advisors(agents=names) if names else None
    fields = reader.read_fields(ADVISORS_KEYS)
    names = fields["agents"].read_agent_names() if "agents" in fields else ()
    if not names:
        reader.add_error("this mapping names no advisors; agents: [NAME] would be right")
    given: dict[str, Any] = {"agents": names}
    if "require" in fields:
        given["require"] = read_required_count(fields["require"], len(names))
    if "timeout" in fields:
        given["timeout"] = fields["timeout"].read_positive_number()
    return Advisors(**given)


def read_required_count(reader: ValueReader, count: int) -> Literal["all", "any", "none"] | int:
    """How many advisors have to succeed."""
    if isinstance(reader.node, ScalarNode) and reader.node.kind == "whole":
        number = reader.read_int(least=0)
        if number > count:
            reader.add_error(f"{number} of {count} advisors cannot succeed; a number up to {count} would be right")
        return number
    word = to_plain_value(reader.node)
    if word not in ("all", "any", "none"):
        reader.report_expected("all, any, none or a number")
    return cast(Literal["all", "any", "none"], word)


def read_data_format(reader: ValueReader) -> str | dict[str, Any]:
    """`text`, `markdown`, a JSON schema, or the file that has one."""
    if isinstance(reader.node, MappingNode):
        return check_schema_type(reader, to_plain_value(reader.node))
    word = reader.read_text()
    if word.endswith(".json"):
        return read_schema_file(reader, word)
    if word and word not in FORMATS:
        reader.add_error(
            f"{quote_text(word)} is not known; text, markdown, a JSON schema or a .json file would be right"
        )
    return word or "text"


def read_schema_file(reader: ValueReader, file_name: str) -> dict[str, Any]:
    """The schema in a file beside the agent's own; a repository's file never leads out of it."""
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
        reader.add_error(f"{quote_text(file_name)} is not a JSON schema; a JSON object would be right")
    return {}


def check_schema_type(reader: ValueReader, found: dict[str, Any]) -> dict[str, Any]:
    """`found`, after a look at its type; the rest is for those who validate with it."""
    given = found.get("type", "object")
    for kind in given if isinstance(given, list) else [given]:
        if kind not in TYPES:
            reader.add_error(
                f"{quote_text(str(kind))} is no type of a JSON schema; one of {', '.join(TYPES)} would be right"
            )
    return found


def read_budget(reader: ValueReader) -> Budget:
    """Limits; one that is not named does not exist."""
    fields = reader.read_fields(Budget.__struct_fields__)
    given: dict[str, Any] = {
        key: field.read_positive_number() for key, field in fields.items() if key in ("usd", "seconds")
    }
    given |= {key: field.read_int() for key, field in fields.items() if key in ("tokens", "turns")}
    if "files_changed" in fields:
        given["files_changed"] = fields["files_changed"].read_int(least=0)
    return Budget(**given)


READERS: Mapping[str, Callable[[ValueReader], object]] = {
    "description": ValueReader.read_single_line,
    "model": ValueReader.read_single_line,
    "engine": ValueReader.read_single_line,
    "tools": read_tools,
    "disallowed_tools": read_tools,
    "role": ValueReader.read_single_line,
    "capabilities": ValueReader.read_comma_list,
    "permissions": read_permissions,
    "agents": ValueReader.read_agent_names,
    "handoff": read_handoff,
    "router": read_router,
    "advisors": read_advisors,
    "team": read_team,
    "input": read_data_format,
    "output": read_data_format,
    "max_turns": ValueReader.read_int,
    "timeout": ValueReader.read_positive_number,
    "budget": read_budget,
    "isolation": partial(ValueReader.read_choice, words=("shared", "worktree", "process")),
}
"""How the value under each key is read; the name is read apart, because it depends on the file."""
