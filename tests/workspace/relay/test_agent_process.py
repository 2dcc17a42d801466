"""A whole agent in the sandbox: its streams, its home, its checkout, and nothing else but its relay."""

from __future__ import annotations

import os
import secrets
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import anyio
import pytest

from podium.testing.model_server import ModelServer
from podium.values.errors import Mistake
from podium.workspace.relay.sandbox_relay import COORDINATION_URL, MODEL_URL, ModelEndpoint
from podium.workspace.sandbox.sandboxed_agent import start_agent

from ..sandboxed import PYTHON
from ..test_sandbox_ends import find_processes
from .agents import AgentLab, new_agent_lab, read_streams

KEY = "sk-canary-5f0a7c21"


@pytest.fixture(scope="module")
def module_lab() -> Iterator[AgentLab]:
    with new_agent_lab() as made:
        yield made


@pytest.fixture
def lab(module_lab: AgentLab) -> AgentLab:
    module_lab.reports.clear()
    return module_lab


async def test_the_streams_are_the_agents_own(lab: AgentLab) -> None:
    done = await lab.run(["/bin/bash", "-c", "read -r line; echo out $line; echo err >&2; exit 3"], stdin=b"hello\n")

    assert (done.code, done.out, done.err) == (3, "out hello\n", "err\n")


async def test_the_home_persists_and_the_checkout_is_written(lab: AgentLab) -> None:
    first = await lab.bash('echo $HOME; echo state >"$HOME/state"; echo work >work.txt')
    second = await lab.bash('cat "$HOME/state"; ls "$HOME"')

    assert (first.out, second.out) == ("/home/agent\n", "state\nstate\n")
    assert (lab.repo / "work.txt").read_text() == "work\n"
    assert (lab.agent_home.stat().st_mode & 0o777, (lab.agent_home / "state").read_text()) == (0o700, "state\n")


async def test_an_agent_reads_the_folder_in_which_it_is_installed(lab: AgentLab) -> None:
    packages = lab.folder / "npm" / "node_modules"
    (packages / "agent" / "bin").mkdir(parents=True)
    (packages / "library").mkdir()
    (packages / "library" / "text").write_text("from a dependency\n")
    program = packages / "agent" / "bin" / "agent"
    program.write_text('#!/bin/bash\ncat "${BASH_SOURCE%/agent/bin/agent}/library/text"\n')
    program.chmod(0o755)
    linked = lab.folder / "npm" / "bin" / "agent"
    linked.parent.mkdir()
    linked.symlink_to(program)

    by_path, by_link = await lab.run([str(program)]), await lab.run(["/bin/bash", "-c", f"cat {program}"])

    assert by_path.out == "from a dependency\n"
    assert by_link.code != 0
    async with start_agent(lab.sandbox, [str(linked)], home=lab.agent_home, relay=lab.configure()) as agent:
        assert (await read_streams(agent))[1].startswith("cat: ")  # started through the link; it names the wrong folder


async def test_an_agent_without_services_runs_without_a_network(lab: AgentLab) -> None:
    done = await lab.bash(f"echo up; curl -s {COORDINATION_URL}; echo $?", coordination=None)

    assert done.out == "up\n7\n"


async def test_an_agent_that_only_reads_keeps_its_home(lab: AgentLab) -> None:
    reading = AgentLab(lab.folder, replace(lab.sandbox, profile="read-only", nested=None))

    done = await reading.bash("{ echo x >new.txt; } 2>/dev/null || echo refused; echo y >~/mine; cat ~/mine")

    assert done.out == "refused\ny\n"


async def test_a_name_that_an_agent_must_be_able_to_look_up_is_absent_and_reported_once_it_is_created(
    module_lab: AgentLab,
) -> None:
    lab = AgentLab(module_lab.folder, replace(module_lab.sandbox, creatable=("opencode.json",)))
    script = "cat opencode.json 2>&1 | grep -o 'No such file'; test -d .mcp.json && echo held; echo {} >opencode.json"

    first, second = await lab.bash(script), await lab.bash("{ echo x >opencode.json; } 2>/dev/null || echo read-only")
    (lab.repo / "opencode.json").unlink()

    assert first.out == "No such file\nheld\n"
    assert second.out == "read-only\n"
    assert lab.reports == [f"an agent created opencode.json in {lab.repo}; check it before another program reads it."]


