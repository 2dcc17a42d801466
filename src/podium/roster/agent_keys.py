"""The keys of an agent's file: which there are, and what the value of each becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from ..values.agent import Advisors, Agent, Budget, Permissions, Router, Source
from ..values.errors import Mistake
from ..values.located_yaml import Fields, Items, Scalar, plain, quoted
from . import bounded_file
from .agent_field import Slot, camel
from .agent_name import RULE, is_name, slug
from .team_keys import team

if TYPE_CHECKING:
    from ..policy.rule_entry import Kind

KINDS: tuple[Kind, ...] = ("allow", "ask", "deny")
FORMATS = ("text", "markdown")
TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
ROUTER_KEYS = ("destinations", "fallback", "max_turns")
ADVISORS_KEYS = ("agents", "require", "timeout")

ELSEWHERE = (
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
class Described:
    """An agent by its name; no agent when its page has an error."""

    name: str
    agent: Agent | None


def read_keys(top: Slot, *, stem: str, prompt: str, description: str, source: Source) -> Described:
    """The agent that the top-level mapping describes.

    `stem` and `description` are what holds where the file gives no name and no description.
    """
    slots = top.fields(("name", *READERS, *ELSEWHERE), also={"consult": "advisors"})
    if "advisors" in slots and slots["advisors"].key == "consult":
        slots["advisors"].warn("consult is read as advisors; advisors would be right")
    values: dict[str, Any] = {key: read(slots[key]) for key, read in READERS.items() if key in slots}
    other = {camel(key): kept(slots[key]) for key in ELSEWHERE if key in slots}
    name, display_name = named(top, slots.get("name"), stem)
    reject_two_lists(slots)
    if top.page.has_error:
        return Described(name=name, agent=None)
    values["description"] = values.get("description") or description
    identity: dict[str, Any] = {"name": name, "display_name": display_name, "source": source, "path": top.page.path}
    return Described(name=name, agent=Agent(prompt=prompt, other=other, **identity, **values))


def named(top: Slot, slot: Slot | None, stem: str) -> tuple[str, str]:
    """The agent's name and, where that had to be made from another, the other as display name."""
    if slot and not (isinstance(slot.written, Scalar) and slot.written.kind == "text" and slot.written.raw.strip()):
        slot.wrong("a name (in quotes where it looks like something else)")
        return slug(stem), ""
    written = slot.sentence() if slot else stem
    if is_name(written):
        return written, ""
    made = slug(written) or slug(stem)
    if top.page.foreign and made:
        return made, written
    right = f"{made or 'a name'} would be right ({RULE})"
    if slot:
        slot.error(f"{quoted(written)} cannot be a name; {right}")
    else:
        top.page.note("error", f"the file's name gives the agent's name {quoted(written)}; {right}")
    return made, ""


def reject_two_lists(slots: Mapping[str, Slot]) -> None:
    """A router's destinations stand in one place: in `router` or in `agents`."""
    router, agents = slots.get("router"), slots.get("agents")
    if router and agents and isinstance(router.written, Fields) and "destinations" in router.written.fields:
        line = agents.written.line
        router.error(f"destinations stand here and agents on line {line}; one list of destinations would be right")


def kept(slot: Slot) -> Any:
    """The value of a key that belongs to another program."""
    slot.warn("is kept, but not acted on")
    return plain(slot.written)


def tools(slot: Slot) -> tuple[str, ...]:
    """Tools by name; `Agent(a, b)` is read as `Agent(a)` and `Agent(b)`."""
    found: dict[str, None] = {}
    for word in slot.words():
        if word.count("(") != word.count(")"):
            slot.error(f"{quoted(word)} has no matching parenthesis; an entry with a comma needs quotes in a list")
            break
        if word.startswith("Agent(") and word.endswith(")"):
            names = (name.strip() for name in word.removeprefix("Agent(").removesuffix(")").split(","))
            found |= {f"Agent({slot.referred(name)})": None for name in names if name}
        else:
            found[word] = None
    return tuple(found)


def permissions(slot: Slot) -> Permissions:
    """Rules by what they decide; those that allow are kept, and never hold."""
    fields = slot.fields(KINDS)
    if "allow" in fields:
        fields["allow"].warn("is ignored: agent files can only tighten")
    return Permissions(**{kind: rules(fields[kind], kind) for kind in KINDS if kind in fields})


def rules(slot: Slot, kind: Kind) -> tuple[str, ...]:
    """Texts of rules, each of which was tried with its examples."""
    if isinstance(slot.written, Fields):
        slot.wrong("a list of rules")
        return ()
    # Only those who have rules pay for what reads them.
    from ..policy.rule_entry import honest_entry

    found = []
    for item in slot.items():
        try:
            entry = honest_entry(item.written, kind)
        except Mistake as mistake:
            item.error(str(mistake))
        else:
            found.append(entry.rule)
            slot.page.lines[f"permissions.{kind}.{entry.rule}"] = entry.line
    return tuple(found)


