"""A store with runs of every kind, and every JSON answer about it: of the commands and of the API.

`python -m tests.golden.scene` writes the files that the tests compare with. Look at their difference before it is
committed: programs of users read these answers.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from click.testing import CliRunner

from podium.cli.root import podium
from podium.testing import calls
from podium.values.event import PermissionAsked

from ..protocols.conftest import write_agent
from ..web import screen_data as data
from ..web.api_client import ApiClient
from ..web.conftest import Site, open_site

FOLDER = Path(__file__).parent
COMMANDS, ROUTES = FOLDER / "commands.json", FOLDER / "routes.json"

RUN = data.PLAN_RUN
ARGUMENTS: dict[str, list[str]] = {
    "agents show": ["greeter"],
    "artifacts": [RUN],
    "audit": [RUN],
    "budget": [data.BUDGET_RUN],
    "cost": [RUN],
    "decisions show": ["d1"],
    "graph": ["pair"],
    "plan": [RUN],
    "policy check": ["--", "rm -rf build"],
    "policy explain": ["--", "git push --force"],
    "results": [RUN],
    "show": [RUN],
    "team show": ["pair"],
    "verify": [data.DECIDED_RUN],
    "workers status": ["feat/csv"],
    "workers wait": ["feat/csv"],
}
"""What the commands with `--json` that look at something get; the others are called without arguments."""

ACTING = {
    *(
        "run",
        "resume",
        "fork",
        "retry",
        "undo",
        "delegate",
        "merge",
        "watch",
        "decide",
        "trust",
        "follow",
        "models add",
    ),
    *("serve", "serve tokens", "schedule add", "schedule list", "decisions merge-inbox", "hosts", "hosts add"),
    *("workers merge", "workers cleanup", "workers resume", "worktrees cleanup", "policy revoke", "policy test"),
    *("models test", "store prune"),
}
"""Commands that change something, need a server or a fleet, or wait; other tests read their JSON."""

OF_THE_MACHINE = {
    "doctor",
    "engines",
    "models list",
    "models",
    "config path",
    "config show",
    "config",
    "teams",
    "agents",
}
"""Commands whose answers depend on this machine, or on the built-in teams: only the names in them are compared."""

ROUTES_OF_THE_MACHINE = {"/api/agents", "/api/doctor", "/api/models", "/api/teams", "/health", "/v1/models"}
ROUTES_OF_THE_PAGE = {"/api/runs/{run}/state", "/api/runs/{run}/changes"}
"""Routes whose documents are made for the page of the same release: only the names around them are compared."""

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?|\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?")
HEX = re.compile(r"\b(?=[0-9a-f]*\d)([0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{16}|[0-9a-f]{12}|[0-9a-f]{7,8})\b")
PORT = re.compile(r"127\.0\.0\.1:\d+")
CHANGING = re.compile(
    r"(seconds|^at|_at|age|pid|size|bytes|^seq|cursor|latency|started|ended|until|waited|^other|^thinking|^tool|^waiting)$"
)
"""Keys of numbers that differ from one time to the next."""

SINCE_1970 = 1e9
LONG = 10
"""A list of more numbers is a curve over the time of a run, and only that it is one is compared."""


@dataclass(kw_only=True)
class Scene:
    """A served store, and the id of the one run in it that was really executed and waits for permission."""

    site: Site
    run: str
    request: str
    names: list[tuple[str, str]]

    def read_commands(self) -> dict[str, Any]:
        """Return the JSON of every command that looks at something."""
        environ = {"PODIUM_HOME": str(self.site.studio.settings.home), "PODIUM_MODEL": "", "NO_COLOR": "1"}
        answers: dict[str, Any] = {}
        with chdir(self.site.repo):
            for name in list_json_commands():
                if name in ACTING:
                    continue
                words, rest = split_arguments(ARGUMENTS.get(name, []))
                done = CliRunner().invoke(podium, [*name.split(), *words, "--json", *rest], env=environ)
                assert done.stdout, f"podium {name}: {done.stderr}"
                lines = [json.loads(line) for line in done.stdout.splitlines()] if is_lines(done.stdout) else None
                answer = json.loads(done.stdout) if lines is None else lines
                plain = self.normalise(answer)
                answers[name] = {"exit": done.exit_code, "answer": shape(plain) if name in OF_THE_MACHINE else plain}
        return answers

    def read_routes(self) -> dict[str, Any]:
        """Return the JSON of every route of the OpenAPI document that reads something."""
        answers: dict[str, Any] = {}
        with ApiClient(self.site) as client:
            document = client.read("/api/schema/openapi.json")
            for path in sorted(path for path, methods in document["paths"].items() if "get" in methods):
                if path in ("/api/events",):  # a stream without an end
                    continue
                reply = client.get(self.fill(path))
                is_json = "json" in reply.headers.get("content-type", "").partition(";")[0]
                plain = self.normalise(reply.json()) if is_json else reply.headers.get("content-type")
                answers[path] = {
                    "status": reply.status_code,
                    "answer": shape(plain) if path in ROUTES_OF_THE_MACHINE | ROUTES_OF_THE_PAGE else plain,
                }
        return answers

    def fill(self, path: str) -> str:
        """Return a route's path with things that exist in the scene."""
        runs = {"/api/workers/": data.CSV_RUN, "/api/decisions/": data.DECIDED_RUN}
        run = next((run for start, run in runs.items() if path.startswith(start)), RUN)
        known = {
            "{request_id}": self.request,
            "{name}": "pair" if path.startswith("/api/teams") else "greeter",
            "{target}": RUN,
            "{decision_id}": "d1",
        }
        for name, value in (known | {"{run}": run, "{seq}": "1", "{digest}": "0" * 64}).items():
            path = path.replace(name, value)
        return path

    def normalise(self, value: Any, key: str = "") -> Any:
        """Replace what differs from one time to the next: paths, ids, times and durations."""
        if isinstance(value, dict):
            return {self.normalise(name): self.normalise(one, name) for name, one in value.items()}
        if isinstance(value, list):
            plain = [self.normalise(one, key) for one in value]
            return ["<numbers>"] if len(value) > LONG and is_number(value[0]) else plain
        if isinstance(value, str):
            if key in ("boot", "host") and value:
                return f"<{key}>"
            for name, shown in self.names:
                value = value.replace(name, shown)
            return HEX.sub("<id>", PORT.sub("<address>", TIME.sub("<time>", value)))
        return "<number>" if is_number(value) and (CHANGING.search(key) or value > SINCE_1970) else value


