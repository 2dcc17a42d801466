"""Small programs that play `gh api` and `glab api` from a folder of JSON files."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from podium.system.whole_file import replace_file

PROGRAM = """#!{python}
import json, os, pathlib, signal, sys, time
from urllib.parse import parse_qs, unquote, urlsplit
folder = pathlib.Path({folder!r})
words, given = sys.argv[1:], sys.stdin.read()
with (folder / "calls").open("a") as file:
    print(json.dumps([*words, given]), file=file)
mode = json.loads((folder / "mode.json").read_text())
if mode.get("says"):
    sys.exit(mode["says"])
if mode.get("hangs"):
    time.sleep(600)
while mode.get("floods"):
    sys.stdout.write("[" * 1048576)
url = urlsplit(words[1])
query = {{key: values[0] for key, values in parse_qs(url.query).items()}}
parts = [unquote(part) for part in url.path.split("/")]
is_github = parts[0] == "repos"
comments = folder / "comments.json"
if "members" in parts:
    if parts[-1] not in mode.get("members", ()):
        sys.exit("glab: 404 Not found (HTTP 404)")
    print(json.dumps({{"id": int(parts[-1]), "access_level": 30}}))
elif parts[-1] == "issues":
    size, page = int(query["per_page"]), 1 if mode.get("repeats") else int(query["page"])
    issues = json.loads((folder / "issues.json").read_text())
    labels = set(query["labels"].split(",")) if "labels" in query else set()
    names = lambda one: {{name if isinstance(name, str) else name["name"] for name in one["labels"]}}
    issues = [one for one in issues if labels <= names(one)]
    print(json.dumps(issues[size * (page - 1):size * page]))
elif "--method=POST" in words:
    known = json.loads(comments.read_text()) if comments.exists() else []
    known.append({{"id": len(known) + 1, "issue": parts[-2], "body": json.loads(given)["body"]}})
    comments.write_text(json.dumps(known))
    if mode.get("kills"):  # the process that called is killed before it gets the reply
        os.kill(os.getppid(), signal.SIGKILL)
    print(json.dumps({{"id": len(known), "html_url": "https://forge.example/c/" + str(len(known))}}))
else:
    known = json.loads(comments.read_text()) if comments.exists() else []
    print(json.dumps([{{**one, "html_url": "https://forge.example/c/" + str(one["id"])}} for one in known]))
"""


class PlayedForge:
    """A forge whose programs are in `bin`. Its issues and comments are in files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        self.play()
        self.write_issues([])
        for name in ("gh", "glab"):
            (self.bin / name).write_text(PROGRAM.format(python=sys.executable, folder=str(folder)))
            (self.bin / name).chmod(0o755)

    @property
    def path(self) -> str:
        return f"{self.bin}{os.pathsep}{os.environ['PATH']}"

    def play(self, **mode: Any) -> None:
        """Choose how the programs behave from now on: `says`, `hangs`, `floods`, `repeats`, `kills` or `members`."""
        replace_file(self.folder / "mode.json", json.dumps(mode).encode())

    def write_issues(self, issues: list[dict[str, Any]]) -> None:
        replace_file(self.folder / "issues.json", json.dumps(issues).encode())

    @property
    def calls(self) -> list[list[str]]:
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def comments(self) -> list[dict[str, Any]]:
        path = self.folder / "comments.json"
        return list(json.loads(path.read_text())) if path.exists() else []


def github_issue(number: int, title: str = "A bug", body: str | None = "It fails.", **fields: Any) -> dict[str, Any]:
    """Return an issue as GitHub's API does."""
    return {
        "number": number,
        "title": title,
        "body": body,
        "user": {"login": "alice"},
        "labels": [],
        "html_url": f"https://forge.example/i/{number}",
        "author_association": "MEMBER",
        "updated_at": f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}Z",
        **fields,
    }


def gitlab_issue(number: int, title: str = "A bug", body: str = "It fails.", **fields: Any) -> dict[str, Any]:
    """Return an issue as GitLab's API does."""
    return {
        "iid": number,
        "title": title,
        "description": body,
        "author": {"id": 5, "username": "alice"},
        "labels": [],
        "web_url": f"https://lab.example/i/{number}",
        **fields,
    }
