"""Git, as this product calls it: one function, and nothing that a worker wrote is executed by it.

An absolute git that is not in the checkout, arguments as lists, an environment of its own, hooks and
file-system monitors off, no pager, no external diff, no text conversion, no content filter or merge
driver of the repository, no remote. The person's own git configuration is not read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from anyio import create_task_group, fail_after, open_process

from ..errors import OutsideFailed

LARGEST_OUTPUT = 64 * 1024 * 1024
TRUSTED = ("/usr/bin", "/usr/local/bin", "/opt/homebrew/bin", "/bin")

SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "core.quotePath": "false",
    "safe.bareRepository": "explicit",
    "protocol.ext.allow": "never",
    "submodule.recurse": "false",
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    "log.showSignature": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
}
ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "GIT_EDITOR": ":",
    "GIT_LITERAL_PATHSPECS": "0",
    # A missing object is not fetched: the command that would fetch it is the repository's choice.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
}
COMPARING = frozenset(("diff", "diff-files", "diff-index", "diff-tree", "format-patch", "log", "show"))
DRIVERS = r"^(filter\..*\.(clean|smudge|process|required)|merge\..*\.driver)$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What git came back with."""

    code: int
    out: bytes
    err: str


def trusted_program(name: str, *, outside: Path) -> str | None:
    """The absolute path of a program that is not in the directory `outside`, where workers write."""
    kept_out = outside.resolve()
    for folder in (*TRUSTED, *os.environ.get("PATH", "").split(os.pathsep)):
        if not os.path.isabs(folder):  # noqa: PTH117 - an empty entry means the working directory
            continue
        found = shutil.which(name, path=folder)
        if found and not Path(found).resolve().is_relative_to(kept_out):
            return found
    return None


async def git(directory: Path, *args: str, stdin: bytes | None = None, timeout: float = 60.0) -> Done:
    """Run git in a directory. That git fails is told by what is returned; OutsideFailed, that it could not be run."""
    program = trusted_program("git", outside=directory)
    if program is None:
        raise OutsideFailed("git is needed and is not installed; install it with your system's package manager")
    try:
        with fail_after(timeout):
            drivers = await _run(program, directory, SETTINGS, ("config", "--name-only", "-z", "--get-regexp", DRIVERS))
            settings = SETTINGS | {
                key: _harmless(key) for key in drivers.out.decode(errors="replace").split("\0") if key
            }
            return await _run(program, directory, settings, _plain(args), stdin)
    except TimeoutError:
        raise OutsideFailed(f"git {args[0]} was stopped after {timeout:g} s", retryable=True) from None
    except OSError as error:
        raise OutsideFailed(f"git {args[0]} could not be started: {error}") from error


def _plain(args: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments; a command that compares does so itself."""
    if args[0] in COMPARING:
        return (args[0], "--no-ext-diff", "--no-textconv", *args[1:])
    return args


def _harmless(key: str) -> str:
    """What a setting that names a command is set to instead: no filter, and a merge driver that finds a conflict."""
    if key.endswith(".required"):
        return "false"
    return "false" if key.startswith("merge.") else ""


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings go by environment, because a key may have any character in it."""
    kept = {name: value for name in ("PATH", "HOME", "TMPDIR", "USER") if (value := os.environ.get(name))}
    numbered = {
        f"GIT_CONFIG_{part}_{number}": value
        for number, (key, value) in enumerate(settings.items())
        for part, value in (("KEY", key), ("VALUE", value))
    }
    return kept | ENVIRONMENT | {"GIT_CONFIG_COUNT": str(len(settings))} | numbered


class _Stream(Protocol):
    def __aiter__(self) -> _Stream: ...

    async def __anext__(self) -> bytes: ...


async def _run(
    program: str, directory: Path, settings: Mapping[str, str], args: tuple[str, ...], stdin: bytes | None = None
) -> Done:
    out, err = bytearray(), bytearray()
    async with await open_process(
        [program, "--no-pager", *args],
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        cwd=directory,
        env=_environment(settings),
        start_new_session=True,
    ) as process:

        async def take(stream: _Stream, into: bytearray) -> None:
            async for chunk in stream:
                into += chunk
                if len(into) > LARGEST_OUTPUT:
                    raise OutsideFailed(
                        f"git {args[0]} gave more than {LARGEST_OUTPUT >> 20} MiB; ask for less at once"
                    )

        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with create_task_group() as group:
                group.start_soon(take, process.stdout, out)
                group.start_soon(take, process.stderr, err)
                if process.stdin is not None:
                    await process.stdin.send(stdin or b"")
                    await process.stdin.aclose()
                await process.wait()
        except* OutsideFailed as errors:
            raise errors.exceptions[0] from None
    return Done(code=process.returncode or 0, out=bytes(out), err=err.decode(errors="replace").strip())
