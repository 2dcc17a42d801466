"""The tools that come with Podium: one row each. Every other table about these tools is made from the rows.

The tools themselves are in `tools/` and `patterns/`. Agent files can list all of them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Effect = Literal["reads", "changes", "runs commands", "runs checks", "fetches", "coordinates", "other"]
"""What a call does: it reads or changes files of the checkout, runs commands or the configured checks, reads web pages,
exchanges messages with people and other agents, or something else."""

EditorKind = Literal["read", "search", "edit", "execute", "fetch", "other"]
"""The kinds of tool calls that editors show, as the Agent Client Protocol names them."""


class ToolRow(NamedTuple):
    """A tool of Podium."""

    name: str
    effect: Effect = "other"
    rule_name: str = ""
    """The tool's name in permission rules, if it is not `name`."""
    other_names: tuple[str, ...] = ()
    """Other programs' names for the tool, which agent files and rules accept too."""
    arguments: tuple[str, ...] | None = None
    """The arguments that rules can check, or None for all. Any other argument may have effects that no rule covers."""
    paths: tuple[str, ...] = ()
    """The arguments that name or select files."""
    editor_kind: EditorKind = "other"
    is_default: bool = False
    """Whether an agent whose file lists no tools has the tool."""
    is_recorded: bool = False
    """Whether the timeline records the files that the tool changes. Other tools may change any file."""

    @property
    def name_in_rules(self) -> str:
        """The tool's name in permission rules."""
        return self.rule_name or self.name


TOOLS = (
    ToolRow(
        "read_file",
        "reads",
        "Read",
        arguments=("path", "offset", "limit"),
        paths=("path",),
        editor_kind="read",
        is_default=True,
    ),
    ToolRow(
        "glob",
        "reads",
        "Glob",
        ("list_files", "LS"),
        arguments=("path", "pattern", "depth", "limit"),
        paths=("path", "pattern"),
        editor_kind="search",
        is_default=True,
    ),
    ToolRow(
        "grep",
        "reads",
        "Grep",
        arguments=("path", "pattern", "glob", "ignore_case", "context", "max"),
        paths=("path", "glob"),
        editor_kind="search",
        is_default=True,
    ),
    ToolRow(
        "git_diff",
        "reads",
        arguments=("path", "staged"),
        paths=("path",),
        editor_kind="read",
        is_default=True,
    ),
    ToolRow("ask_person", "coordinates", is_default=True),
    ToolRow("report_status", "coordinates", is_default=True),
    ToolRow(
        "write_file",
        "changes",
        "Write",
        arguments=("path", "content"),
        paths=("path",),
        editor_kind="edit",
        is_recorded=True,
    ),
    ToolRow(
        "edit_file",
        "changes",
        "Edit",
        ("MultiEdit",),
        arguments=("path", "old", "new", "edits", "old_text", "new_text", "replace_all"),
        paths=("path",),
        editor_kind="edit",
        is_recorded=True,
    ),
    ToolRow("bash", "runs commands", "Bash", arguments=("command", "timeout", "description"), editor_kind="execute"),
    ToolRow("run_checks", "runs checks", editor_kind="execute"),
    ToolRow("web_fetch", "fetches", "WebFetch", arguments=("url",), editor_kind="fetch"),
    ToolRow("delegate_task"),
    ToolRow("check_workers", "coordinates"),
    ToolRow("get_worker_result", "coordinates"),
    ToolRow("cancel_worker"),
    ToolRow("handoff_step"),
    ToolRow("raise_blocker"),
    ToolRow("propose_decision"),
    ToolRow("cast_ballot"),
    ToolRow("list_decisions"),
    ToolRow("send_message"),
    ToolRow("load_skill", other_names=("Skill",)),
    ToolRow("update_memory", is_recorded=True),
)

AGENT_RULE = "Agent"
"""The name in rules of a call of a sub-agent, whose tool has the sub-agent's name. The sub-agent's own actions are
checked against its own rules."""
ROUTE_TO = "route_to"
"""The tool with which a router chooses. Only routers have it, so agent files cannot list it."""


