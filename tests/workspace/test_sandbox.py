"""The sandbox: a command only affects the checkout, whichever user runs it."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from podium.runs.assembly.sandbox_choice import choose_sandbox
from podium.system.child_process import build_environment, run_process
from podium.tools.shell import CommandOutput
from podium.workspace.sandbox.bubblewrap import PROTECTED_NAMES, Sandbox

from .sandboxed import WHO, Place, new_place, ordinary_user


@pytest.fixture(scope="module", autouse=True)
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    # Import lazily loaded modules now, because an ordinary user may not be able to read them.
    anyio.run(warm_up, tmp_path_factory.mktemp("warm"))
    with ordinary_user():
        yield


async def warm_up(folder: Path) -> None:
    (folder / "repo").mkdir()
    (folder / "repo" / ".env").touch()
    (await Sandbox.find(folder / "repo", home=folder / "home")).remove_placeholders()


@pytest.fixture(params=WHO)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with new_place(request.param) as made:
        yield made


def test_a_command_works_in_the_checkout(place: Place) -> None:
    done = place.bash("pwd; cat a.txt; echo two >b.txt; git status --short; git log --format=%s")

    assert done.text == f"{place.repo}\none\n?? b.txt\nfirst\n"
    assert done.code == 0
    assert (place.repo / "b.txt").read_text() == "two\n"


def test_exit_codes_come_out(place: Place) -> None:
    assert place.bash("exit 7").code == 7
    assert place.run(["/nonexistent"]).code == 127


def test_a_command_has_no_capability_no_way_to_new_ones_and_a_filter(place: Place) -> None:
    done = place.bash("grep -E '^(Cap...|NoNewPrivs|Seccomp):' /proc/self/status")

    facts = dict(line.split(":\t") for line in done.text.splitlines())
    assert {facts.pop("NoNewPrivs"), facts.pop("Seccomp")} == {"1", "2"}
    assert set(facts.values()) == {"0000000000000000"}


def test_nothing_outside_the_checkout_can_be_written(place: Place) -> None:
    canary = place.folder / "canary"

    done = place.bash(
        'mount -o remount,rw,bind / ; mount -t tmpfs none /mnt; umount -l /usr; echo x >"$1"; mkdir "$1"; '
        "echo x >/usr/canary; echo x >/etc/passwd; echo x >/canary; echo x >/dev/canary; "
        "for file in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /proc/sys/kernel/modprobe; do "
        '{ : >>"$file"; } 2>/dev/null && echo "opened $file"; done; exit 0',
        str(canary),
    )

    assert "opened" not in done.text
    assert done.code == 0
    assert not canary.exists()
    assert not Path("/usr/canary").exists()


def test_nothing_of_the_kernel_can_be_set(place: Place) -> None:
    # Any user may write to /proc/pressure, to subscribe to notifications about shortages.
    skipped = "-not -path '/proc/[0-9]*' -not -path '/proc/pressure/*' -not -type l"
    done = place.bash(f"find /proc /sys {skipped} -writable 2>/dev/null; echo end")

    assert done.text == "end\n"


def test_a_read_only_checkout_is_not_written(place: Place) -> None:
    done = place.bash("echo x >b.txt; echo x >>a.txt; echo fine >/tmp/x && cat /tmp/x ~/.", profile="read-only")

    assert "fine" in done.text
    assert sorted(path.name for path in place.repo.iterdir()) == [".git", "a.txt"]
    assert (place.repo / "a.txt").read_text() == "one\n"


@pytest.mark.parametrize("kind", ["missing", "existing"])
def test_protected_paths_cannot_be_changed_or_made(place: Place, kind: str) -> None:
    names = [name for name in PROTECTED_NAMES if name != ".git"]
    if kind == "existing":
        for name in names:
            (place.repo / name).write_text("theirs")
    before = place.git("status", "--short")

    done = place.bash(
        'for name in "$@"; do echo x >"$name"; rm -rf "$name"; mv "$name" moved; mkdir -p "$name/x"; '
        'ln -sf /etc "$name"; echo x >>"$name/config"; done; exit 0',
        *PROTECTED_NAMES,
    )

    assert done.code == 0
    assert place.git("status", "--short") == before
    assert sorted(path.name for path in place.repo.iterdir()) == sorted(
        [".git", "a.txt", *(names if kind == "existing" else [])]
    )
    assert all((place.repo / name).read_text() == "theirs" for name in names if kind == "existing")


def test_the_git_directory_is_read_only_in_a_repository_and_in_a_worktree(place: Place) -> None:
    place.git("worktree", "add", "-q", "-b", "work", "../tree")
    tree = Place(place.who, place.folder)
    attack = (
        'echo x >"$1/hooks/post-commit"; echo x >>"$1/config"; echo x >"$1/refs/heads/main"; '
        'echo x >"$1/worktrees/tree/commondir"; echo "gitdir: /tmp" >.git; rm -f .git; git commit -am x; '
        "git status --short; git rev-parse --abbrev-ref HEAD"
    )
    before = {path: path.read_bytes() for path in (place.repo / ".git").rglob("*") if path.is_file()}

    in_repo = place.bash(attack, ".git")
    (place.repo / "../tree").rename(place.folder / "aside")
    (place.folder / "aside").rename(place.folder / "tree")
    in_tree = _place_with_repo(place.folder / "tree", tree).bash(attack, str(place.repo / ".git"))

    after = {path: path.read_bytes() for path in (place.repo / ".git").rglob("*") if path.is_file()}
    assert after == before
    assert in_repo.text.endswith("main\n")
    assert in_tree.text.endswith("work\n")


def _place_with_repo(repo: Path, place: Place) -> Place:
    class Elsewhere(Place):
        @property
        def repo(self) -> Path:
            return repo

    return Elsewhere(place.who, place.folder)


def test_the_podium_home_is_not_seen_wherever_it_lies(place: Place) -> None:
    look = 'ls -A "$1" 2>/dev/null; cat "$1/token" 2>/dev/null; echo x >"$1/trust.json"; exit 0'
    homes = [place.home, place.repo / "home", place.repo / ".podium"]
    for home in homes:
        home.mkdir(exist_ok=True)
        (home / "token").write_text("CANARY")
        home.chmod(0o777)

    seen = [place.bash(look, str(home), home=home, store=home / "podium.db", readable=[place.folder]) for home in homes]

    assert [one.text for one in seen if "CANARY" in one.text or "token\n" in one.text] == []
    assert not any((home / "trust.json").exists() for home in homes)


def test_a_checkout_in_the_podium_home_is_all_that_is_seen_of_it(place: Place) -> None:
    (place.folder / "token").write_text("CANARY")

    done = place.bash('cat a.txt; ls -A "$1"; cat "$1/token"; echo x >b.txt', str(place.folder), home=place.folder)

    assert done.text.startswith("one\nrepo\ncat: ")
    assert (place.repo / "b.txt").exists()


def test_a_store_in_the_checkout_is_hidden_and_its_neighbours_are_not(place: Place) -> None:
    folder = place.repo / ".podium"
    (folder / "agents").mkdir(parents=True)
    (folder / "agents" / "a.md").write_text("an agent")
    for name in ("podium.db", "podium.db-wal"):
        (folder / name).write_text("CANARY")

    done = place.bash("ls -A .podium; cat .podium/agents/a.md; grep -r CANARY . ; exit 0", store=folder / "podium.db")

    assert done.text == "agents\nan agent"


def test_secrets_in_the_checkout_cannot_be_read_unless_git_keeps_them(place: Place) -> None:
    (place.repo / "app").mkdir()
    for name in (".env", "app/.env.local", "id_rsa", "test.pem"):
        (place.repo / name).write_text("CANARY")
    place.git("add", "test.pem")

    hidden = place.bash("cat .env app/.env.local id_rsa; git grep --no-index CANARY -- .env; rm -f .env; echo x >.env")
    kept = place.bash("cat test.pem")
    shown = place.bash("cat app/.env.local", shown=["app/.env.local"])

    assert "CANARY" not in hidden.text
    assert (kept.text, shown.text) == ("CANARY", "CANARY")
    assert (place.repo / ".env").read_text() == "CANARY"


def test_the_home_folder_is_empty_and_private(place: Place) -> None:
    home = place.folder / "person"
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id_rsa").write_text("CANARY")
    before = os.environ["HOME"]
    os.environ["HOME"] = str(home)
    try:
        done = place.bash("ls -A ~; cat ~/.ssh/id_rsa; echo mine >~/x && cat ~/x; cat /etc/shadow")
    finally:
        os.environ["HOME"] = before

    assert "mine" in done.text
    assert "CANARY" not in done.text
    assert "root:" not in done.text
    assert not (home / "x").exists()


def test_other_processes_and_their_environment_are_not_seen(place: Place) -> None:
    os.environ["PODIUM_CANARY"] = "a-secret-value"
    try:
        done = place.bash("cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'; ls -d /proc/[0-9]* | wc -l")
    finally:
        del os.environ["PODIUM_CANARY"]

    assert "a-secret-value" not in done.text
    assert "pytest" not in done.text
    assert int(done.text.split()[-1]) < 8


def test_the_environment_is_a_short_list(place: Place) -> None:
    os.environ["ANTHROPIC_API_KEY"] = "CANARY"
    os.environ["LD_PRELOAD_X"] = "CANARY"
    try:
        done = place.run(["/usr/bin/env"])
    finally:
        del os.environ["ANTHROPIC_API_KEY"], os.environ["LD_PRELOAD_X"]

    names = {line.partition("=")[0] for line in done.text.splitlines() if not line.startswith("LC_")}
    assert "CANARY" not in done.text
    assert names - {
        "VIRTUAL_ENV",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "LANG",
        "TERM",
        "SHELL",
        "USER",
        "LOGNAME",
        "TZ",
    } <= {
        *("PATH", "HOME", "TMPDIR", "PAGER", "GIT_PAGER", "GIT_TERMINAL_PROMPT", "PWD", "CONDA_PREFIX", "JAVA_HOME"),
        *("LANGUAGE", "GOPATH", "GOROOT", "CARGO_HOME", "RUSTUP_HOME", "NVM_DIR"),
    }


REACHING = """
import socket, sys
port, path = int(sys.argv[1]), sys.argv[2]
def tries(name, act):
    try:
        act()
        print("reached", name)
    except OSError as error:
        pass
