"""Child processes: how they start, what limits them, and that they leave nothing behind."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE

import anyio
import pytest

from podium.system.child_process import OutputBuffer, run_process
from podium.system.process_group import ChildProcess, ProgramNotStarted, start_process

from .descriptors import count_descriptors, few_descriptors

ENVIRONMENT = {"PATH": os.environ["PATH"]}
STUBBORN = "trap '' TERM; (trap '' TERM; exec sleep 999) & echo $!; wait"
"""Ignores SIGTERM, as does the process that it starts, whose pid it prints."""
OBEDIENT = "sleep 999 & echo $!; wait"

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")


class Grandchild:
    """Reads the pid that a command prints, and checks whether that process has ended."""

    def __init__(self) -> None:
        self.has_started = anyio.Event()
        self._descriptor = -1

    def take(self, chunk: bytes) -> bool:
        if self._descriptor < 0:
            self._descriptor = os.pidfd_open(int(chunk.split()[0]))
            self.has_started.set()
        return True

    @property
    def has_ended(self) -> bool:
        has_ended = bool(select.select([self._descriptor], [], [], 0)[0])
        os.close(self._descriptor)
        return has_ended


async def run_shell(command: str, directory: Path, **options: object) -> tuple[str, str]:
    """Return the output of a command and how it ended."""
    output = OutputBuffer(1_000_000)
    ended = await run_process(
        ["/bin/bash", "-c", command],
        env=ENVIRONMENT,
        directory=directory,
        take=output.append,
        **options,  # type: ignore[arg-type]  # each test passes options of the right type
    )
    return bytes(output).decode(), str(ended)


# How commands end


@on_linux
@pytest.mark.parametrize("command", [OBEDIENT, STUBBORN])
async def test_a_timeout_ends_what_the_command_started(tmp_path: Path, command: str) -> None:
    grandchild = Grandchild()

    ended = await run_process(
        ["/bin/bash", "-c", command], env=ENVIRONMENT, directory=tmp_path, timeout=0.5, take=grandchild.take
    )

    assert ended.has_timed_out
    assert grandchild.has_ended


@on_linux
@pytest.mark.parametrize("command", [OBEDIENT, STUBBORN])
async def test_a_cancellation_ends_what_the_command_started(tmp_path: Path, command: str) -> None:
    grandchild = Grandchild()
    argv = ["/bin/bash", "-c", command]

    async with anyio.create_task_group() as group:
        group.start_soon(lambda: run_process(argv, env=ENVIRONMENT, directory=tmp_path, take=grandchild.take))
        await grandchild.has_started.wait()
        group.cancel_scope.cancel()

    assert grandchild.has_ended


async def test_what_a_command_started_has_time_to_clean_up_after_the_command_itself_has_ended(tmp_path: Path) -> None:
    cleaning = "(trap 'sleep 0.3; echo cleaned; exit' TERM; echo ready; while :; do :; done) & wait"

    output, ended = await run_shell(cleaning, tmp_path, timeout=0.5)

    assert (output, ended) == ("ready\ncleaned\n", "killed by SIGTERM")


async def test_a_command_that_closes_its_output_early_is_waited_for(tmp_path: Path) -> None:
    assert await run_shell("exec >&- 2>&-; exit 3", tmp_path) == ("", "exit code 3")

    ended = await run_process(
        ["/bin/bash", "-c", "exec >&- 2>&-; exec sleep 999"],
        env=ENVIRONMENT,
        directory=tmp_path,
        timeout=0.3,
        take=lambda chunk: True,
    )

    assert ended.has_timed_out


async def test_a_command_that_does_not_read_its_input_ends_as_it_wants(tmp_path: Path) -> None:
    assert await run_shell("exit 4", tmp_path, stdin=b"x" * 1_000_000) == ("", "exit code 4")


# Output


async def test_a_command_ends_as_soon_as_it_prints_more_than_its_limit(tmp_path: Path) -> None:
    output = OutputBuffer(100_001)

    ended = await run_process(["/usr/bin/yes"], env=ENVIRONMENT, directory=tmp_path, take=output.append)

    assert (len(bytes(output)), output.is_cut, ended.has_timed_out) == (100_001, True, False)


async def test_output_of_exactly_the_limit_is_complete(tmp_path: Path) -> None:
    output = OutputBuffer(6)

    await run_process(["/bin/echo", "hello"], env=ENVIRONMENT, directory=tmp_path, take=output.append)

    assert (bytes(output), output.is_cut) == (b"hello\n", False)


async def test_the_two_outputs_come_together_or_apart(tmp_path: Path) -> None:
    command = "echo one; echo two >&2"
    output, errors = OutputBuffer(100), OutputBuffer(100)

    await run_process(
        ["/bin/bash", "-c", command],
        env=ENVIRONMENT,
        directory=tmp_path,
        take=output.append,
        take_stderr=errors.append,
    )

    assert await run_shell(command, tmp_path) == ("one\ntwo\n", "exit code 0")
    assert (bytes(output), bytes(errors)) == (b"one\n", b"two\n")


# Input and environment


async def test_a_command_has_the_environment_that_it_is_given_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "canary")
    output = OutputBuffer(1000)

    await run_process(["/usr/bin/env"], env={"ONE": "1"}, directory=tmp_path, take=output.append)

    assert bytes(output) == b"ONE=1\n"


@on_linux
async def test_a_command_has_the_descriptors_that_it_is_given_and_no_others(tmp_path: Path) -> None:
    given, other = os.open(tmp_path, os.O_RDONLY), os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(other, True)

    output, _ = await run_shell(f"cd /proc/$$/fd; ls -d {given} {other} 2>/dev/null", tmp_path, inherited=(given,))
    os.close(given)
    os.close(other)

    assert output == f"{given}\n"


# Programs that cannot be started


def make_file(path: Path, text: str, mode: int) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@on_linux
async def test_the_reason_why_a_program_cannot_be_started_is_one_sentence(tmp_path: Path) -> None:
    plain = make_file(tmp_path / "plain", "echo hello\n", 0o644)
    empty = make_file(tmp_path / "data", "\x01\x02\x03", 0o755)
    script = make_file(tmp_path / "script", "#!/no/such/shell\n", 0o755)
    before = count_descriptors()
    reasons = []

    for program, directory in (
        ("/no/such/program", tmp_path),
        ("no-such-program", tmp_path),
        ("/no/such\n\x1b[31mprogram", tmp_path),
        (plain, tmp_path),
        (str(tmp_path), tmp_path),
        (empty, tmp_path),
        (script, tmp_path),
        ("/bin/true", tmp_path / "nowhere"),
        ("/bin/true", tmp_path / "plain"),
    ):
        with pytest.raises(ProgramNotStarted) as error:
            await run_process([program], env=ENVIRONMENT, directory=directory, take=lambda chunk: True)
        reasons.append(str(error.value))

    assert reasons == [
        "/no/such/program does not exist",
        "program no-such-program not found on the PATH",
        "/no/such \\x1b[31mprogram does not exist",
        f"{plain} is not executable; make it executable with chmod +x",
        f"{tmp_path} is a folder, not a program",
        f"{empty} is neither a program for this system nor a script with an interpreter line",
        f"{script} is a script whose interpreter does not exist; correct its first line",
        f"the folder {tmp_path}/nowhere does not exist",
        f"{plain} is not a folder",
    ]
    assert count_descriptors() == before


@on_linux
@pytest.mark.parametrize("stdin", [b"", b"given"])
async def test_without_free_descriptors_the_reason_is_one_sentence_and_none_is_lost(
    tmp_path: Path, stdin: bytes
) -> None:
    before = count_descriptors()
    outcomes = []

    for free in range(14):
        with few_descriptors(free) as limit:
            try:
                outcomes.append(await run_shell("echo fine", tmp_path, stdin=stdin))
            except ProgramNotStarted as error:
                outcomes.append(("", str(error).replace(str(limit), "N")))
        assert count_descriptors() == before

    refused = ("", "this process has too many open files (limit: N); raise the limit with ulimit -n")
    number = outcomes.count(refused)
    assert 0 < number < 14
    assert outcomes == [refused] * number + [("fine\n", "exit code 0")] * (14 - number)


@on_linux
async def test_a_program_is_ended_without_a_free_descriptor_too(tmp_path: Path) -> None:
    grandchild = Grandchild()

    with open_program(STUBBORN, tmp_path) as process:
        grandchild.take(await process.read_stdout())
        with few_descriptors(0):
            await process.end(grace=0.2)

    assert process.returncode == -signal.SIGKILL
    assert grandchild.has_ended


# Long-running programs


@contextmanager
def open_program(command: str, directory: Path) -> Iterator[ChildProcess]:
    process = start_process(
        ["/bin/bash", "-c", command], env=ENVIRONMENT, directory=directory, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    try:
        yield process
    finally:
        process.close()


async def read_all(process: ChildProcess) -> bytes:
    output = b""
    while chunk := await process.read_stdout():
        output += chunk
    return output


async def test_a_program_is_written_to_and_read_from_until_its_input_ends(tmp_path: Path) -> None:
    text = b"x" * 1_000_000
    heard = []

    with open_program("cat; exit 5", tmp_path) as process:
        async with anyio.create_task_group() as group:

            async def read_output() -> None:
                heard.append(await read_all(process))

            group.start_soon(read_output)
            await process.write_stdin(text)
            await process.close_stdin()
        code = await process.wait()

    assert heard == [text]
    assert code == process.returncode == 5


async def test_a_program_that_closes_its_output_still_reads_its_input(tmp_path: Path) -> None:
    with open_program("exec >&- 2>&-; read -r code; exit $code", tmp_path) as process:
        output = await read_all(process)
        await process.write_stdin(b"6\n")
        code = await process.wait()

    assert (output, code) == (b"", 6)


async def test_writing_to_a_program_that_has_exited_is_an_error(tmp_path: Path) -> None:
    with open_program("exec <&-; echo closed", tmp_path) as process:
        await process.read_stdout()

        with pytest.raises(anyio.BrokenResourceError):
            await process.write_stdin(b"hello")

        await process.end()


async def test_a_write_that_waits_is_given_up_when_the_input_is_closed(tmp_path: Path) -> None:
    failures: list[Exception] = []

    async def write_much() -> None:
        try:
            await process.write_stdin(b"x" * 1_000_000)
        except anyio.ClosedResourceError as error:
            failures.append(error)

    with open_program("exec sleep 999", tmp_path) as process:
        async with anyio.create_task_group() as group:
            group.start_soon(write_much)
            await anyio.lowlevel.checkpoint()
            await process.close_stdin()
        await process.end()

    assert len(failures) == 1


@on_linux
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("sleep 999 & echo $!; cat; exit 7", 7),
        ("trap '' TERM; (trap '' TERM; exec sleep 999) & echo $!; wait", -signal.SIGKILL),
    ],
)
async def test_stopping_a_program_ends_what_it_started(tmp_path: Path, command: str, code: int) -> None:
    grandchild = Grandchild()
    before = count_descriptors()

    with open_program(command, tmp_path) as process:
        grandchild.take(await process.read_stdout())
        await process.stop(grace=0.3)

    assert grandchild.has_ended
    assert process.returncode == code
    assert count_descriptors() == before


async def test_a_program_that_cannot_be_started_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = count_descriptors()

    with pytest.raises(ProgramNotStarted, match=r"^/no/such/program does not exist$"):
        start_process(
            ["/no/such/program"], env=ENVIRONMENT, directory=tmp_path, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
        )

    assert count_descriptors() == before