@pytest.mark.parametrize(
    "url", ["", "ftp://host", "http://", "http://host:x", "https://user:key@host", "https://host?x=1", "https://[::1"]
)
def test_an_invalid_address_of_a_model_is_a_mistake(url: str) -> None:
    with pytest.raises(Mistake, match="is not the address of a model server"):
        ModelEndpoint(url=url)


PATHS = (
    *("/../admin", "/v1/../../admin", "/%2e%2e/admin", "/%252e%252e/admin", "/a/..%2fadmin", "/.%5c../x"),
    *("/x\\..\\y", "http://127.0.0.1/admin", "*", "/a%23/../b"),
)


async def test_only_paths_below_the_address_of_the_model_are_called(lab: AgentLab) -> None:
    curl = f"curl -s --path-as-is -o /dev/null -w '%{{http_code}} ' {MODEL_URL}/ --request-target"
    async with ModelServer() as server:
        done = await lab.bash(f'for path in "$@"; do {curl} "$path"; done', *PATHS, model=ModelEndpoint(url=server.url))

    assert done.out.split() == ["403"] * len(PATHS)


async def test_an_agent_may_not_use_the_model_address_as_a_proxy(lab: AgentLab) -> None:
    async with ModelServer() as server:
        script = f"curl -s -p -x {MODEL_URL} http://127.0.0.1:1/; echo $?"
        done = await lab.bash(script, model=ModelEndpoint(url=server.url))

    assert done.out == "56\n"  # the tunnel was refused


async def test_a_program_that_does_not_exist_is_a_mistake(lab: AgentLab) -> None:
    with pytest.raises(Mistake, match="program 'no-such-agent' not found"):
        await lab.run(["no-such-agent"])


WRITES = """
{ echo x >"$1"; } 2>/dev/null  # in the private /tmp, if anywhere
for place in /etc/written /usr/written "$HOME/../written" .git/written .podium/written; do
  { echo x >"$place"; } 2>/dev/null && echo "wrote $place"
done
ls "$2" 2>/dev/null
cat "$3" 2>/dev/null
env
"""


