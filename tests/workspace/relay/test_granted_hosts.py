"""Commands reach the hosts that the person granted, and nothing else."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anyio
import pytest

from podium.workspace.relay.host_grant import HostGrant

from ..sandboxed import PYTHON, WHO, Place, new_place, ordinary_user
from ..test_sandbox import warm_up


class Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serve_hello() -> Iterator[int]:
    """Serve a page on this machine, and yield the port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Hello) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serve_hello() as found:
        yield found


@pytest.fixture(scope="module", autouse=True)
def readable_programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use an interpreter that an ordinary user can read, and import lazily loaded modules now."""
    anyio.run(warm_up, tmp_path_factory.mktemp("warm"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", PYTHON)
        yield


@pytest.fixture(scope="module", params=WHO)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with ordinary_user(), new_place(request.param) as made:
        yield made


def test_a_granted_host_is_reached_and_others_are_not(place: Place, port: int) -> None:
    with serve_hello() as other:
        done = place.bash(
            f"curl -s http://127.0.0.1:{port}/; echo; curl -s -w '%{{http_code}}' -o /dev/null http://127.0.0.1:{other}/",
            hosts=[HostGrant.parse(f"127.0.0.1:{port}")],
        )

    assert done.text == "hello\n403"


def test_a_command_with_granted_hosts_has_no_other_way_out(place: Place, port: int) -> None:
    script = "curl -s --noproxy '*' http://127.0.0.1:{0}/; echo $?; (: </dev/tcp/127.0.0.1/{0}) 2>/dev/null; echo $?"

    done = place.bash(script.format(port), hosts=[HostGrant.parse("ok.test")])

    assert done.text == "7\n1\n"


def test_a_command_with_granted_hosts_has_no_input_and_its_exit_code(place: Place) -> None:
    done = place.bash("cat; echo out; echo err >&2; exit 5", hosts=[HostGrant.parse("ok.test")])

    assert (done.code, done.text) == (5, "out\nerr\n")
    assert place.run(["/nonexistent"], hosts=[HostGrant.parse("ok.test")]).code == 127
