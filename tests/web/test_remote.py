"""`podium --server`: a laptop uses the Podium of another machine, which a real server represents here."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import anyio
import httpx
import msgspec
import pexpect  # type: ignore[import-untyped]  # it has no types
import pytest
from click.testing import CliRunner
from click.testing import Result as Invoked

from podium.cli.root import podium
from podium.runs.run_lookup import derive_run_state
from podium.store.command_keys import claim_command_key
from podium.store.follower import Follower
from podium.store.reader import StoreReader
from podium.values.event import Entry, Event, MessageReceived, PermissionAnswered, PermissionAsked, TurnStarted
from podium.web.api.access_tokens import TokenFile
from podium.web.remote_command import RemoteCommand, read_frames

from ..cli.conftest import read_until_exit, wait_for
from .test_serve import PODIUM, make_environment, serve

ASKS = {"calls": [{"name": "bash", "arguments": {"command": "touch done.txt"}}]}
SILENT = {"silent": True}
AGES = re.compile(r"\d+\w+ ago")


class CuttingProxy:
    """Forwards connections to a server, and cuts the next one as soon as the response contains some bytes."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.target = 0
        self.cut_at: bytes | None = None

    def forward(self) -> None:
        while True:
            try:
                client, _ = self.listening.accept()
            except OSError:  # the test has ended
                return
            cut_at, self.cut_at = self.cut_at, None
            server = socket.create_connection(("127.0.0.1", self.target))
            threading.Thread(target=copy_bytes, args=(client, server, None), daemon=True).start()
            threading.Thread(target=copy_bytes, args=(server, client, cut_at), daemon=True).start()