tries("tcp", lambda: socket.create_connection(("127.0.0.1", port), 2))
tries("tcp6", lambda: socket.create_connection(("::1", port), 2))
tries("world", lambda: socket.create_connection(("192.0.2.1", 80), 2))
tries("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53)))
tries("dns", lambda: socket.getaddrinfo("example.com", 80))
tries("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
tries("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
tries("vsock", lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM))
tries("unix", lambda: socket.socket(socket.AF_UNIX).connect(path))
tries("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\\0podium-canary"))
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, socket.SOCK_STREAM):
    tries(f"pair of {kind!r}", lambda: socket.socketpair(socket.AF_UNIX, kind)[0].sendto(b"x", path + ".datagrams"))
    tries(f"pair of {kind!r}", lambda: socket.socketpair(socket.AF_UNIX, kind)[0].connect(path + ".datagrams"))
a, b = socket.socketpair()
a.send(b"x")
print("pairs", b.recv(1))
"""


def test_there_is_no_way_to_the_network_and_to_sockets_of_others(place: Place) -> None:
    path = place.repo / "s"
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):
        datagrams.bind(f"{path}.datagrams")
        Path(f"{path}.datagrams").chmod(0o777)
        for server, address in ((named, str(path)), (abstract, "\0podium-canary")):
            server.bind(address)
            server.listen()
        path.chmod(0o777)

        done = place.python(REACHING, str(listener.getsockname()[1]), str(path))
        shell = place.bash("exec 3<>/dev/tcp/127.0.0.1/$1 && echo reached", str(listener.getsockname()[1]))

        assert (done.text, done.code) == ("pairs b'x'\n", 0)
        assert "reached" not in shell.text
        for server in (listener, named, abstract):
            server.setblocking(False)
            with pytest.raises(BlockingIOError):
                server.accept()
        with pytest.raises(BlockingIOError):
            datagrams.recv(1, socket.MSG_DONTWAIT)


CALLING = """
import ctypes, errno, os, pty, stat, sys
libc = ctypes.CDLL(None, use_errno=True)
def tells(name, result):
    print(name, errno.errorcode[ctypes.get_errno()] if result == -1 else "worked")
