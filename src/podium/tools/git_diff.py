"""Provide the tool `git_diff`, which shows the changes in the checkout according to git."""

from __future__ import annotations

import os
from pathlib import Path

from anyio import to_thread

from ..core.engine import ToolAnswer
from ..core.gate import InvalidCall, PreparedCall
from ..core.tool_call import Arguments, build_schema, canonical_arguments, parse_arguments
from ..values.action import Action
from ..values.errors import OutsideFailed
from ..values.event import ToolUse
from ..values.plain_text import join_some
from ..workspace.git.repository import GitResult, call_git, locate_checkout
from .checkout_files import open_checkout
from .file_listing import Hidden, holds_secrets

LARGEST_ANSWER = 100_000
SHOWN_NEW_FILES = 50


class DiffArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of git_diff."""

    path: str | None = None
    staged: bool = False


class GitDiff:
    """`git_diff`: shows the unstaged changes and the names of untracked files, or the staged changes."""

    name = "git_diff"
    description = "Show the unstaged or the staged changes."
    parameters = build_schema(DiffArguments)
    is_parallel = True
    timeout = 240.0

    def __init__(self, directory: Path, *, hidden: Hidden = holds_secrets) -> None:
        self._directory = directory
        self._place = locate_checkout(directory)
        self._hidden = hidden

    async def prepare(self, call: ToolUse) -> PreparedCall:
        asked = parse_arguments(call, DiffArguments)

        def locate_path() -> str:
            with open_checkout(self._directory) as checkout:
                return checkout.locate(asked.path or ".").path

        path = await to_thread.run_sync(locate_path)

        async def show_diff() -> ToolAnswer:
            try:
                return ToolAnswer(text=await self._describe_diff(path, asked.staged))
            except OutsideFailed as error:
                return ToolAnswer(text=f"{error}.", is_error=True)

        resolved = {"path": path} if asked.path else {}
        return PreparedCall(arguments=canonical_arguments(asked, **resolved), act=show_diff, is_read_only=True)

    async def recover(self, began: Action) -> ToolAnswer | None:
        return None

    async def _describe_diff(self, path: str, is_staged: bool) -> str:
        await self._require_checkout()
        compare = ("diff", "--no-color", "--no-renames", "--relative", *(("--cached",) if is_staged else ()))
        only = "." if path == "." else f":(literal){path}"
        names = _parse_names(await self._run_git(*compare, "--name-only", "-z", "--", only))
        left_out = [name for name in names if self._hidden(name) and name != path]
        around = [f":(exclude,literal){name}" for name in left_out]
        done = await self._run_git(*compare, "--", only, *around)
        parts = [_truncate_diff(done.out)] if done.out else []
        if not is_staged:
            parts += _describe_new_files(
                _parse_names(await self._run_git("ls-files", "-z", "-o", "--exclude-standard", "--", only))
            )
        if left_out:
            parts.append(
                "[files omitted because they may contain secrets or because a rule denies access to them: "
                f"{', '.join(left_out)}]"
            )
        return "\n".join(parts) or ("Nothing is staged." if is_staged else "Nothing has changed.")

    async def _require_checkout(self) -> None:
        """Raise InvalidCall if the checkout is not in a git work tree.

        Without this check, git could show the changes in a different folder.
        """
        done = await call_git(self._place, "rev-parse", "--show-toplevel")
        top = os.fsdecode(done.out).rstrip("\n")
        if done.code != 0 or not await to_thread.run_sync(_is_within, self._directory, top):
            why = done.err.splitlines()[0] if done.err else "the repository has its work tree in a different folder"
            raise InvalidCall(f"The checkout is not in a git work tree ({why}); compare files with other tools.")

    async def _run_git(self, *args: str) -> GitResult:
        done = await call_git(self._place, *args)
        if done.code != 0:
            raise OutsideFailed(f"git {args[0]} failed: {done.err or f'exit code {done.code}'}")
        return done


def _is_within(directory: Path, top: str) -> bool:
    return directory.resolve().is_relative_to(Path(top).resolve())


def _parse_names(done: GitResult) -> list[str]:
    return [name for name in done.out.decode(errors="surrogateescape").split("\0") if name]


def _describe_new_files(names: list[str]) -> list[str]:
    if not names:
        return []
    shown = join_some([name.encode(errors="replace").decode() for name in names], SHOWN_NEW_FILES)
    return [f"[untracked files: {shown}]"]


def _truncate_diff(out: bytes) -> str:
    text = out.decode(errors="replace").rstrip("\n")
    if len(text) <= LARGEST_ANSWER:
        return text
    return f"{text[:LARGEST_ANSWER]}\n[{len(text) - LARGEST_ANSWER} more characters; give a path to narrow the diff]"