def copy_bytes(source: socket.socket, target: socket.socket, cut_at: bytes | None) -> None:
    seen = b""
    try:
        while chunk := source.recv(65536):
            target.sendall(chunk)
            seen += chunk
            if cut_at is not None and cut_at in seen:
                break
    except OSError:  # the other direction has ended
        pass
    finally:
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@dataclass(kw_only=True)
class Machines:
    """A server's machine with scripted agents, and a laptop with a home of its own."""

    repo: Path
    laptop: Path
    address: str
    process: subprocess.Popen[str]
    proxy: CuttingProxy

    @property
    def home(self) -> Path:
        return self.repo / "home"

    @property
    def store(self) -> Path:
        return self.home / "podium.db"

    def call(self, *arguments: str, input: str | None = None, address: str = "") -> Invoked:
        """Call podium on the laptop, for the server."""
        return self._invoke(self.laptop, ("--server", address or self.address, *arguments), input)

    def call_locally(self, *arguments: str) -> Invoked:
        """Call podium on the server's machine."""
        return self._invoke(self.home, arguments, None)

    def login(self, *arguments: str) -> Invoked:
        return self._invoke(self.laptop, ("login", *arguments), None)

    def _invoke(self, home: Path, arguments: tuple[str, ...], input: str | None) -> Invoked:
        environment = {"PODIUM_HOME": str(home), "PODIUM_STORE": None, "NO_COLOR": "1", "COLUMNS": "100"}
        before = Path.cwd()
        os.chdir(self.repo if home == self.home else self.laptop.parent)
        try:
            return CliRunner().invoke(podium, arguments, env=environment, input=input)
        finally:
            os.chdir(before)

    @contextmanager
    def start_podium(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Call podium on the laptop, for the server, in a process that runs during the block."""
        with subprocess.Popen(
            [*PODIUM, "--server", self.address, *arguments],
            cwd=self.laptop,
            env=make_environment(self.laptop),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def write_agent(self, name: str, *moves: str | dict[str, Any], **keys: Any) -> None:
        front = "\n".join(f"{key}: {json.dumps(value)}" for key, value in {"engine": "scripted", **keys}.items())
        folder = self.repo / ".podium" / "agents"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.md").write_text(
            f"---\ndescription: {name}\n{front}\n---\n```script\n{json.dumps(moves)}\n```\n"
        )

    def start(self, agent: str, request: str = "go") -> str:
        """Start a run in the background of the server and return its id."""
        done = self.call("run", agent, request, "--detach")
        assert done.exit_code == 0, done.stderr
        return done.stdout.strip()

    def wait_for(self, run: str, kind: type[Event]) -> Entry:
        """Wait for an event of a run."""

        async def wait() -> Entry:
            with Follower(self.store, run) as entries:
                async for entry in entries:
                    if isinstance(entry.event, kind):
                        return entry
            raise AssertionError(f"the run ended without {kind.__name__}")

        return anyio.run(wait)

    def read_events(self, run: str) -> list[Event]:
        with StoreReader(self.store) as reader:
            return [entry.event for entry in reader.read_entries(run)]


@contextmanager
def open_machines(folder: Path, *options: str) -> Iterator[Machines]:
    repo = folder / "server"
    subprocess.run(["git", "init", "-q", repo], check=True)
    (repo / ".gitignore").write_text("home/\n")
    git = ["git", "-C", str(repo), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "Base"], check=True)
    proxy = CuttingProxy()
    with (
        closing(proxy.listening),
        serve(repo, "--public-name", f"127.0.0.1:{proxy.port}", *options) as (printed, process),
    ):
        proxy.target = int(printed["address"].rpartition(":")[2])
        threading.Thread(target=proxy.forward, daemon=True).start()
        machines = Machines(
            repo=repo, laptop=folder / "laptop", address=printed["address"], process=process, proxy=proxy
        )
        fingerprint = ("--fingerprint", printed["fingerprint"]) if printed["fingerprint"] else ()
        signed_in = machines.login(printed["sign_in"], *fingerprint)
        assert signed_in.exit_code == 0, signed_in.stderr
        yield machines


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with open_machines(tmp_path_factory.mktemp("machines")) as machines:
        machines.write_agent("speaker", "It is **done**.")
        machines.write_agent("asker", ASKS, "asked", tools=["bash"])
        machines.write_agent("silent", SILENT)
        machines.write_agent("broken", {"fails": "no such model"})
        yield machines


@pytest.fixture(scope="module")
def ended(machines: Machines) -> str:
    """Return a run that has ended."""
    run = machines.start("speaker", "Say it")
    assert machines.call("follow", run).exit_code == 0
    return run


@pytest.mark.parametrize(
    "arguments",
    [
        ("ps",),
        ("show", "RUN"),
        pytest.param(("logs", "RUN"), marks=pytest.mark.slow),
        ("logs", "RUN", "--jsonl"),
        pytest.param(("cost", "RUN"), marks=pytest.mark.slow),
        pytest.param(("verify", "RUN"), marks=pytest.mark.slow),
        pytest.param(("workers", "status", "RUN"), marks=pytest.mark.slow),
        ("show", "unknown"),
        pytest.param(("logs", "RUN", "--kind", "unknown"), marks=pytest.mark.slow),
        ("show",),
    ],
    ids=" ".join,
)
def test_a_command_prints_the_same_as_on_the_servers_machine(
    machines: Machines, ended: str, arguments: tuple[str, ...]
) -> None:
    words = [ended if word == "RUN" else word for word in arguments]

    there, here = machines.call(*words), machines.call_locally(*words)

    assert there.exit_code == here.exit_code
    assert AGES.sub("", there.stdout) == AGES.sub("", here.stdout)
    assert AGES.sub("", there.stderr) == AGES.sub("", here.stderr)


def test_the_laptop_keeps_only_the_token(machines: Machines, ended: str) -> None:
    assert machines.call("show", ended).exit_code == 0

    assert sorted(path.name for path in machines.laptop.iterdir()) == ["servers.json", "servers.lock"]
    assert stat.S_IMODE((machines.laptop / "servers.json").stat().st_mode) == 0o600


def test_a_run_is_followed_to_its_end_with_its_answer_on_standard_output(machines: Machines) -> None:
    done = machines.call("run", "speaker", "-", input="Say it, please")
    as_json = machines.call("run", "speaker", "Say it", "--json")
    failed = machines.call("run", "broken", "Say it", "--quiet")
    unknown = machines.call("run", "nobody", "Say it")

    assert (done.exit_code, done.stdout) == (0, "It is **done**.\n")
    assert 'request to speaker: "Say it, please"' in done.stderr
    assert json.loads(as_json.stdout)["text"] == "It is **done**."
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert failed.stderr.startswith("podium: ")
    assert unknown.exit_code == 2
    assert unknown.stderr.startswith('podium: agent "nobody" not found')


def test_a_waiting_request_is_listed_and_answered_once(machines: Machines) -> None:
    run = machines.start("asker")
    asked = machines.wait_for(run, PermissionAsked).event
    assert isinstance(asked, PermissionAsked)

    listed = machines.call("approvals")
    approved = machines.call("approve", asked.id)
    again = machines.call("deny", asked.id, "--why", "too late")
    followed = machines.call("follow", run)

    assert asked.id in listed.stdout
    assert (approved.exit_code, approved.stderr) == (0, f"{asked.id} was allowed\n")
    assert again.exit_code == 6
    assert "was already answered: once by" in again.stderr
    assert (followed.exit_code, followed.stdout) == (0, "asked\n")
    answers = [one for one in machines.read_events(run) if isinstance(one, PermissionAnswered)]
    assert [(one.decision, one.channel) for one in answers] == [("once", "api")]
    assert (machines.repo / "done.txt").exists()


@pytest.mark.slow
def test_a_run_is_steered(machines: Machines) -> None:
    run = machines.start("silent")
    machines.wait_for(run, TurnStarted)

    sent = machines.call("send", f"{run}/silent", "-", input="Hurry")
    limited = machines.call("budget", run, "tokens=5")
    stopped = machines.call("stop", run)
    over = machines.call("pause", run)

    assert (sent.exit_code, sent.stderr) == (0, "silent will receive the message with its next model call\n")
    assert (limited.exit_code, stopped.exit_code) == (0, 0)
    assert f"run {run} has ended (cancelled)" in stopped.stderr
    assert (over.exit_code, over.stderr) == (2, f"podium: run {run} has ended (cancelled) and cannot be paused\n")
    assert [one.text for one in machines.read_events(run) if isinstance(one, MessageReceived)] == ["Hurry"]


@pytest.mark.slow
def test_a_paused_run_is_resumed_and_its_requests_wait_for_an_answer(machines: Machines) -> None:
    run = machines.start("asker")
    asked = machines.wait_for(run, PermissionAsked).event
    assert isinstance(asked, PermissionAsked)

    paused = machines.call("pause", run)
    denied = machines.call("deny", asked.id)
    resumed = machines.call("resume", run)
    followed = machines.call("follow", run)

    assert (paused.exit_code, denied.exit_code, resumed.exit_code) == (0, 0, 0)
    assert paused.stderr.endswith(f"paused; continue with: podium resume {run}\n")
    assert (followed.exit_code, followed.stdout) == (0, "asked\n")


@pytest.mark.slow
def test_a_fork_runs_on_the_server_and_its_requests_wait_for_an_answer(machines: Machines) -> None:
    run = machines.start("asker")
    asked = machines.wait_for(run, PermissionAsked).event
    assert isinstance(asked, PermissionAsked)
    assert machines.call("deny", asked.id, "--stop").exit_code == 0

    with machines.start_podium("fork", run, "--at", "1") as forking:
        fork = wait_for(forking.stderr, f"forked from run {run}").split()[1].rstrip(":")
        again = machines.wait_for(fork, PermissionAsked).event
        assert isinstance(again, PermissionAsked)
        approved = machines.call("approve", again.id)
        said, _ = read_until_exit(forking)

    assert approved.exit_code == 0
    assert (forking.returncode, said) == (0, "asked\n")


@pytest.mark.slow
def test_a_run_continues_when_the_laptop_stops_following_it(machines: Machines) -> None:
    with machines.start_podium("run", "silent", "go") as following:
        wait_for(following.stderr, "silent: calling")
        following.send_signal(signal.SIGINT)
        _, said = read_until_exit(following)

    assert following.returncode == 130
    run = re.findall(r"run (\w+) continues on the server; follow it with: podium --server http", said)[0]
    with StoreReader(machines.store) as reader:
        assert derive_run_state(reader.read_summary(run)) == "running"
    assert machines.call("stop", run).exit_code == 0


def test_a_worker_is_delegated_and_cancelled_in_the_servers_repository(machines: Machines) -> None:
    sent = machines.call("delegate", "feat/a", "Write it", "--agent", "silent", "--repo", str(machines.repo))
    machines.wait_for(sent.stdout.strip(), TurnStarted)
    cancelled = machines.call("workers", "cancel", "feat/a")
    listed = machines.call("workers", "--json")

    assert (sent.exit_code, cancelled.exit_code) == (0, 0)
    [worker] = [one for one in json.loads(listed.stdout)["workers"] if one["branch"] == "feat/a"]
    assert (worker["id"], worker["state"]) == (sent.stdout.strip(), "cancelled")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("doctor",), "podium doctor does not work with --server; run it on the server's machine"),
        (("chat",), "podium chat does not work with --server"),
        (("team", "delete", "x"), "podium team delete does not work with --server"),
        (("workers", "--repo", ".", "cleanup"), "podium workers cleanup does not work with --server"),
        (("run", "speaker", "x", "--no-sandbox"), "podium run --no-sandbox does not work with --server"),
        (("run", "speaker", "x", "--permissions", "bypass"), "podium run --permissions does not work with --server"),
        (("plan", "x", "--edit"), "podium plan --edit does not work with --server"),
        (("send", "x", "y", "--attach", "/etc/passwd"), "podium send --attach does not work with --server"),
        (("delegate", "b", "t", "--auto-approve", "Bash"), "podium delegate --auto-approve does not work"),
    ],
    ids=lambda one: one if isinstance(one, str) else " ".join(one),
)
def test_what_needs_the_servers_own_terminal_is_refused(
    machines: Machines, arguments: tuple[str, ...], says: str
) -> None:
    done = machines.call(*arguments)

    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"podium: {says}")


def test_a_token_can_do_what_its_scopes_allow_until_it_is_revoked(machines: Machines, ended: str) -> None:
    secret, token = TokenFile(machines.home).create_token("reader", ["read"])
    before = (machines.laptop / "servers.json").read_bytes()
    try:
        assert machines.login(machines.address, "--token", secret).exit_code == 0
        seen, stopped, approved = (machines.call(*words) for words in (("ps",), ("stop", ended), ("approve", "x")))
        TokenFile(machines.home).revoke_token(token.id)
        revoked = machines.call("ps")
    finally:
        (machines.laptop / "servers.json").write_bytes(before)

    assert seen.exit_code == 0
    assert (stopped.exit_code, approved.exit_code) == (2, 2)
    assert stopped.stderr == "podium: podium stop needs a token with the scope act; yours has read\n"
    assert "needs a token with the scope approve" in approved.stderr
    assert (revoked.exit_code, revoked.stderr) == (
        2,
        f"podium: {machines.address} does not accept the token; sign in again with: podium login ADDRESS\n",
    )


@pytest.mark.slow
def test_a_command_whose_connection_breaks_is_carried_out_once_and_printed_whole(machines: Machines) -> None:
    run = machines.start("silent")
    machines.wait_for(run, TurnStarted)
    address = f"http://127.0.0.1:{machines.proxy.port}"
    secret, _ = TokenFile(machines.home).create_token("proxied", ["read", "act"])
    assert machines.login(address, "--token", secret).exit_code == 0

    machines.proxy.cut_at = b"HTTP/1.1 200"
    sent = machines.call("send", run, "Once", address=address)
    machines.proxy.cut_at = b"stopping run"
    stopped = machines.call("stop", run, address=address)

    assert (sent.exit_code, sent.stderr) == (0, "silent will receive the message with its next model call\n")
    assert stopped.exit_code == 0
    assert [line.split(f" {run}")[0] for line in stopped.stderr.splitlines()] == ["stopping run", "run"]
    assert [one.text for one in machines.read_events(run) if isinstance(one, MessageReceived)] == ["Once"]


@pytest.mark.slow
def test_a_command_that_looks_ends_on_the_server_when_its_client_disconnects(machines: Machines) -> None:
    run = machines.start("silent")
    machines.wait_for(run, TurnStarted)
    secret, _ = TokenFile(machines.home).create_token("follower", ["read"])
    headers = {"Authorization": f"Bearer {secret}"}
    body = {"arguments": ["logs", run, "-f"]}

    with ExitStack() as stack:
        client = stack.enter_context(httpx.Client(base_url=machines.address, headers=headers, timeout=20))
        response = stack.enter_context(client.stream("POST", "/api/commands", json=body))
        chunks = response.iter_bytes()  # an iterator that nothing refers to would close the connection
        assert any(b"started" in chunk for chunk in chunks)
        [child] = list_children(machines.process.pid)
        exited = os.pidfd_open(child)
    with closing(os.fdopen(exited)):
        assert select.select([exited], [], [], 20)[0]
    assert machines.call("stop", run).exit_code == 0


def list_children(process: int) -> list[int]:
    """Return the processes that run commands for clients of a server."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(child) for child in children if b"remote_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def test_a_key_returns_the_output_of_its_command_and_of_no_other(machines: Machines, ended: str) -> None:
    secret, _ = TokenFile(machines.home).create_token("keys", ["read", "act"])
    headers = {"Authorization": f"Bearer {secret}", "Idempotency-Key": "k1"}

    with httpx.Client(base_url=machines.address, headers=headers, timeout=20) as client:
        first = client.post("/api/commands", json={"arguments": ["stop", ended]})
        again = client.post("/api/commands", json={"arguments": ["stop", ended]})
        other = client.post("/api/commands", json={"arguments": ["ps"]})

    assert first.content == again.content
    frames = list(read_frames(BytesIO(first.content).read))
    assert b"has ended (succeeded)" in frames[0].data
    assert frames[-1].data == b"2"
    assert other.status_code == 422


def test_a_command_that_a_server_did_not_finish_is_not_carried_out_again(machines: Machines, ended: str) -> None:
    secret, _ = TokenFile(machines.home).create_token("restart", ["read", "act"])
    command = RemoteCommand(arguments=("pause", ended), scopes=("read", "act"))
    claim_command_key(machines.store, "k2", sha256(msgspec.json.encode(command)).hexdigest())

    headers = {"Authorization": f"Bearer {secret}", "Idempotency-Key": "k2"}
    response = httpx.post(
        f"{machines.address}/api/commands", json={"arguments": ["pause", ended]}, headers=headers, timeout=20
    )

    assert response.status_code == 409
    assert response.json()["detail"].startswith("the server stopped while this command was running")


def test_an_address_that_is_no_server_or_is_unknown_gets_one_sentence(machines: Machines) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        gone = f"http://127.0.0.1:{taken.getsockname()[1]}"
    unknown = machines.call("ps", address="https://192.0.2.7:8420")
    plain = machines.login("http://192.0.2.7:8420/#code=x")
    closed = machines.login(f"{gone}/#code=x")
    used = machines.login(f"{machines.address}/#code=used")

    assert (unknown.exit_code, plain.exit_code, closed.exit_code, used.exit_code) == (2, 2, 1, 2)
    assert "not signed in to https://192.0.2.7:8420; sign in with: podium login https://192.0.2.7" in unknown.stderr
    assert "is not encrypted" in plain.stderr
    assert closed.stderr == (
        f"podium: cannot reach {gone}: Connection refused; check the address, and that podium serve is running there\n"
    )
    assert "the code is unknown, already used or expired" in used.stderr


def test_another_certificate_than_the_trusted_one_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with open_machines(tmp_path, "--host", "127.0.0.2") as machines:
        file = machines.laptop / "servers.json"
        [saved] = json.loads(file.read_text())
        seen = machines.call("ps", "--json")
        not_confirmed = machines.login(f"{machines.address}/#code=x")
        not_the_same = machines.login(f"{machines.address}/#code=x", "--fingerprint", "AA:BB")
        file.write_text(json.dumps([{**saved, "fingerprint": "AA:BB"}]))
        changed = machines.call("ps")
        left = machines.login(machines.address, "--forget")
        file.write_text(json.dumps([saved]))
        forgotten = machines.login(machines.address, "--forget")
        signed_out = machines.call("ps")
        secret, _ = TokenFile(machines.home).create_token("laptop", ["read"])
        declined = login_at_terminal(machines, secret, "n")
        agreed = login_at_terminal(machines, secret, "y")
        [again] = json.loads(file.read_text())

    assert (seen.exit_code, json.loads(seen.stdout)["runs"]) == (0, [])
    assert (not_confirmed.exit_code, not_the_same.exit_code, changed.exit_code, left.exit_code) == (2, 2, 2, 2)
    assert (
        f"fingerprint {saved['fingerprint']}; check that podium serve printed the same fingerprint on the server"
        in not_confirmed.stderr
    )
    assert f"fingerprint {saved['fingerprint']}, not AA:BB" in not_the_same.stderr
    assert changed.stderr == (
        f"podium: the certificate of {machines.address} has changed: its SHA-256 fingerprint is "
        f"{saved['fingerprint']}, not AA:BB; if you know why, sign in again with: podium login {machines.address}\n"
    )
    assert forgotten.exit_code == 0
    assert signed_out.stderr.startswith(f"podium: not signed in to {machines.address}")
    assert (declined, agreed, again["fingerprint"]) == (2, 0, saved["fingerprint"])


def login_at_terminal(machines: Machines, secret: str, answer: str) -> int:
    """Sign in at a terminal, answer the question about the certificate, and return the exit code."""
    arguments = [*PODIUM[1:], "login", machines.address, "--token", secret]
    child = pexpect.spawn(PODIUM[0], arguments, env=make_environment(machines.laptop), encoding="utf-8", timeout=20)
    with closing(child):
        child.expect_exact("Did podium serve print the same fingerprint on the server?")
        child.sendline(answer)
        child.expect_exact(pexpect.EOF)
    return int(child.exitstatus)


def test_a_server_that_is_gone_is_named(tmp_path: Path) -> None:
    with open_machines(tmp_path) as machines:
        machines.process.kill()
        machines.process.wait()
        gone = machines.call("ps")

    assert gone.exit_code == 1
    assert gone.stderr.startswith(f"podium: cannot reach {machines.address}: Connection refused; check the address")