async def test_an_agent_writes_and_reads_nothing_else(lab: AgentLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    secret = lab.folder / "secret"
    secret.write_text("secret")

    done = await lab.bash(WRITES, str(lab.folder / "written"), str(lab.folder / "podium"), str(secret))

    assert "wrote" not in done.out
    assert "secret" not in done.out
    assert KEY not in done.out
    assert not (lab.folder / "written").exists()


CALLS_HOME = """
import socket, sys
for host, port in [("127.0.0.1", int(sys.argv[1])), ("1.1.1.1", 443), ("example.com", 80), ("::1", int(sys.argv[1]))]:
    try:
        socket.create_connection((host, port), timeout=2)
        print("connected", host)
    except OSError as error:
        pass
try:
    socket.socket(socket.AF_UNIX)
    print("unix")
except OSError:
    pass
"""


async def test_an_agent_reaches_neither_the_machine_nor_the_internet(lab: AgentLab) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        done = await lab.python(CALLS_HOME, str(listener.getsockname()[1]))

        with pytest.raises(BlockingIOError):
            listener.accept()
    assert (done.code, done.out, done.err) == (0, "", "")


async def test_curl_reaches_the_model_with_a_key_that_is_never_inside(lab: AgentLab) -> None:
    body = '{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'
    script = f"""env; curl -s {MODEL_URL}/chat/completions -H 'Authorization: Bearer x' -d '{body}'"""
    async with ModelServer({"m": ["hello from the model"]}, api_key=KEY) as server:
        model = ModelEndpoint(url=server.url, headers={"Authorization": f"Bearer {KEY}"})
        done = await lab.bash(script, model=model)

    assert "hello from the model" in done.out
    assert KEY not in done.out + repr(model)
    assert server.calls[0].headers["authorization"] == f"Bearer {KEY}"


AGENT = """
import json, sys, urllib.request
for line in sys.stdin:
    call = {"model": "m", "stream": True, "messages": [{"role": "user", "content": line}]}
    request = urllib.request.Request(sys.argv[1] + "/chat/completions", json.dumps(call).encode(), {"x-api-key": "x"})
    with urllib.request.urlopen(request) as answer:
        for part in answer:
            if part.startswith(b"data: {"):
                for choice in json.loads(part[6:])["choices"]:
                    print(choice["delta"].get("content") or "", end="", flush=True)
    print(flush=True)
"""


async def test_a_python_agent_talks_to_a_streaming_model(lab: AgentLab) -> None:
    async with ModelServer(api_key=KEY) as server:
        model = ModelEndpoint(url=server.url, headers={"authorization": f"Bearer {KEY}"})
        argv = [PYTHON, "-c", AGENT, MODEL_URL]
        async with start_agent(lab.sandbox, argv, home=lab.agent_home, relay=lab.configure(model=model)) as agent:
            answers = []
            for prompt in (b"one\n", b"two\n"):
                await agent.write_stdin(prompt)
                answer = b""
                while not answer.endswith(b"\n"):
                    answer += await agent.read_stdout()
                answers.append(answer)

    assert [answer.split() for answer in answers] == [[b"ok:", b"one"], [b"ok:", b"two"]]
    assert "x-api-key" not in server.calls[0].headers


PARALLEL = """
import sys, threading, urllib.request
found = []
def fetch():
    with urllib.request.urlopen(sys.argv[1]) as answer:
        found.append(answer.read())
threads = [threading.Thread(target=fetch) for _ in range(100)]
[one.start() for one in threads]
[one.join() for one in threads]
print(len(found), set(found))
"""


async def test_a_hundred_connections_at_once_are_all_answered(lab: AgentLab) -> None:
    waiting, all_there = 0, anyio.Event()

    async def answer_together(scope: object, receive: object, send: object) -> None:
        nonlocal waiting
        waiting += 1
        if waiting == 100:
            all_there.set()
        await all_there.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": b"together"})  # type: ignore[operator]

    done = await lab.python(PARALLEL, COORDINATION_URL, coordination=answer_together)

    assert done.out == "100 {b'together'}\n"


BIG = """
import hashlib, sys, urllib.request
body = bytes(range(256)) * (16 * 1024 * 4)
with urllib.request.urlopen(urllib.request.Request(sys.argv[1] + "/big", body)) as answer:
    received = answer.read()
print(len(received), received == body)
"""


async def test_big_bodies_pass_unchanged_in_both_directions(lab: AgentLab) -> None:
    async def echo(reader: anyio.abc.SocketStream) -> None:
        async with reader:
            received = bytearray()
            while b"\r\n\r\n" not in received:
                received += await reader.receive()
            head, _, body = received.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            while len(body) < length:
                body += await reader.receive()
            await reader.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, echo)
        done = await lab.python(BIG, MODEL_URL, model=ModelEndpoint(url=f"http://127.0.0.1:{port}"))
        group.cancel_scope.cancel()

    assert done.out == f"{16 * 1024 * 1024} True\n"


