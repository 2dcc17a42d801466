"""A run is found by the same names everywhere: in the terminal, in the API, and by groups."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner
from click.testing import Result as Said

from podium import Agent
from podium.cli.root import podium
from podium.core.timeline import Timeline
from podium.runs import find
from podium.runs.find import Found
from podium.store.progress_files import Progress, record_progress
from podium.store.reader import StoreReader
from podium.store.run_store import RunStore
from podium.store.worker_index import build_worker_insert
from podium.values.errors import Mistake, NoSuchRun, StoreCorrupt
from podium.values.event import OperationEnded, OperationStarted, RunEnded, RunStarted
from podium.values.request import Request
from podium.values.worker_task import WorkerTask

from ..web.api_client import ApiClient
from ..web.conftest import Site, open_site

LEAD, TWIN, CHILD, ELSEWHERE = "ab12cd34ef56", "ab99cd34ef56", "c0ffee000001", "c0ffee000002"
OLD_CSV, CSV, READER, UMLAUT = "f0000000000a", "f1000000000b", "f2000000000c", "f3000000000d"
NAMED_AS_PREFIX, NAMED_AS_ID, OTHER_WORKER, NEWEST = "f4000000000e", "f5000000000f", "f6000000000a", "f7000000000b"

WORKERS = {"feat/csv": CSV, "reader": READER, "größe/ümlaut": UMLAUT, "ab12": NAMED_AS_PREFIX, "feat/child": CHILD}
NAMES = {
    LEAD: LEAD,
    "ab9": TWIN,
    **WORKERS,
    f"podium/{LEAD}/result": LEAD,
    f"podium/{LEAD}/best": LEAD,
    "last": NEWEST,
}
"""Names of runs, as a person in the repository gives them."""

UNKNOWN = {
    "ab": "'ab' matches several runs: ",
    "nope": "run 'nope' not found; run podium ps to list the runs",
    "feat/other": "run 'feat/other' not found; run podium ps to list the runs",
    "feat/cs": "run 'feat/cs' not found; run podium ps to list the runs",
    f"{LEAD}/helper": f"run '{LEAD}/helper' not found; run podium ps to list the runs",
    "": "run '' not found; run podium ps to list the runs",
    "\udcff": "'\\udcff' is not valid text, so it names no run; run podium ps to list the runs",
}
"""What is not the name of one run, and the sentence about it. `feat/other` is a branch of another repository."""


@dataclass(kw_only=True)
class Place:
    """A served store with runs in two repositories."""

    site: Site
    other: Path

    @property
    def store(self) -> Path:
        return self.site.store

    def write(self, run: str, repo: Path, *, branch: str = "", name: str = "", parent: str = "") -> None:
        """Write a run that has ended; with a branch, a name or a parent, it is a worker's."""
        is_worker = bool(branch or name or parent)
        task = WorkerTask(root=str(repo), path=str(repo / ".none"), branch=branch, name=name, parent=parent)
        agents = (Agent(name="lead", handoff="helper"), Agent(name="helper"))
        request = Request(text="go")
        started = RunStarted(
            agent="lead", agents=agents, request=request, repo=str(repo), errand=task if is_worker else None
        )

        async def write() -> None:
            async with RunStore(self.store) as store:
                timeline = Timeline(run, store.begin_run(run, build_worker_insert(run, task) if is_worker else None))
                timeline.append(started, scope="")
                operation = OperationStarted(agent="lead", trigger="request", request=request)
                timeline.append(operation, scope="lead", operation="lead")
                ended = OperationEnded(outcome="succeeded", text=f"the answer of {branch or name or run}")
                timeline.append(ended, scope="lead", operation="lead")
                timeline.append(RunEnded(outcome="succeeded"), scope="")
                await timeline.wait_written()

        self.site.portal.call(write)

    def invoke(self, *arguments: str) -> Said:
        """Call podium in the repository."""
        environ = {"PODIUM_HOME": str(self.site.studio.settings.home), "PODIUM_STORE": "", "PODIUM_MODEL": ""}
        with chdir(self.site.repo):
            return CliRunner().invoke(podium, arguments, env=environ)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("place").resolve()
    other = folder / "other"
    subprocess.run(["git", "init", "-q", other], check=True)
    with open_site(folder) as site:
        place = Place(site=site, other=other)
        place.write(LEAD, site.repo)
        place.write(TWIN, site.repo)
        place.write(OLD_CSV, site.repo, branch="feat/csv")
        place.write(CSV, site.repo, branch="feat/csv")
        place.write(READER, site.repo, name="reader")
        place.write(UMLAUT, site.repo, branch="größe/ümlaut")
        place.write(NAMED_AS_PREFIX, site.repo, branch="ab12")
        place.write(NAMED_AS_ID, site.repo, branch=LEAD)
        place.write(NEWEST, site.repo)
        place.write(CHILD, site.repo, branch="feat/child", parent=NEWEST)
        place.write(OTHER_WORKER, other, branch="feat/other")
        place.write(ELSEWHERE, other)
        yield place


