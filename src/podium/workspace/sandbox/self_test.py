"""Test a sandbox: a command in it tries to break out, and the result is checked from outside.

A sandbox is used only if it passes the test. It is not enough that bubblewrap accepts the options.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ...system.child_process import OutputBuffer, build_environment, run_process
from ...system.owned_files import make_owned_name

if TYPE_CHECKING:
    from .bubblewrap import Sandbox

TIMEOUT = 20.0
SHELL = "/bin/bash"
END = "tried everything"

ATTEMPTS = r"""
outside=$1 home=$2 port=$3 checkout=$4 probe=$5
shift 5
while read -r name value; do
  case $name in CapEff:|CapPrm:|CapBnd:|NoNewPrivs:|Seccomp:) echo "$name $value";; esac
done </proc/self/status
for place in "$outside" "$home" "$checkout/.git" "$checkout/.podium" "$checkout" /usr /etc / "$@"; do
  { : >"$place/$probe"; } 2>/dev/null && echo "wrote: $place"
done
{ : >>/proc/sys/kernel/core_pattern; } 2>/dev/null && echo "opened: the kernel's settings"
[ -e "$outside/seen" ] && echo "saw: a folder outside the checkout"
[ -e "$home/$probe-seen" ] && echo "saw: the Podium home"
{ exec 3<>"/dev/tcp/127.0.0.1/$port"; } 2>/dev/null && echo "reached: this machine's network"
echo "tried everything"
"""
WANTED = {"CapEff:": 0, "CapPrm:": 0, "CapBnd:": 0, "NoNewPrivs:": 1, "Seccomp:": 2}

_failures_by_sandbox: dict[Sandbox, list[str]] = {}
"""The failures of each sandbox that this process has tested. Identical sandboxes are tested only once."""


async def find_failures(sandbox: Sandbox) -> list[str]:
    """Return a sandbox's self-test failures, as clauses for a message. The list is empty if the sandbox passes."""
    if sandbox not in _failures_by_sandbox:
        _failures_by_sandbox[sandbox] = await _probe_sandbox(sandbox)
    return _failures_by_sandbox[sandbox]


async def _probe_sandbox(sandbox: Sandbox) -> list[str]:
    probe = make_owned_name("probe")
    seen = sandbox.home / f"{probe}-seen"
    with _make_folder() as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        outside = Path(folder)
        (outside / "seen").touch()
        try:
            seen.touch(mode=0o600)
        except OSError as error:
            return [f"it could not be tested, because {sandbox.home} is not writable ({error.strerror})"]
        try:
            port = str(listener.getsockname()[1])
            closed = map(str, _list_closed_folders(sandbox)[2:])
            asked = (folder, str(sandbox.home), port, str(sandbox.checkout), probe, *closed)
            said = await _run_for_output(sandbox.wrap([SHELL, "-c", ATTEMPTS, "bash", *asked]), str(sandbox.checkout))
            # Check the effects from outside the sandbox too, because the command's own report may be wrong.
            seen_here = _find_written_probes(sandbox, outside, probe) + _find_network_access(listener)
        finally:
            seen.unlink(missing_ok=True)
            with suppress(OSError):  # it exists only if the test was interrupted, and the file system may be read-only
                (sandbox.checkout / probe).unlink()
    return list(dict.fromkeys((*seen_here, *_evaluate_output(said, sandbox))))


@contextmanager
def _make_folder() -> Iterator[str]:
    """Create a folder outside the checkout and the Podium home, and remove it when the block ends."""
    folder = Path(tempfile.gettempdir()).resolve() / make_owned_name("podium-probe")
    folder.mkdir(mode=0o700)
    try:
        yield str(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _list_closed_folders(sandbox: Sandbox) -> list[Path]:
    """Return the folders that a command must not write to: `.git` and `.podium` in each checkout.

    The folders of the primary checkout come first.
    """
    return [one.checkout / name for one in sandbox.parts for name in (".git", ".podium")]


def _find_written_probes(sandbox: Sandbox, outside: Path, probe: str) -> list[str]:
    """Return a failure for each forbidden folder that the test command was able to write to. Delete written files."""
    places = [outside, sandbox.home, *_list_closed_folders(sandbox), Path("/usr"), Path("/etc")]
    written = [place for place in dict.fromkeys((*places, sandbox.checkout)) if os.path.lexists(place / probe)]
    for place in written:
        (place / probe).unlink()
    may = [sandbox.checkout] if sandbox.profile == "workspace" else []
    return [f"a command in the sandbox wrote to {place}" for place in written if place not in may]


def _find_network_access(listener: socket.socket) -> list[str]:
    listener.setblocking(False)
    with suppress(BlockingIOError):
        listener.accept()[0].close()
        return ["a command in the sandbox reached this machine's network"]
    return []


def _evaluate_output(said: list[str], sandbox: Sandbox) -> list[str]:
    """Return the failures that the test command's output shows."""
    if END not in said:
        return [f"{' '.join(said) or 'bubblewrap printed nothing'} ({_suggest_remedy()})"]
    facts = {name: value for name, _, value in (line.partition(" ") for line in said)}
    wrong = [
        f"{name.removesuffix(':')} is {facts.get(name, 'not reported')} in the sandbox, expected {wanted}"
        for name, wanted in WANTED.items()
        if name not in facts or int(facts[name], 16) != wanted
    ]
    allowed = {f"wrote: {sandbox.checkout}"} if sandbox.profile == "workspace" else set()
    did = [
        line for line in said if line.startswith(("saw: ", "opened: ", "reached: ", "wrote: ")) and line not in allowed
    ]
    acts = [line.replace(": ", " to " if line.startswith("wrote") else " ", 1) for line in did]
    return wrong + [f"a command in the sandbox {act}" for act in acts]


SWITCHES = (
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
    ("kernel/unprivileged_userns_clone", "0", "1"),
    ("user/max_user_namespaces", "0", "10000"),
)


def _suggest_remedy() -> str:
    """Return advice on how to enable the kernel features that bubblewrap needs.

    If a kernel setting disables user namespaces, the advice contains the command that changes this setting.
    """
    for name, off, on in SWITCHES:
        with suppress(OSError):
            if Path("/proc/sys", name).read_text(encoding="ascii").strip() == off:
                return f"user namespaces are off; turn them on with: sudo sysctl -w {name.replace('/', '.')}={on}"
    return "bubblewrap needs user namespaces and its own /proc; in a container, both must be allowed"


async def can_disable_users(program: str) -> bool:
    """Return whether bubblewrap can prevent new user namespaces. If it cannot, only the system call filter does so."""
    return any("--disable-userns" in line for line in await _run_for_output([program, "--help"], "/"))


async def _run_for_output(argv: list[str], directory: str) -> list[str]:
    output = OutputBuffer(1_000_000)
    try:
        await run_process(argv, env=build_environment(), directory=directory, timeout=TIMEOUT, take=output.append)
    except OSError as error:
        return [f"cannot start {argv[0]}: {error}"]
    return bytes(output).decode(errors="replace").splitlines()
