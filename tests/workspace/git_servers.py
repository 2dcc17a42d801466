"""Git servers for tests: a stub of ssh, and git's own HTTP server behind a small one on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

SSH = """#!{python}
'''Run the command for the host on this machine. With the file `stall`, hang after that many bytes of output.'''
import os, subprocess, sys, time
from pathlib import Path

here = Path(__file__).parent
with (here / "calls").open("a") as calls:
    print(*sys.argv, file=calls)
if not (here / "stall").exists():
    os.execvp("sh", ["sh", "-c", sys.argv[-1]])
left, git = int((here / "stall").read_text()), os.getppid()
with subprocess.Popen(["sh", "-c", sys.argv[-1]], stdout=subprocess.PIPE) as command:
    while left and (chunk := os.read(command.stdout.fileno(), left)):
        left -= len(chunk)
        os.write(1, chunk)
    if not left:
        (here / "stalled").touch()
        while os.getppid() == git:
            time.sleep(0.02)
        command.kill()
"""


def write_ssh_stub(folder: Path) -> Path:
    """Write the stub, and return its path."""
    folder.mkdir()
    stub = folder / "ssh"
    stub.write_text(SSH.replace("{python}", sys.executable))
    stub.chmod(0o755)
    return stub


class GitHandler(BaseHTTPRequestHandler):
    """Answers with git's HTTP server. Every request needs the name and the password."""

    root: ClassVar[Path]
    password: ClassVar[str] = "me:sesame"

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def _answer(self, body: bytes) -> None:
        if self.headers.get("Authorization") != f"Basic {b64encode(self.password.encode()).decode()}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_USER": "me",
        }
        done = subprocess.run(["git", "http-backend"], env=environment, input=body, capture_output=True, check=True)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        lines = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(lines.pop("Status", "200").split()[0]))
        for name, value in lines.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def serve_git(root: Path) -> Iterator[str]:
    """Serve the repositories in a folder over HTTP, and yield the address."""
    handler = type("Handler", (GitHandler,), {"root": root})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
