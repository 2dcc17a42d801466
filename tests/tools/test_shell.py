"""Shell commands: their output, how they end, and that they leave nothing behind."""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group, move_on_after, sleep

from podium.core.gate import InvalidCall
from podium.system.child_process import build_environment, run_process
from podium.tools.command_sandbox import CommandSandbox
from podium.tools.shell import KEPT, Bash, CommandOutput

from .doing import call_tool, make_started_action, make_tool_use


async def test_both_outputs_come_in_one_with_the_exit_code(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()

    answer = await call_tool(Bash(tmp_path), command="ls; echo oops >&2; echo end; exit 3")

    assert answer.text == "a.txt\noops\nend\n[exit code 3]"
    assert answer.is_error


async def test_success_without_output_is_reported(tmp_path: Path) -> None:
    answer = await call_tool(Bash(tmp_path), command="true")

    assert (answer.text, answer.is_error) == ("(no output)\n[exit code 0]", False)


async def test_a_command_ended_by_a_signal_says_so(tmp_path: Path) -> None:
    assert (await call_tool(Bash(tmp_path), command="kill -SEGV $$")).text == "(no output)\n[killed by SIGSEGV]"


async def test_there_is_no_input_no_terminal_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("BASH_ENV", str(tmp_path / "evil"))
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}:")
    (tmp_path / "evil").write_text("echo evil")

    answer = await call_tool(Bash(tmp_path), command="cat; tty; env")

    assert "canary" not in answer.text
    assert "evil" not in answer.text
    assert answer.text.startswith("not a tty\n")
    names = {line.partition("=")[0] for line in answer.text.splitlines()[1:-1]}
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == set(build_environment())
    assert all(os.path.isabs(folder) for folder in build_environment()["PATH"].split(os.pathsep))  # noqa: PTH117


@pytest.mark.parametrize("extra", [{"cwd": "/"}, {"env": {"LD_PRELOAD": "x"}}, {"sandbox": "off"}])
async def test_a_model_cannot_choose_the_directory_the_environment_or_the_sandbox(
    tmp_path: Path, extra: dict[str, Any]
) -> None:
    tool = Bash(tmp_path)

    with pytest.raises(InvalidCall, match="has no argument"):
        await tool.prepare(make_tool_use(tool, command="true", **extra))


@pytest.mark.parametrize(("command", "why"), [("", "empty"), ("a\0b", "NUL"), ("x" * 200_000, "put it in a script")])
async def test_a_command_that_cannot_be_started_is_refused(tmp_path: Path, command: str, why: str) -> None:
    tool = Bash(tmp_path)

    with pytest.raises(InvalidCall, match=why):
        await tool.prepare(make_tool_use(tool, command=command))


