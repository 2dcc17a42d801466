"""Translate coding agents' tool calls into actions that Podium's rules can judge.

An agent describes a call in several messages with the same id, which are combined. Some agents give few details. A call
that has an equivalent among Podium's tools gets that tool's name and arguments. Arguments without an equivalent are
kept, so that a rule that covers only a part of a call does not allow the call.

Podium offers its own tools to the agent as an MCP server. An agent reports its calls to these tools like all its other
calls, and may ask for permission to make them. Podium grants the permission at once and does not record the reports,
because it receives, checks and records the calls themselves.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from ...core.engine import EngineAction, Tool
from ...system.json_rpc import Params
from ...values.json import JsonObject
from ...values.request import replace_surrogates
from ...values.tool_table import CHANGING_TOOLS
from ..coordination.coordination_router import PATH, Application
from ..coordination.coordination_session import (
    SERVER_NAME,
    TOKEN_VARIABLE,
    WAIT_TOOL,
    CoordinationSession,
    build_shim_command,
    select_coordination_tools,
)
from .agent_process import AgentProcess, read_mapping, read_objects
from .agent_program import McpTransport

LIST_SECONDS = 10.0
"""How long the first prompt waits for the agent to request the list of tools."""
OWN_NAME = re.compile(
    rf"(?:(?:Tool: )?(?:mcp(?:__|[.:_-]))?{SERVER_NAME}(?:__|: |[./:_-])(?P<tool>\w[\w ]*)"
    rf"|(?P<first>\w+) \({SERVER_NAME} MCP Server\).*)",
    re.DOTALL,
)
"""Matches agents' names for Podium's tools: `mcp__podium__ask_person`, `podium-ask_person`, `podium: ask person`, …"""


class PodiumTools:
    """The tools of one agent session. `application` answers the agent's calls."""

    def __init__(self, session: CoordinationSession, application: Application) -> None:
        self.session = session
        self._application = application
        self._names = {WAIT_TOOL, *(tool.name for tool in session.tools)}
        self._connected = ExitStack()

    def connect(self, agent: AgentProcess, transport: McpTransport) -> list[Params]:
        """Let a process call the tools, and return the MCP servers for its session."""
        self.disconnect()
        if not agent.coordination_url or transport == "off":
            return []
        self._connected.enter_context(agent.coordination.add_session(self.session, self._application))
        self.session.expect_listing()
        url = f"{agent.coordination_url}{PATH}"
        if transport == "http" or (not transport and read_mapping(agent.capabilities, "mcpCapabilities").get("http")):
            headers = [{"name": "Authorization", "value": f"Bearer {self.session.token}"}]
            return [{"type": "http", "name": SERVER_NAME, "url": url, "headers": headers}]
        program, *args = build_shim_command(url)
        env = [{"name": TOKEN_VARIABLE, "value": self.session.token}]
        return [{"name": SERVER_NAME, "command": program, "args": args, "env": env}]

    def recognise_call(self, message: Params, earlier: str) -> str:
        """Return the Podium tool that a message about a tool call refers to, or "" if the call is to another tool.

        `earlier` is the tool found in earlier messages about the same call; it is returned if this message names no
        tool. A call that the agent reports as access to files, commands or the network is not a call to a Podium tool,
        unless the agent marks it as an MCP call. The title of a call with this mark is ignored.
        """
        is_marked, own_name = _is_mcp_call(message), _find_own_name(message)
        title = None if is_marked else message.get("title")
        if message.get("kind") in KIND_TOOLS and not is_marked:
            return ""
        if not title and not own_name:
            return earlier
        found = next(filter(None, map(self._match_name, (own_name, title))), "")
        return found or (earlier if earlier and title == earlier else "")

    def _match_name(self, name: object) -> str:
        """Return the tool that an agent means by this name, or an empty string."""
        if not isinstance(name, str) or (found := OWN_NAME.fullmatch(name)) is None:
            return ""
        tool = (found["tool"] or found["first"]).replace(" ", "_")  # some agents write `ask person` for `ask_person`
        return tool if tool in self._names else ""

    def disconnect(self) -> None:
        """Refuse calls from now on."""
        self._connected.close()


