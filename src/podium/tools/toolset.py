"""Create the tools for a working directory, and select the tools that an agent's file lists.

The tools `ask_person` and `report_status` record an event on the timeline. A resumed run does not record the event
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from ..core.engine import Tool, ToolAnswer
from ..core.gate import ActingTool, InvalidCall
from ..core.person_message import ask_question
from ..core.scope import Scope
from ..core.tool_call import Arguments, build_schema, parse_arguments
from ..values.errors import Mistake
from ..values.event import QuestionAsked, StatusReported, ToolUse
from ..values.tool_table import AGENT_RULE, NAMES, PLAIN_TOOLS, READING_TOOLS, RULE_NAMES, TOOLS_BY_NAME
from ..values.usage import Unattended
from .command_sandbox import CommandSandbox
from .edit_file import EditFile
from .file_change import FindGuard, find_program_guard, find_repository_guard
from .file_listing import Hidden, holds_secrets
from .git_diff import GitDiff
from .python_function import function_tool
from .read_write_files import ReadFile, WriteFile
from .run_checks import Checks, RunChecks
from .search_files import Glob, Grep
from .shell import Bash
from .web_fetch import WebFetch

NOBODY = "Nobody is available to answer. Decide yourself and say what you assumed."


class AskPersonArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of ask_person."""

    question: Annotated[str, Meta(min_length=1)]
    choices: tuple[str, ...] = ()


class ReportStatusArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of report_status."""

    text: Annotated[str, Meta(min_length=1)]


def resolve_tool_name(entry: str) -> str | None:
    """Return the name of the tool in an entry such as `Bash(git *)`, or None for an agent or an MCP tool."""
    name = entry.partition("(")[0].strip()
    if name == AGENT_RULE or name.startswith("mcp__"):
        return None
    return NAMES.get(name, name)


def function_tools(functions: Iterable[Callable[..., Any]]) -> tuple[ActingTool, ...]:
    """Return tools that call the functions. Raise Mistake if a function is unsuitable or its name is taken."""
    made: dict[str, ActingTool] = {}
    for tool in map(function_tool, functions):
        if tool.name in made or tool.name in TOOLS_BY_NAME or tool.name.lower() in RULE_NAMES:
            raise Mistake(f"the function {tool.name} has the same name as another tool; rename the function")
        made[tool.name] = tool
    return tuple(made.values())


class Toolbox:
    """The tools that are available in these checkouts, the primary one first, each with its checks."""

    def __init__(
        self,
        checkouts: Mapping[Path, Checks],
        *,
        functions: Sequence[ActingTool] = (),
        unattended: Unattended | None = "deny",
        sandbox: CommandSandbox | None = None,
        hidden: Hidden = holds_secrets,
        guards_programs: bool = False,
        is_committed: bool = False,
    ) -> None:
        self._acting: dict[str, ActingTool] = {}
        find_guard = find_program_guard if guards_programs else find_repository_guard
        made = {
            folder: _make_checkout_tools(
                folder,
                *(other for other in checkouts if other != folder),
                checks=checks,
                sandbox=sandbox,
                hidden=hidden,
                find_guard=find_guard,
                is_committed=is_committed,
            )
            for folder, checks in checkouts.items()
        }
        self._add_tools(*_join_tools(made))
        self._add_tools(WebFetch())
        self._plain = {tool.name: tool for tool in (ask_person_tool(unattended), report_status_tool())}
        self._functions = {tool.name: tool for tool in functions}

    def _add_tools(self, *tools: ActingTool) -> None:
        for tool in tools:
            self._acting[tool.name] = tool

    def select_acting_tools(self, names: Sequence[str] | None, without: Sequence[str] = ()) -> list[ActingTool]:
        """Return the built-in tools with these names whose calls must pass the gate.

        If `names` is None, return the tools that only read files. Tools in `without` are not returned.
        """
        wanted = _select_names(READING_TOOLS if names is None else names, without)
        return [self._acting[name] for name in wanted if name in self._acting]

    def select_function_tools(self, names: Sequence[str] | None, without: Sequence[str] = ()) -> list[ActingTool]:
        """Return the function tools with these names, or all function tools if `names` is None.

        Tools in `without` are not returned. Calls to function tools must pass the gate.
        """
        wanted = _select_names(tuple(self._functions) if names is None else names, without)
        return [self._functions[name] for name in wanted if name in self._functions]

    def select_plain_tools(self, names: Sequence[str] | None, without: Sequence[str] = ()) -> list[Tool]:
        """Return the built-in tools with these names whose calls need not pass the gate.

        If `names` is None, return all such tools. Tools in `without` are not returned.
        """
        wanted = _select_names(PLAIN_TOOLS if names is None else names, without)
        return [self._plain[name] for name in wanted if name in self._plain]

    def find_unknown_tools(self, names: Sequence[str]) -> list[str]:
        """Return the entries that are neither known tools nor agents nor MCP tools."""
        known = {*TOOLS_BY_NAME, *self._functions}
        return [entry for entry in names if (name := resolve_tool_name(entry)) is not None and name not in known]


def _make_checkout_tools(
    directory: Path,
    *others: Path,
    checks: Checks,
    sandbox: CommandSandbox | None,
    hidden: Hidden,
    find_guard: FindGuard,
    is_committed: bool,
) -> tuple[ActingTool, ...]:
    """Return the tools for one checkout. Its commands may also refer to files in the other checkouts.

    `is_committed` is whether Podium commits the changes in the checkout.
    """
    wrap = None if sandbox is None else sandbox.wrap
    return (
        ReadFile(directory),
        Glob(directory, hidden=hidden),
        # Ripgrep opens files by name, and a file may have become a link, so it runs only in a sandbox.
        Grep(directory, hidden=hidden, wrap=wrap, ripgrep=None if wrap is not None else False),
        GitDiff(directory, hidden=hidden),
        WriteFile(directory, find_guard=find_guard),
        EditFile(directory, find_guard=find_guard),
        Bash(directory, *others, sandbox=sandbox, is_committed=is_committed),
        RunChecks(directory, checks, sandbox=sandbox),
    )


def _join_tools(tools_by_checkout: Mapping[Path, Sequence[ActingTool]]) -> Sequence[ActingTool]:
    """Combine the tools of the checkouts: return each tool once, for use in all of them."""
    if len(tools_by_checkout) <= 1:
        return next(iter(tools_by_checkout.values()), ())
    # Imported here to keep start-up fast: few tasks have several checkouts.
    from .several_checkouts import SeveralCheckouts

    columns = zip(*tools_by_checkout.values(), strict=True)
    return [SeveralCheckouts(dict(zip(tools_by_checkout, column, strict=True))) for column in columns]


def _select_names(names: Sequence[str], without: Sequence[str]) -> list[str]:
    left_out = {resolve_tool_name(entry) for entry in without}
    meant = dict.fromkeys(name for entry in names if (name := resolve_tool_name(entry)) is not None)
    return [name for name in meant if name not in left_out]


def ask_person_tool(unattended: Unattended | None) -> Tool:
    """Return the tool that asks the user. In an unattended run, the tool answers NOBODY or pauses the run."""

    async def ask_and_wait(call: ToolUse, scope: Scope) -> ToolAnswer:
        try:
            asked = parse_arguments(call, AskPersonArguments)
        except InvalidCall as error:
            return ToolAnswer(text=str(error), is_error=True)
        question = QuestionAsked(id="", text=asked.question, choices=asked.choices)
        answered = await ask_question(scope, question, unattended=unattended)
        return ToolAnswer(text=NOBODY if answered is None else answered.text)

    return Tool(
        name="ask_person",
        description="Ask the user for information that you cannot find.",
        parameters=build_schema(AskPersonArguments),
        answer=ask_and_wait,
        timeout=inf,
        is_step=True,
    )


def report_status_tool() -> Tool:
    """Return the tool that reports the status of the work to the user."""

    async def record_status(call: ToolUse, scope: Scope) -> ToolAnswer:
        try:
            said = parse_arguments(call, ReportStatusArguments)
        except InvalidCall as error:
            return ToolAnswer(text=str(error), is_error=True)
        scope.record(StatusReported(text=said.text))
        return ToolAnswer(text="noted")

    return Tool(
        name="report_status",
        description="Report the status of your work to the user.",
        parameters=build_schema(ReportStatusArguments),
        answer=record_status,
    )