def is_gone(pid: int) -> bool:
    """Return whether the process has ended; a zombie process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def wait_gone(pid: int) -> None:
    while not is_gone(pid):  # noqa: ASYNC110 - another process's end raises no event here
        await sleep(0.01)


async def test_a_command_that_ignores_sigterm_is_killed_with_all_it_started(tmp_path: Path) -> None:
    began_at = time.monotonic()

    answer = await call_tool(
        Bash(tmp_path),
        command="trap '' TERM; echo said; (trap '' TERM; sleep 999) & echo $! >child; sleep 999",
        timeout=1,
    )

    assert answer.text == "said\n[the command and all its processes were stopped after 1 s]"
    assert answer.is_error
    assert 3 <= time.monotonic() - began_at < 20
    await wait_gone(int((tmp_path / "child").read_text()))


async def test_a_command_that_handles_sigterm_ends_at_once_on_timeout(tmp_path: Path) -> None:
    began_at = time.monotonic()

    answer = await call_tool(Bash(tmp_path), command="trap 'echo bye; exit' TERM; while :; do :; done", timeout=1)

    assert answer.text.startswith("bye\n")
    assert time.monotonic() - began_at < 20


async def test_background_processes_of_a_command_end_with_it(tmp_path: Path) -> None:
    began_at = time.monotonic()

    answer = await call_tool(Bash(tmp_path), command="nohup sleep 999 & echo $! >child; echo done")

    assert answer.text == "done\n[exit code 0]"
    assert time.monotonic() - began_at < 20
    await wait_gone(int((tmp_path / "child").read_text()))


async def test_a_process_that_left_the_group_and_keeps_the_pipe_open_blocks_no_call(tmp_path: Path) -> None:
    began_at = time.monotonic()

    command = "setsid sh -c 'echo $$ >child; exec sleep 999' & while ! test -s child; do :; done; echo done"
    answer = await call_tool(Bash(tmp_path), command=command)

    # Without a sandbox it cannot be reached, so the test ends it itself.
    os.kill(int((tmp_path / "child").read_text()), 9)
    assert answer.text == "done\n[exit code 0]"
    assert time.monotonic() - began_at < 20


async def test_cancelling_ends_the_command(tmp_path: Path) -> None:
    async def wait_child() -> int:
        child = tmp_path / "child"
        while not child.exists() or not child.read_text().strip():  # noqa: ASYNC110 - another process writes it
            await sleep(0.01)
        return int(child.read_text())

    async with create_task_group() as group:
        group.start_soon(lambda: call_tool(Bash(tmp_path), command="sleep 999 & echo $! >child; wait"))
        child = await wait_child()
        group.cancel_scope.cancel()

    await wait_gone(child)


async def test_a_flood_of_output_is_bounded_in_answer_and_memory(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    answer = await call_tool(
        Bash(tmp_path), command="echo first; head -c 300000000 /dev/zero | tr '\\0' x; echo; echo last"
    )

    assert answer.text.startswith("first\nxxx")
    assert answer.text.endswith("xxx\nlast\n[exit code 0]")
    assert f"[… {300000012 - 2 * KEPT} bytes cut …]" in answer.text
    assert len(answer.text) < 2 * KEPT + 100
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000


async def test_endless_output_is_stopped_on_timeout(tmp_path: Path) -> None:
    answer = await call_tool(Bash(tmp_path), command="yes", timeout=1)

    assert "stopped after 1 s" in answer.text
    assert len(answer.text) < 2 * KEPT + 200


@pytest.mark.parametrize("sizes", [(1,), (10, 1), (3, 3, 3, 3), (100,), (5, 100, 1)])
def test_the_start_and_the_end_are_kept(sizes: tuple[int, ...]) -> None:
    output, whole = CommandOutput(start=4, end=4), b""
    for number, size in enumerate(sizes):
        chunk = bytes([97 + number]) * size
        output.append_chunk(chunk)
        whole += chunk

    if len(whole) <= 8:
        assert str(output) == whole.decode()
    else:
        assert str(output) == f"{whole[:4].decode()}\n[… {len(whole) - 8} bytes cut …]\n{whole[-4:].decode()}"


async def test_a_sandbox_is_put_around_the_command(tmp_path: Path) -> None:
    tool = Bash(tmp_path, sandbox=CommandSandbox(name="x", wrap=lambda argv: ["/usr/bin/env", "INSIDE=yes", *argv]))

    assert (await call_tool(tool, command="echo $INSIDE")).text == "yes\n[exit code 0]"


async def test_a_shell_that_cannot_be_started_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InvalidCall, match="cannot be started"):
        await call_tool(
            Bash(tmp_path, sandbox=CommandSandbox(name="x", wrap=lambda argv: ["/nonexistent", *argv])), command="true"
        )


async def test_a_command_cut_short_by_a_crash_is_not_repeated(tmp_path: Path) -> None:
    tool = Bash(tmp_path)
    prepared = await tool.prepare(make_tool_use(tool, command="echo x >>f"))

    answer = await tool.recover(make_started_action(tool, prepared))

    assert answer is not None
    assert answer.is_error
    assert "interrupted" in answer.text
    assert prepared.arguments == {"command": "echo x >>f"}


async def test_a_program_is_given_its_input_and_ended_when_no_more_output_is_needed(tmp_path: Path) -> None:
    heard: list[bytes] = []

    def take(chunk: bytes) -> bool:
        heard.append(chunk)
        return False

    with move_on_after(10) as limit:
        ended = await run_process(
            ["/bin/bash", "-c", "cat; exec sleep 999"],
            env=build_environment(),
            directory=str(tmp_path),
            timeout=60,
            take=take,
            stdin=b"x" * 10,
        )

    assert not limit.cancelled_caught
    assert (heard, ended.has_timed_out) == ([b"x" * 10], False)


async def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("descriptors are counted in /proc")
    tool = Bash(tmp_path)
    await call_tool(tool, command="true")
    before = len(list(Path("/proc/self/fd").iterdir()))

    for _ in range(20):
        await call_tool(tool, command="true")

    assert len(list(Path("/proc/self/fd").iterdir())) == before