def handoff(slot: Slot) -> str:
    """One agent; a list is refused, because only one can give the final answer."""
    is_list = isinstance(slot.written, Items) or (isinstance(slot.written, Scalar) and "," in slot.written.raw)
    if is_list:
        slot.error("a list stands here; one agent's name would be right, because only one gives the final answer")
        return ""
    return slot.name()


def router(slot: Slot) -> Router | bool:
    """True where `agents` are the destinations."""
    if isinstance(slot.written, Scalar) and slot.written.kind == "flag":
        return slot.flag()
    if not isinstance(slot.written, Fields):
        slot.wrong("true, or a mapping with destinations,")
        return False
    fields = slot.fields(ROUTER_KEYS)
    return Router(
        destinations=fields["destinations"].names() if "destinations" in fields else (),
        fallback=fields["fallback"].name() if "fallback" in fields else None,
        max_turns=fields["max_turns"].whole() if "max_turns" in fields else 1,
    )


def advisors(slot: Slot) -> Advisors | None:
    """A list of agents, or a mapping that also says how many of them have to succeed, and how fast."""
    if not isinstance(slot.written, Fields):
        names = slot.names()
        return Advisors(agents=names) if names else None
    fields = slot.fields(ADVISORS_KEYS)
    names = fields["agents"].names() if "agents" in fields else ()
    if not names:
        slot.error("this mapping names no advisors; agents: [NAME] would be right")
    given: dict[str, Any] = {"agents": names}
    if "require" in fields:
        given["require"] = required(fields["require"], len(names))
    if "timeout" in fields:
        given["timeout"] = fields["timeout"].amount()
    return Advisors(**given)


def required(slot: Slot, count: int) -> Literal["all", "any", "none"] | int:
    """How many advisors have to succeed."""
    if isinstance(slot.written, Scalar) and slot.written.kind == "whole":
        number = slot.whole(least=0)
        if number > count:
            slot.error(f"{number} of {count} advisors cannot succeed; a number up to {count} would be right")
        return number
    word = plain(slot.written)
    if word not in ("all", "any", "none"):
        slot.wrong("all, any, none or a number")
    return cast(Literal["all", "any", "none"], word)


def form(slot: Slot) -> str | dict[str, Any]:
    """`text`, `markdown`, a JSON schema, or the file that has one."""
    if isinstance(slot.written, Fields):
        return schema(slot, plain(slot.written))
    word = slot.text()
    if word.endswith(".json"):
        return schema_file(slot, word)
    if word and word not in FORMATS:
        slot.error(f"{quoted(word)} is not known; text, markdown, a JSON schema or a .json file would be right")
    return word or "text"


def schema_file(slot: Slot, named: str) -> dict[str, Any]:
    """The schema in a file beside the agent's own; a repository's file never leads out of it."""
    try:
        found = msgspec.json.decode(bounded_file.text(slot.page.file.parent / named, root=slot.page.root))
    except bounded_file.Unreadable as error:
        slot.error(f"{quoted(named)} {error}")
    except (msgspec.DecodeError, RecursionError) as error:
        slot.error(f"{quoted(named)} is not valid JSON: {error}")
    else:
        if isinstance(found, dict):
            return schema(slot, found)
        slot.error(f"{quoted(named)} is not a JSON schema; a JSON object would be right")
    return {}


def schema(slot: Slot, found: dict[str, Any]) -> dict[str, Any]:
    """`found`, after a look at its type; the rest is for those who validate with it."""
    given = found.get("type", "object")
    for kind in given if isinstance(given, list) else [given]:
        if kind not in TYPES:
            slot.error(f"{quoted(str(kind))} is no type of a JSON schema; one of {', '.join(TYPES)} would be right")
    return found


def budget(slot: Slot) -> Budget:
    """Limits; one that is not named does not exist."""
    fields = slot.fields(Budget.__struct_fields__)
    given: dict[str, Any] = {key: field.amount() for key, field in fields.items() if key in ("usd", "seconds")}
    given |= {key: field.whole() for key, field in fields.items() if key in ("tokens", "turns")}
    if "files_changed" in fields:
        given["files_changed"] = fields["files_changed"].whole(least=0)
    return Budget(**given)


READERS: Mapping[str, Callable[[Slot], object]] = {
    "description": Slot.sentence,
    "model": Slot.sentence,
    "engine": Slot.sentence,
    "tools": tools,
    "disallowed_tools": tools,
    "role": Slot.sentence,
    "capabilities": Slot.words,
    "permissions": permissions,
    "agents": Slot.names,
    "handoff": handoff,
    "router": router,
    "advisors": advisors,
    "team": team,
    "input": form,
    "output": form,
    "max_turns": Slot.whole,
    "timeout": Slot.amount,
    "budget": budget,
    "isolation": partial(Slot.choice, words=("shared", "worktree", "process")),
}
"""How the value under each key is read; the name is read apart, because it depends on the file."""