def is_number(value: Any) -> bool:
    """Return whether a value is a number, which a boolean is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def shape(value: dict[str, Any]) -> dict[str, str]:
    """Return the names in an answer with the types of their values."""
    return {name: type(one).__name__ for name, one in value.items()}


def is_lines(text: str) -> bool:
    """Return whether an output has a JSON document in each line."""
    lines = text.splitlines()
    return len(lines) > 1 and all(line.startswith("{") and line.endswith("}") for line in lines)


def split_arguments(words: list[str]) -> tuple[list[str], list[str]]:
    """Separate the words from `--` on, before which options must stand."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at:]


def list_json_commands() -> list[str]:
    """Return the names of all commands with the option `--json`."""

    def walk(command: click.Command, path: tuple[str, ...]) -> Iterator[str]:
        if any("--json" in parameter.opts for parameter in command.params):
            yield " ".join(path)
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                if (inner := command.get_command(context, name)) is not None:
                    yield from walk(inner, (*path, name))

    return sorted(walk(podium, ()))


@contextmanager
def open_scene(folder: Path) -> Iterator[Scene]:
    """Serve a store with plans, decisions, workers, costs and a run that waits for permission."""
    with open_site(folder) as site:
        write_agent(site.repo, "greeter", "Hello.")
        write_agent(site.repo, "critic", "Fine.")
        write_agent(site.repo, "pair", team={"mode": "sequential", "members": ["greeter", "critic"]})
        data.write_workers(site)
        data.write_plan(site)
        data.write_decisions(site)
        data.write_costs(site)
        site.studio.agent("asker", says=(calls("bash", command="touch done.txt"), "done"), tools=("bash",))
        run = site.start_run("asker")
        [request] = site.wait_for_events(run, PermissionAsked)
        paths = [(str(site.repo), "<repo>"), (str(site.studio.settings.home), "<home>"), (str(folder), "<folder>")]
        yield Scene(site=site, run=run, request=request.id, names=[*paths, (run, "<run>"), (request.id, "<request>")])


def main() -> None:
    """Write the files that the tests compare with."""
    with TemporaryDirectory() as folder, open_scene(Path(folder).resolve()) as scene:
        for path, answers in ((COMMANDS, scene.read_commands()), (ROUTES, scene.read_routes())):
            path.write_text(dump(answers), encoding="utf-8")
            print(f"{path.relative_to(FOLDER.parent.parent)}: {len(answers)} answers", file=sys.stderr)


def dump(answers: dict[str, Any]) -> str:
    """Return answers as text in which each part that changes is a line of its own."""
    return json.dumps(answers, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    os.environ.pop("PODIUM_HOME", None)
    main()