tells("trace", libc.ptrace(0, 0, None, None))
tells("user namespace", libc.unshare(0x10000000))
tells("mount namespace", libc.unshare(0x00020000))
tells("mount", libc.mount(b"none", b"/tmp", b"tmpfs", 0, None))
tells("chroot", libc.chroot(b"/tmp"))
tells("keys", libc.syscall(248, b"user", b"x", b"y", 1, -2)) if os.uname().machine == "x86_64" else None
tells("ring", libc.syscall(425, 1, ctypes.create_string_buffer(256)))
_, end = pty.openpty()
tells("typing", libc.ioctl(end, ctypes.c_ulong(0x5412), b"x"))
tells("typing, with rubbish above", libc.ioctl(end, ctypes.c_ulong(0x100005412), b"x"))
open("file", "w").close()
tells("setuid", libc.chmod(b"file", 0o4755))
tells("setuid by descriptor", libc.fchmod(os.open("file", os.O_RDONLY), 0o4755))
tells("setuid from the start", libc.open(b"file2", os.O_CREAT | os.O_WRONLY, 0o4755))
tells("setuid without a name", libc.open(b".", os.O_TMPFILE | os.O_RDWR, 0o4755))
tells("setgid without a name", libc.openat(-100, b".", os.O_TMPFILE | os.O_RDWR, 0o2755))
tells("device", libc.mknod(b"device", stat.S_IFCHR | 0o666, os.makedev(1, 3)))
tells("terminal", libc.open(b"/dev/tty", os.O_RDWR))
tells("without a name", libc.open(b".", os.O_TMPFILE | os.O_RDWR, 0o755))
tells("fifo", libc.mkfifo(b"fifo", 0o600))
tells("mode", libc.chmod(b"file", 0o755))
"""


def test_calls_that_reach_around_the_sandbox_are_denied(place: Place) -> None:
    done = place.python(CALLING)

    outcomes = dict(line.rsplit(" ", 1) for line in done.text.splitlines())
    assert outcomes.pop("fifo") == outcomes.pop("mode") == outcomes.pop("without a name") == "worked"
    assert outcomes.pop("terminal") == "ENXIO"
    assert set(outcomes.values()) == {"EPERM"}, outcomes
    assert len(outcomes) >= 12


def test_programs_that_need_threads_processes_and_pipes_work(place: Place) -> None:
    done = place.python(
        "import asyncio, concurrent.futures as f, subprocess, tempfile\n"
        "if __name__ == '__main__':\n"
        "    async def main():\n"
        "        p = await asyncio.create_subprocess_exec('echo', 'async', stdout=-1)\n"
        "        return (await p.communicate())[0]\n"
        "    print(asyncio.run(main()))\n"
        "    with f.ThreadPoolExecutor() as pool: print(list(pool.map(abs, [-1])))\n"
        "    with f.ProcessPoolExecutor(1) as pool: print(list(pool.map(abs, [-2])))\n"
        "    print(tempfile.gettempdir())\n"
    )

    assert done.text == "b'async\\n'\n[1]\n[2]\n/tmp\n"


def test_the_interpreter_that_runs_the_tests_works_inside(tmp_path: Path) -> None:
    """It works wherever it is installed, including under a home directory."""
    with new_place(WHO[0]) as place:
        done = place.bash("python -m pytest --version")

    assert done.text.startswith("pytest ")


def test_a_file_name_is_never_an_option_or_a_script(place: Place) -> None:
    done = place.run(["/bin/echo", "--ro-bind", "$(id)", "a b", "'", "--"])

    assert done.text == "--ro-bind $(id) a b ' --\n"


def test_hard_links_to_files_outside_cannot_be_made(place: Place) -> None:
    secret = place.folder / "secret"
    secret.write_text("CANARY")

    done = place.bash('ln "$1" link; ln -s "$1" soft; cat link soft; exit 0', str(secret), readable=[])

    assert "CANARY" not in done.text
    assert not (place.repo / "link").exists()
    subprocess.run(["rm", str(place.repo / "soft")], check=True)


async def test_a_sealed_script_runs_as_it_was_whatever_happens_to_its_file(tmp_path: Path) -> None:
    checkout = tmp_path / "repo"
    checkout.mkdir()
    (checkout / "deploy.sh").write_text("echo approved; echo more >> log.txt\n")
    found = await choose_sandbox([checkout], tmp_path / "home", tmp_path / "home" / "podium.db")
    assert found.seal is not None
    argv = found.seal(["/bin/sh", "deploy.sh"], {"deploy.sh": (checkout / "deploy.sh").read_bytes()})
    (checkout / "deploy.sh").write_text("echo swapped\n")
    said = CommandOutput()

    ended = await run_process(
        argv, env=build_environment(), directory=str(checkout), timeout=20, take=said.append_chunk
    )
    found.clean_up()

    assert (ended.code, str(said)) == (0, "approved\n")
    assert (checkout / "log.txt").read_text() == "more\n"
    assert (checkout / "deploy.sh").read_text() == "echo swapped\n"
    assert not list((tmp_path / "home" / "sandbox").glob("seal-*"))


ABSENT = (
    *(".jj", ".hg", ".sl", ".npmrc", ".yarnrc.yml", ".pnpmfile.cjs", ".cargo/config.toml", "rust-toolchain.toml"),
    *("mise.toml", ".devcontainer", ".pre-commit-config.yaml", ".exrc", "flake.nix", ".mise.toml", "shell.nix"),
    *(".config/mise.toml", ".yarn/releases"),
)


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_protected_paths_that_do_not_exist_are_not_made(place: Place, kind: str) -> None:
    make = {
        "file": 'echo x >"$name"',
        "folder": 'mkdir -p "$name/x"; echo x >"$name/x/y"',
        "link": 'ln -s /etc "$name"',
    }

    done = place.bash(
        f'for name in "$@"; do mkdir -p "$(dirname "$name")"; {make[kind]}; done; git status --short >/tmp/x; '
        "rmdir .config .yarn; exit 0",
        *ABSENT,
    )

    assert done.code == 0
    left = [name for name in ABSENT if os.path.lexists(place.repo / name)]
    assert left == []
    assert place.git("status", "--short") == ""
    kept = [path.name for path in (place.home / "sandbox" / "set-aside").iterdir()]
    assert [name for name in kept if name.endswith("-flake.nix")] != []


def test_a_protected_path_is_not_made_through_a_link(place: Place) -> None:
    place.bash("mkdir x; echo x >x/mise.toml; ln -s x .config")

    assert not (place.repo / ".config" / "mise.toml").exists()


def test_protected_files_that_were_there_stay_and_cannot_be_changed(place: Place) -> None:
    names = ("flake.nix", ".yarnrc.yml", "rust-toolchain.toml", ".pre-commit-config.yaml", ".cargo/config.toml")
    for name in names:
        (place.repo / name).parent.mkdir(exist_ok=True)
        (place.repo / name).write_text("theirs")
    for path in place.repo.rglob("*"):
        os.chown(path, place.repo.stat().st_uid, place.repo.stat().st_gid)

    done = place.bash('for name in "$@"; do cat "$name"; rm -f "$name"; echo x >"$name"; done; exit 0', *names)

    assert done.text.count("theirs") == len(names)
    assert [(place.repo / name).read_text() for name in names] == ["theirs"] * len(names)
