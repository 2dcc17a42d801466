"""The tools of one place of work, and which of them an agent's file means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ..core.engine import Tool
from ..core.gate import ActingTool
from ..values.errors import Mistake
from ..values.limits import Unattended
from .ask_person import ask_person_tool, report_status_tool
from .command_sandbox import CommandSandbox
from .edit_file import EditFile
from .file_listing import Hidden, holds_secrets
from .git_diff import GitDiff
from .python_function import function_tool
from .run_checks import Checks, RunChecks
from .search_files import Glob, Grep
from .shell import Bash
from .web_fetch import WebFetch
from .whole_files import ReadFile, WriteFile

READING_TOOLS = ("read_file", "glob", "grep", "git_diff")
CHECKOUT_TOOLS = (*READING_TOOLS, "write_file", "edit_file", "bash", "run_checks")
PLAIN_TOOLS = ("ask_person", "report_status")
DELEGATING_TOOLS = ("delegate_task", "check_workers", "get_worker_result", "cancel_worker")
"""Tools that come from elsewhere, with the way to workers."""

ALIASES = {
    "Read": "read_file",
    "Write": "write_file",
    "Edit": "edit_file",
    "MultiEdit": "edit_file",
    "Glob": "glob",
    "LS": "glob",
    "list_files": "glob",
    "Grep": "grep",
    "Bash": "bash",
    "WebFetch": "web_fetch",
}
"""Names that other programs and their users have for these tools."""


def resolve_tool_name(entry: str) -> str | None:
    """The tool that an entry of `tools` means, `Bash(git *)` included; None where it is about an agent or MCP."""
    name = entry.partition("(")[0].strip()
    if name == "Agent" or name.startswith("mcp__"):
        return None
    return ALIASES.get(name, name)


def function_tools(functions: Iterable[Callable[..., Any]]) -> tuple[ActingTool, ...]:
    """Functions as tools. Raises Mistake where one cannot be, or has the name of another tool."""
    made: dict[str, ActingTool] = {}
    for tool in map(function_tool, functions):
        if tool.name in made or tool.name in (*CHECKOUT_TOOLS, *PLAIN_TOOLS, WebFetch.name):
            raise Mistake(f"there is another tool called {tool.name}; give the function {tool.name} a name of its own")
        made[tool.name] = tool
    return tuple(made.values())


class Toolbox:
    """The tools for work in a directory, or without one."""

    def __init__(
        self,
        directory: Path | None,
        *,
        checks: Checks,
        functions: Sequence[ActingTool] = (),
        unattended: Unattended | None = "deny",
        sandbox: CommandSandbox | None = None,
        hidden: Hidden = holds_secrets,
    ) -> None:
        self._acting: dict[str, ActingTool] = {}
        wrap = None if sandbox is None else sandbox.wrap
        if directory is not None:
            self._add_tools(
                ReadFile(directory),
                Glob(directory, hidden=hidden),
                # The other program opens files by their names, which may be links by then: inside a sandbox only.
                Grep(directory, hidden=hidden, wrap=wrap, ripgrep=None if wrap is not None else False),
                GitDiff(directory, hidden=hidden),
                WriteFile(directory),
                EditFile(directory),
                Bash(directory, sandbox=sandbox),
                RunChecks(directory, checks, sandbox=sandbox),
            )
        self._add_tools(WebFetch())
        self._plain = {tool.name: tool for tool in (ask_person_tool(unattended), report_status_tool())}
        self._functions = {tool.name: tool for tool in functions}

    def _add_tools(self, *tools: ActingTool) -> None:
        for tool in tools:
            self._acting[tool.name] = tool

    def select_acting_tools(self, names: Sequence[str] | None, without: Sequence[str] = ()) -> list[ActingTool]:
        """The tools of ours that act, to be offered through a gate. None stands for those that only read."""
        wanted = _select_names(READING_TOOLS if names is None else names, without)
        return [self._acting[name] for name in wanted if name in self._acting]

    def select_function_tools(self, names: Sequence[str] | None, without: Sequence[str] = ()) -> list[ActingTool]:
        """The functions, to be offered through a gate. None stands for all of them."""
        wanted = _select_names(tuple(self._functions) if names is None else names, without)
        return [self._functions[name] for name in wanted if name in self._functions]

    def select_plain_tools(self, names: Sequence[str] | None, without: Sequence[str] = ()) -> list[Tool]:
        """The tools that need no gate."""
        wanted = _select_names(PLAIN_TOOLS if names is None else names, without)
        return [self._plain[name] for name in wanted if name in self._plain]

    def find_unknown_tools(self, names: Sequence[str]) -> list[str]:
        """The entries that mean no tool, for a notice."""
        known = {*DELEGATING_TOOLS, *CHECKOUT_TOOLS, *self._acting, *self._plain, *self._functions}
        return [entry for entry in names if (name := resolve_tool_name(entry)) is not None and name not in known]


def _select_names(names: Sequence[str], without: Sequence[str]) -> list[str]:
    left_out = {resolve_tool_name(entry) for entry in without}
    meant = dict.fromkeys(name for entry in names if (name := resolve_tool_name(entry)) is not None)
    return [name for name in meant if name not in left_out]