COMMANDS = (
    "show",
    "logs",
    "cost --json",
    "results",
    "audit",
    "artifacts",
    "verify",
    "plan",
    "budget --json",
    "follow --json",
    "undo",
    "pause",
    "stop",
    "resume",
    "snapshot",
    "send RUN hello",
    "fork RUN --at none",
    "retry",
    "group pin",
    "group move RUN default",
    "team set RUN/lead --model openai:m",
)
"""Commands about a run. About one that has ended, those that act say why they cannot, and all of them print its id."""


def is_about(run: str, text: str) -> bool:
    """Return whether a command or a route has written about a run: its id, or the name of its worker."""
    worker = next((name for name, other in WORKERS.items() if other == run), run)
    return (run in text or worker in text) and "not found" not in text


def invoke_with(place: Place, command: str, name: str) -> Said:
    words = command.split() if "RUN" in command else [*command.split(), "RUN"]
    return place.invoke(*(word.replace("RUN", name) for word in words))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_about_a_run_takes_every_name_of_it(place: Place, command: str) -> None:
    outputs = {name: invoke_with(place, command, name).output for name in NAMES}

    assert {name: text for name, text in outputs.items() if not is_about(NAMES[name], text)} == {}


@pytest.mark.parametrize("command", [one for one in COMMANDS if not one.startswith(("group pin", "team"))])
def test_every_command_refuses_what_names_no_run_with_the_same_sentence(place: Place, command: str) -> None:
    takes_none, takes_agent = command in ("show", "logs", "verify"), command.startswith("send")
    names = [name for name in UNKNOWN if (name or not takes_none) and not ("/" in name and takes_agent)]

    said = {name: invoke_with(place, command, name) for name in names}

    assert {one.exit_code for one in said.values()} == {2}
    assert {
        name: one.stderr for name, one in said.items() if not one.stderr.startswith(f"podium: {UNKNOWN[name]}")
    } == {}


ROUTES = (
    "GET /api/runs/{run}",
    "GET /api/runs/{run}/entries",
    "GET /api/runs/{run}/entries/1",
    "GET /api/runs/{run}/plan",
    "GET /api/runs/{run}/artifacts",
    "GET /api/costs/{run}",
    "GET /api/workers/{run}/diff",
    "POST /api/runs/{run}/pause",
    "POST /api/runs/{run}/resume",
    "POST /api/runs/{run}/stop",
    'POST /api/runs/{run}/messages {"text": "hello"}',
    'POST /api/runs/{run}/budget {"usd": 1}',
    'POST /api/runs/{run}/fork {"at": "none"}',
    "POST /api/runs/{run}/retry {}",
    'POST /api/runs/{run}/group {"group": "default"}',
    'POST /api/groups/{run} {"pinned": true}',
)


def request(client: ApiClient, route: str, name: str) -> str:
    """Return the text of the reply of a route, in which a run is named."""
    method, path, *body = route.split(" ", 2)
    content = body[0].encode() if body else b"{}" if method == "POST" else None
    headers = {"content-type": "application/json"} if content is not None else {}
    return client.request(method, path.replace("{run}", name), content=content, headers=headers).text


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_about_a_run_takes_every_name_that_fits_into_a_path(place: Place, route: str) -> None:
    with ApiClient(place.site) as client:
        replies = {name: request(client, route, name) for name in NAMES if "/" not in name}

    assert {name: reply for name, reply in replies.items() if not is_about(NAMES[name], reply)} == {}


@pytest.mark.parametrize("route", [one for one in ROUTES if "/api/groups/" not in one])
def test_every_route_refuses_what_names_no_run_with_the_same_sentence(place: Place, route: str) -> None:
    with ApiClient(place.site) as client:
        replies = {name: request(client, route, name) for name in ("ab", "nope")}

    assert {name: reply for name, reply in replies.items() if UNKNOWN[name] not in reply} == {}