HALF_CLOSES = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as one:
    one.sendall(b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    one.shutdown(socket.SHUT_WR)
    data = b""
    while piece := one.recv(4096):
        data += piece
    print(data.endswith(b"hello"))
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as one:
    one.shutdown(socket.SHUT_WR)
    print(one.recv(4096))
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as one:
    one.sendall(b"GET / HTTP/1.1\\r\\nHost")
    one.shutdown(socket.SHUT_WR)
    print(one.recv(4096).split(b"\\r\\n")[0].startswith(b"HTTP/1.1 400"))
"""


async def test_connections_that_are_half_closed_are_answered_and_end(lab: AgentLab) -> None:
    done = await lab.python(HALF_CLOSES, COORDINATION_URL.rpartition(":")[2])

    assert (done.out, done.err) == ("True\nb''\nTrue\n", "")


FLOODS = """
import socket, sys
ports = [int(sys.argv[1])] * 400
held = []
for port in ports:
    one = socket.create_connection(("127.0.0.1", port))
    one.setblocking(False)
    held.append(one)
for one in held:
    try:
        one.send(b"POST / HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 999999999999\\r\\n\\r\\n")
        for _ in range(8):
            one.send(bytes(65536))
    except OSError:
        pass
print("flooded", flush=True)
"""


async def test_a_flood_is_held_back_and_the_next_agent_is_served(lab: AgentLab) -> None:
    async def never_answer(scope: object, receive: object, send: object) -> None:
        await anyio.sleep_forever()

    flooded = await lab.python(FLOODS, COORDINATION_URL.rpartition(":")[2], coordination=never_answer)
    served = await lab.bash(f"curl -s {COORDINATION_URL}")

    assert flooded.out == "flooded\n"
    assert served.out == "hello"


FORGES = """
import array, os, socket, sys
pair = socket.socket(fileno=int(sys.argv[1]))
sent = sys.argv[2]
pair.sendall(b"\\0" * 9)
pair.recv(9)
if sent == "descriptors":
    pair.sendmsg([b"\\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
    pair.sendall(b"\\0" * 8)
else:
    pair.sendall(b"\\xff" * 4096)
print("closed" if not pair.recv(1) else "answered", flush=True)
"""


async def test_a_program_in_place_of_the_forwarder_only_closes_its_own_relay(lab: AgentLab) -> None:
    from podium.system.child_process import OutputBuffer, build_environment, run_process
    from podium.workspace.relay.sandbox_relay import SandboxRelay

    class ForgedRelay(SandboxRelay):
        @property
        def command(self) -> tuple[str, ...]:
            return (PYTHON, "-c", FORGES, str(self.descriptor))

    output = OutputBuffer(1000)
    command = lab.sandbox.wrap(["forged"], relay=ForgedRelay(lab.configure()))
    await run_process(command, env=build_environment(), directory=lab.repo, take=output.append, timeout=20)

    assert bytes(output) == b"closed\n"
    assert len(lab.reports) == 1
    assert "a program in the sandbox sent invalid data" in lab.reports[0]


async def test_an_agent_that_kills_its_forwarder_has_no_network_left(lab: AgentLab) -> None:
    done = await lab.bash(
        f"for one in /proc/[0-9]*; do grep -qs _forwarde[r] $one/cmdline && kill -9 ${{one#/proc/}}; done;"
        f"curl -s {COORDINATION_URL}; echo $?"
    )

    assert done.out == "7\n"


async def test_nothing_survives_the_block_that_started_the_agent(lab: AgentLab) -> None:
    token = f"token-{secrets.token_hex(8)}"
    script = f"trap '' TERM HUP; (setsid bash -c 'sleep 999; :' {token} &); echo ready; sleep 999"
    argv = ["/bin/bash", "-c", script, token]
    async with start_agent(lab.sandbox, argv, home=lab.agent_home, relay=lab.configure(), grace=0.1) as agent:
        assert await agent.read_stdout() == b"ready\n"
        assert find_processes(token)

    assert find_processes(token) == []


async def test_kill_9_of_the_agent_ends_everything_in_its_sandbox(lab: AgentLab) -> None:
    token = f"token-{secrets.token_hex(8)}"
    script = f"(setsid bash -c 'sleep 999; :' {token} &); echo ready; kill -9 $$"

    with anyio.fail_after(20):
        done = await lab.bash(script)

    assert done.out == "ready\n"
    assert done.code in (137, -9)
    assert find_processes(token) == []


PARENT = """
import anyio, sys
from pathlib import Path
from podium.workspace.relay.sandbox_relay import RelayConfiguration
from podium.workspace.sandbox.sandboxed_agent import start_agent
from podium.workspace.sandbox.bubblewrap import Sandbox

async def application(scope, receive, send):
    await anyio.sleep_forever()

async def main():
    folder = Path(sys.argv[1])
    sandbox = await Sandbox.find(folder / "repo", home=folder / "podium")
    argv = ["/bin/bash", "-c", "(setsid bash -c 'sleep 999; :' $0 &); echo ready; sleep 999", sys.argv[2]]
    relay = RelayConfiguration(coordination=application)
    async with start_agent(sandbox, argv, home=folder / "agent-home", relay=relay) as agent:
        print((await agent.read_stdout()).decode(), flush=True)
        await agent.wait()

anyio.run(main)
"""


def test_kill_9_of_podium_leaves_no_process(lab: AgentLab) -> None:
    token = f"token-{secrets.token_hex(8)}"
    argv = [sys.executable, "-c", PARENT, str(lab.folder), token]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as ours:
        assert ours.stdout is not None
        assert ours.stdout.readline() == b"ready\n"
        found = {pid: os.pidfd_open(pid) for pid in find_processes(token) if pid != ours.pid}

        ours.send_signal(signal.SIGKILL)

    assert found
    for descriptor in found.values():
        assert select.select([descriptor], [], [], 2)[0]
        os.close(descriptor)
    assert find_processes(token) == []