WORKING_DIRECTORY_NAMES = ("cwd", "workdir", "directory")
KIND_TOOLS = {"read": "read_file", "edit": "edit_file", "search": "grep", "execute": "bash", "fetch": "web_fetch"}
"""Podium's equivalent of each kind of tool call in ACP, if there is one."""
_PATH_NAMES = dict.fromkeys(
    ("file_path", "filePath", "filepath", "fileName", "filename", "absolute_path", "file"), "path"
)
_OLD_NAMES = dict.fromkeys(("before", "old_string", "oldString", "old_str"), "old")
_NEW_NAMES = dict.fromkeys(("after", "new_string", "newString", "new_str"), "new")
ARGUMENT_NAMES: Mapping[str, Mapping[str, str]] = {
    "read_file": _PATH_NAMES,
    "write_file": {**_PATH_NAMES, "file_text": "content"},
    "edit_file": {**_PATH_NAMES, **_OLD_NAMES, **_NEW_NAMES, "replaceAll": "replace_all"},
    "bash": {"cmd": "command", "timeout_secs": "timeout", "timeoutMs": "timeout"},
}
"""Other names that agents use for the arguments of Podium's tools."""
LONGEST_TITLE = 500
CONTEXT_LINES = 3
THIN = "The agent gave no details about this action."