@pytest.mark.parametrize("command", ["status", "output", "logs --jsonl", "diff", "wait", "cancel", "resume"])
def test_every_command_about_a_worker_takes_every_name_of_it(place: Place, command: str) -> None:
    names = {CSV: CSV, "f3": UMLAUT, "last": CHILD, **WORKERS}

    outputs = {name: place.invoke("workers", *command.split(), name).output for name in names}

    assert {name: text for name, text in outputs.items() if not is_about(names[name], text)} == {}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (LEAD[:3], f"worker '{LEAD[:3]}' not found in this repository; available: feat/csv, "),
        ("f", "'f' matches several workers: f0000000000a (feat/csv), f1000000000b (feat/csv), "),
        ("feat/other", "worker 'feat/other' not found in this repository; available: "),
        ("", "worker '' not found in this repository; available: "),
    ],
)
def test_what_names_no_worker_is_refused_with_the_names_of_the_workers(place: Place, name: str, sentence: str) -> None:
    with pytest.raises(Mistake) as refused:
        find.resolve(place.store, name, repo=place.site.repo, wanted="worker")

    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (LEAD, Found(run=LEAD)),
        (f"{LEAD}/helper", Found(run=LEAD, agent="helper")),
        ("ab9/helper", Found(run=TWIN, agent="helper")),
        ("feat/csv", Found(run=CSV)),
        ("feat/csv/helper", Found(run=CSV, agent="helper")),
        ("größe/ümlaut/helper", Found(run=UMLAUT, agent="helper")),
        ("reader/helper", Found(run=READER, agent="helper")),
        (f"podium/{LEAD}/result", Found(run=LEAD)),
        (f"podium/{LEAD}/result/helper", Found(run=LEAD, agent="helper")),
        ("last", Found(run=NEWEST)),
        ("last/helper", Found(run=NEWEST, agent="helper")),
        (f"{LEAD}/", Found(run=LEAD)),
    ],
)
def test_an_agent_follows_any_name_of_a_run(place: Place, name: str, found: Found) -> None:
    assert find.resolve(place.store, name, repo=place.site.repo, wanted="agent") == found


def test_branches_and_last_are_those_of_the_given_repository(place: Place) -> None:
    with StoreReader(place.store) as reader:
        names = ("feat/other", "last", "ab12c", "c0ffee000002")
        found = {name: find.resolve(reader, name, repo=place.other).run for name in names}

    assert found == {"feat/other": OTHER_WORKER, "last": ELSEWHERE, "ab12c": LEAD, "c0ffee000002": ELSEWHERE}


def test_no_branch_stands_for_a_run_whose_id_it_equals(place: Place) -> None:
    assert find.resolve(place.store, LEAD, repo=place.site.repo).run == LEAD
    assert find.resolve(place.store, NAMED_AS_ID, repo=place.site.repo, wanted="worker").run == NAMED_AS_ID


def test_no_branch_stands_for_the_last_run_or_the_last_worker(place: Place, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    lure, newest, child = (f"d00d0000000{number}" for number in range(3))
    place.write(lure, tmp_path, branch="last")
    place.write(newest, tmp_path)
    place.write(child, tmp_path, branch="feat/child", parent=newest)

    assert find.resolve(place.store, "last", repo=tmp_path).run == newest
    assert find.resolve(place.store, "last", repo=tmp_path, wanted="worker").run == child


def test_without_a_name_the_only_candidate_or_the_last_run_is_meant(place: Place) -> None:
    repo = place.site.repo

    assert find.resolve(place.store, None, repo=repo).run == NEWEST
    assert find.resolve(place.store, None, repo=repo, is_candidate=lambda run: run.id == TWIN).run == TWIN
    with pytest.raises(NoSuchRun, match=f"several runs in {repo} could be meant: {TWIN}, {LEAD}; give the id of one"):
        find.resolve(place.store, None, repo=repo, is_candidate=lambda run: run.id in (LEAD, TWIN))
    with pytest.raises(NoSuchRun, match=f"no such run in {repo}; run podium ps to list the runs"):
        find.resolve(place.store, None, repo=repo, is_candidate=lambda run: False)


def test_a_folder_without_runs_has_no_last_run(place: Place, tmp_path: Path) -> None:
    with pytest.raises(NoSuchRun, match=f"no run was started in {tmp_path}; run podium ps to list the runs"):
        find.resolve(place.store, "last", repo=tmp_path)


def test_a_store_that_does_not_exist_is_named(tmp_path: Path) -> None:
    store = tmp_path / "podium.db"

    with pytest.raises(NoSuchRun, match=f"no runs yet, so there is no run 'ab': the store {store} does not exist"):
        find.resolve(store, "ab")
    with pytest.raises(NoSuchRun, match=f"no runs yet: the store {store} does not exist"):
        find.resolve(store, None)


def test_a_store_that_was_deleted_is_not_taken_for_one_without_runs(tmp_path: Path) -> None:
    store = tmp_path / "podium.db"
    record_progress(store, LEAD, Progress(seq=1, hash=bytes(32)))

    with pytest.raises(StoreCorrupt, match=f"although runs were written to it .{LEAD}."):
        find.resolve(store, LEAD)