def _select_names(*effects: Effect) -> tuple[str, ...]:
    """Return the names of the tools with these effects."""
    return tuple(row.name for row in TOOLS if row.effect in effects)


def _select_rule_names(*effects: Effect) -> frozenset[str]:
    """Return the names in rules of the tools with these effects."""
    return frozenset(row.name_in_rules for row in TOOLS if row.effect in effects)


TOOLS_BY_NAME = {row.name: row for row in TOOLS}

NAMES = {name: row.name for row in TOOLS for name in (row.rule_name, *row.other_names) if name}
"""Other programs' names for tools, and Podium's name for each."""

RULE_NAMES = {
    name.lower(): row.name_in_rules
    for row in TOOLS
    if row.rule_name
    for name in (row.rule_name, row.name, *row.other_names)
} | {AGENT_RULE.lower(): AGENT_RULE}
"""The name in rules for each accepted spelling in lower case. Other names are the same in rules."""

READING_TOOLS = _select_names("reads")
"""The tools that an agent uses to read its checkout. They are the default."""
CHANGING_TOOLS = _select_names("changes")
WORKING_TOOLS = _select_names("changes", "runs commands")
"""The tools with which an agent can do work in a checkout."""
CHECKOUT_TOOLS = _select_names("reads", "changes", "runs commands", "runs checks")
"""The tools that need a checkout."""
OUTSIDE_TOOLS = (*CHECKOUT_TOOLS, *_select_names("fetches"))
"""The tools for files, commands and web pages. Coding agents have their own."""
DEFAULT_TOOLS = tuple(row.name for row in TOOLS if row.is_default)
"""The tools of an agent whose file lists none."""
DEFAULT_WORKER_TOOLS = (*DEFAULT_TOOLS, *_select_names("changes", "runs commands", "runs checks"))
"""The tools of a worker whose definition lists none: it can also change files and run commands."""
PLAIN_TOOLS = tuple(name for name in DEFAULT_TOOLS if name not in READING_TOOLS)
"""The default tools that need no checkout and whose calls need not pass the gate."""
RECORDED_TOOLS = tuple(row.name for row in TOOLS if row.is_recorded)

DEFAULT_STEP_TOOLS = tuple(row.name_in_rules for row in TOOLS if row.effect == "reads")
"""The tools of a step's owner whose file lists none, besides STEP_TOOLS. Digests in stored runs cover these names."""

READING_RULES = frozenset(DEFAULT_STEP_TOOLS)
CHANGING_RULES = _select_rule_names("changes")
ACTING_RULES = _select_rule_names("changes", "runs commands", "runs checks", "fetches")
COORDINATION_RULES = _select_rule_names("coordinates") | {AGENT_RULE, ROUTE_TO}
"""Tools that agents use to communicate with each other and with people. They are allowed without a rule."""
CHECKED_ARGUMENTS = {row.name_in_rules: frozenset(row.arguments) for row in TOOLS if row.arguments is not None}
PATH_ARGUMENTS = {row.name_in_rules: row.paths for row in TOOLS if row.paths}

DELEGATING_TOOLS = ("delegate_task", "check_workers", "get_worker_result", "cancel_worker")
"""Tools for starting workers and following them."""
STEP_TOOLS = ("handoff_step", "raise_blocker")
"""Tools for the owner of a plan step."""
VOTING_TOOLS = ("propose_decision", "cast_ballot")
"""Tools for proposing a decision and voting on it."""
DECISION_TOOLS = (*VOTING_TOOLS, "list_decisions")
"""All tools for decisions."""
SEND_MESSAGE = "send_message"
"""The tool that sends a message to another member of the agent's team."""
LOAD_SKILL = "load_skill"
"""The tool that reads the files of a skill.

If skills are available, the tool is given by default to every agent that lists skills, and to every agent that lists no
tools and is not a router.
"""
UPDATE_MEMORY = "update_memory"
"""The tool that changes an agent's memory. An agent has this tool if its memory can be changed."""