@dataclass(slots=True, kw_only=True)
class AgentToolCall:
    """What an agent has reported so far about one tool call."""

    id: str
    title: str = ""
    kind: str = ""
    status: str = ""
    own_name: str = ""
    """The agent's own name for the tool, if it reports one."""
    raw_input: Any = None
    raw_output: Any = None
    content: list[Params] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def add_update(self, update: Params) -> None:
        """Update the call with the fields of an update or a permission request. Omitted fields do not change."""
        self.title = _read_text(update, "title") or self.title
        self.kind = _read_text(update, "kind") or self.kind
        self.status = _read_text(update, "status") or self.status
        self.own_name = _find_own_name(update) or self.own_name
        if update.get("rawInput") not in (None, {}):
            self.raw_input = update["rawInput"]
        if update.get("rawOutput") is not None:
            self.raw_output = update["rawOutput"]
        if isinstance(update.get("content"), list):
            self.content = list(read_objects(update, "content"))
        if paths := [path for one in read_objects(update, "locations") if (path := _read_text(one, "path"))]:
            self.paths = paths

    @property
    def is_over(self) -> bool:
        return self.status in ("completed", "failed", "cancelled")

    @property
    def is_described(self) -> bool:
        """Whether the agent has reported a title, kind, tool name, input or path for the call."""
        return bool(self.title or self.kind or self.own_name or self.raw_input or self.paths)

    @property
    def output(self) -> str:
        """The call's output, or its title if the agent reports no output."""
        texts = [
            text
            for one in self.content
            if one.get("type") == "content" and (text := _read_text(read_mapping(one, "content"), "text"))
        ]
        if texts:
            return "\n".join(texts)
        if isinstance(self.raw_output, str):
            return self.raw_output
        output = read_mapping({"output": self.raw_output}, "output")
        streams = [_read_text(output, name) for name in ("stdout", "stderr", "output", "message")]
        return "\n".join(filter(None, streams)) or self.title

    def as_action(
        self, agent: str, checkouts: Sequence[str], tool_names: Mapping[str, str], *, sandbox: str
    ) -> EngineAction:
        """Return the call as an action. `tool_names` maps the agent's own names for tools to Podium's.

        `checkouts` are those that the agent works in, the primary one first. If the call's path or working directory is
        in another one, the action's path is relative to that checkout.
        """
        tool = self._find_tool(agent, tool_names)
        raw: Params = self.raw_input if isinstance(self.raw_input, dict) else {}
        names = ARGUMENT_NAMES.get(tool, {})
        arguments: dict[str, Any] = {names.get(name, name): value for name, value in raw.items() if value is not None}
        diffs = [one for one in self.content if one.get("type") == "diff"]
        patch = arguments.pop("diff", "") if tool in CHANGING_TOOLS else ""
        if tool in (*CHANGING_TOOLS, "read_file"):
            arguments = self._complete_file_arguments(arguments, diffs)
        other = _find_checkout(arguments, checkouts[1:])
        directory = other or next(iter(checkouts), "")
        if tool == "bash":
            arguments = _complete_command(arguments, self.raw_input, directory)
        if isinstance(path := arguments.get("path"), str):
            arguments["path"] = _make_relative(path, directory)
        changed = [str(arguments["path"])] if tool in CHANGING_TOOLS and arguments.get("path") else []
        return EngineAction(
            tool=tool,
            arguments=arguments,
            outputs={path: _hash_content(arguments) for path in changed},
            shown=self._describe(tool, arguments, diffs, patch),
            changed_lines=sum(_count_changed_lines(diff) for diff in diffs),
            sandbox=sandbox,
            directory=other,
        )

    def _find_tool(self, agent: str, tool_names: Mapping[str, str]) -> str:
        for name in (self.own_name, self.title.partition(" ")[0]):
            if name in tool_names:
                return tool_names[name]
        if self.own_name.startswith("mcp__"):
            return self.own_name
        if (
            self.kind == "edit"
            and isinstance(self.raw_input, dict)
            and self.raw_input.keys() & {"content", "file_text"}
        ):
            return "write_file"
        if self.kind in KIND_TOOLS:
            return KIND_TOOLS[self.kind]
        word = self.own_name or self.kind or "other"
        return f"{agent}__{word}"

    def _complete_file_arguments(self, arguments: dict[str, Any], diffs: list[Params]) -> dict[str, Any]:
        """Return the arguments, with a missing path or missing text added.

        The path comes from the call's diffs or locations, and the old and new text from its diff.
        """
        named = [_read_text(diff, "path") for diff in diffs] or self.paths
        if "path" not in arguments and len(set(named)) == 1:
            arguments = {**arguments, "path": named[0]}
        if len(diffs) == 1 and not arguments.keys() & {"content", "old", "new", "edits"}:
            old, new = _read_text(diffs[0], "oldText"), _read_text(diffs[0], "newText")
            arguments = {**arguments, "old": old, "new": new}
        return arguments

    def _describe(self, tool: str, arguments: Mapping[str, Any], diffs: list[Params], patch: object) -> str:
        """Return what a person should see besides the arguments: diffs, or the title of a call without arguments."""
        shown = [_format_diff(diff) for diff in diffs] or ([str(patch)] if patch else [])
        if not arguments or (tool in CHANGING_TOOLS and not arguments.keys() & {"content", "old", "new", "edits"}):
            shown.insert(0, f"{self.title[:LONGEST_TITLE]}\n{THIN}".strip())
        return replace_surrogates("\n".join(shown))


def _find_checkout(arguments: Mapping[str, Any], checkouts: Sequence[str]) -> str:
    """Return the checkout that contains a call's path or working directory, or an empty string if none does."""
    named = [arguments[name] for name in ("path", *WORKING_DIRECTORY_NAMES) if isinstance(arguments.get(name), str)]
    for path in named[:1]:
        for checkout in checkouts:
            if _make_relative(path, checkout) != path:
                return checkout
    return ""


def _make_relative(path: str, directory: str) -> str:
    """Return a path inside the directory as a path relative to it. Return any other path unchanged."""
    if not directory or not posixpath.isabs(path):
        return path
    whole, base = posixpath.normpath(path), posixpath.normpath(directory)
    return posixpath.relpath(whole, base) if whole == base or whole.startswith(f"{base}/") else path


def _complete_command(arguments: dict[str, Any], raw_input: Any, directory: str) -> dict[str, Any]:
    """Return a call's arguments, with the command as a single string.

    Omit the working directory if it is the checkout itself.
    """
    command = arguments.get("command", raw_input if isinstance(raw_input, str | list) else None)
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        # Some agents pass a shell command on to a shell of their own.
        is_shell = len(command) == 3 and command[1] in ("-c", "-lc") and posixpath.basename(command[0]).endswith("sh")
        command = command[2] if is_shell else shlex.join(command)
    rest = {name: value for name, value in arguments.items() if name != "command"}
    parts = rest.get("commands")
    if isinstance(command, str) and isinstance(parts, list) and all(str(part) in command for part in parts):
        del rest["commands"]  # the same command, divided into its parts
    for name in WORKING_DIRECTORY_NAMES:
        if isinstance(rest.get(name), str) and posixpath.normpath(rest[name]) in (posixpath.normpath(directory), "."):
            del rest[name]
    return rest if command is None else {"command": command, **rest}


def _is_mcp_call(message: Params) -> bool:
    """Return whether an agent marks a call as an MCP call. codex marks such calls, but reports them as commands."""
    meta = read_mapping(message, "_meta")
    return meta.get("is_mcp_tool_call") is True or meta.get("is_mcp_tool_approval") is True


def _find_own_name(message: Params) -> str:
    """Return the agent's own name for a tool. Agents store it in different places in the metadata."""
    meta, raw = read_mapping(message, "_meta"), read_mapping(message, "rawInput")
    if _is_mcp_call(message) and (server := _read_text(raw, "server")) and (tool := _read_text(raw, "tool")):
        return f"mcp__{server}__{tool}"
    outer = [meta, *(one for one in meta.values() if isinstance(one, dict))]
    inner = [one for values in outer[1:] for one in values.values() if isinstance(one, dict)]
    names = (_read_text(one, "toolName") or _read_text(one, "tool_name") for one in (*outer, *inner))
    return next(filter(None, names), "")


def _hash_content(arguments: JsonObject) -> str:
    content = arguments.get("content")
    return sha256(replace_surrogates(content).encode()).hexdigest() if isinstance(content, str) else ""


def _split_change(diff: Params) -> tuple[list[str], list[str], list[str], list[str]]:
    """Return the lines before a change, the old and the new lines, and the lines after it."""
    old, new = _read_text(diff, "oldText").splitlines(), _read_text(diff, "newText").splitlines()
    start = _count_common_start(old, new)
    end = _count_common_start(old[start:][::-1], new[start:][::-1])
    return old[:start], old[start : len(old) - end], new[start : len(new) - end], old[len(old) - end :]


def _count_common_start(one: list[str], other: list[str]) -> int:
    same = (number for number, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return next(same, min(len(one), len(other)))


def _count_changed_lines(diff: Params) -> int:
    _, removed, added, _ = _split_change(diff)
    return len(removed) + len(added)


def _format_diff(diff: Params) -> str:
    """Format a change as a diff with one hunk. Agents can send long texts, so this function takes only linear time."""
    path, before, removed, added, after = _read_text(diff, "path"), *_split_change(diff)
    head = [f"--- {path if _read_text(diff, 'oldText') else '/dev/null'}", f"+++ {path}"]
    context = [f" {line}" for line in before[-CONTEXT_LINES:]]
    rest = [f" {line}" for line in after[:CONTEXT_LINES]]
    return "\n".join([*head, *context, *(f"-{line}" for line in removed), *(f"+{line}" for line in added), *rest])


def _read_text(values: JsonObject, key: str) -> str:
    value = values.get(key)
    return value if isinstance(value, str) else ""


@asynccontextmanager
async def open_podium_tools(tools: Sequence[Tool], *, agent: str) -> AsyncIterator[PodiumTools | None]:
    """Yield the tools that coding agents do not have built in, or None if `tools` contains no such tool."""
    offered = select_coordination_tools(tools)
    if not offered:
        yield None
        return
    # Imported here for start-up time: the MCP library takes longer to import than most agents take to start.
    from ..coordination.coordination_router import open_coordination_service

    session = CoordinationSession(offered, agent=agent)
    async with open_coordination_service(session) as application:
        found = PodiumTools(session, application)
        try:
            yield found
        finally:
            found.disconnect()
