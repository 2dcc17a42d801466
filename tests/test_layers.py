"""A layer is a folder. Imports point down the layers, never up; folders of one layer do not import each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import podium

SOURCE = Path(podium.__file__).parent

LAYERS = (
    ("cli",),
    ("web", "protocols", "programs"),
    ("podium",),
    ("watch", "schedules"),
    ("workers",),
    ("fleet",),
    ("runs",),
    ("patterns", "roster"),
    ("files", "engines", "tools", "mcp_client", "workspace", "store"),
    ("views",),
    ("core",),
    ("policy",),
    ("system",),
    ("values",),
)
"""From top to bottom. `podium` stands for the few modules outside folders: the composition root and the public API."""

ALLOWED_PAIRS = {
    ("tools", "workspace"),
    ("workspace", "store"),
    ("files", "workspace"),
    ("files", "engines"),
    ("mcp_client", "files"),
    ("web", "protocols"),
}
"""Folders of one layer in which the first may import the second, but never the other way round."""

OUTSIDE_LAYERS = {"testing", "builtin"}
"""Helpers for users' tests, and agents that come with the package: nothing in the product imports them."""

PURE_FOLDERS = ("core", "policy", "values")
"""Folders without any code for processes, git, HTTP or SQL."""


STARTING_PROCESSES = {
    "system/process_group.py": "the one way to start a program that Podium also ends",
    "workers/fork_server.py": "forks itself, without another program",
    "engines/local/engine_process.py": "starts an engine, which outlives this process",
    "workers/delegation.py": "starts a commander, which outlives this process",
    "workspace/relay/_forwarder_program.py": "forks in a sandbox, which ends all its processes",
    "cli/demo/demo.py": "runs podium in the foreground, where Ctrl-C reaches both",
    "cli/commands/serve.py": "starts a browser, which outlives this process",
    "testing/git_repository.py": "makes a repository for a test",
    "testing/postgres_cluster.py": "starts a server for tests, and a shell that outlives this process if it is killed",
}
"""The modules that start a process, and why."""

POSTING_MAIL = {
    "runs/run_steering.py": "messages, and requests to pause, stop or change a run",
    "runs/answers.py": "answers to requests",
    "runs/assembly/run_assembly.py": "receipts for agents' messages",
}
"""The modules that post to a run's mailbox, and what. Everything else calls the acts in them, which need an actor."""

RECORDING_ACTS = {
    ("PermissionAnswered", "QuestionAnswered"): {"runs/answers.py", "core/gate.py"},
    ("StopAsked", "PauseAsked"): {"runs/run_steering.py", "runs/driver.py"},
    ("WorkerTask",): {"workers/delegation.py"},
}
"""What only these modules create: the acts, and what Podium itself decides or derives from an answer."""


SURFACES = ("cli", "web", "protocols", "programs")
"""What people and programs use. They start and resume runs through acts, which record who did it."""

STARTING_RUNS = {"enqueue_worker_run", "create_worker", "write_background_run"}
"""What only an act calls, besides the methods of `Runs`."""

STARTING_METHODS = {"create", "claim", "copy", "claim_idle", "fail", "pause", "end_stopped"}
"""The methods of `Runs` that only an act calls."""

PYTHON_ACTS = {"run", "start", "resume", "fork", "retry"}
"""The methods of an App for Python programs. They record the channel `api`, so no other surface calls them."""

CONTINUING_RUNS = {
    "programs/worker.py": {"claim"},  # a worker's process, for the run that it was started for
    "programs/fork_server.py": {"run"},  # a rehearsal in a store of its own, to load modules
}
"""The modules of surfaces that may call them nevertheless, because nobody acts."""

MOVING_BRANCHES = {
    "fast_forward",
    "move_back",
    "move_together",
    "finish_joint_moves",
    "build_train",
    "run_merge_train",
    "remove_integration_branch",
    "remove_superseded_branches",
    "remove_finished_refs",
    "push_branch",
    "open_request",
}
"""What moves or removes branches, or pushes them. Surfaces call `build_merge`, `apply_merge` and the like instead."""

MOVING_COMMANDS = {"update-ref", "merge", "push", "branch", "reset"}
"""The git commands that move branches."""

REMOVING_BRANCHES = {
    "cli/workers/worktrees.py": {"update-ref", "remove_finished_refs"},  # removes only what is merged
}
"""The modules of surfaces that remove branches."""

ROUTES_WITHOUT_ACT = {
    "groups.py": {"change_group", "move_run"},  # arrange lists
    "notifications.py": {"change_notifications", "test_notifications"},  # settings
    "sign_in.py": {"sign_in", "sign_out", "revoke_token"},  # tokens
    "teams.py": {"create_team"},  # files
    "a2a_endpoint.py": {"answer_rpc"},  # takes the scope of each method from its act
}
"""The routes that change something about which no run's timeline tells. They name the scope themselves."""


def top_folder(path: tuple[str, ...]) -> str:
    """Return the top-level folder of a module, from its path below the package."""
    return path[0] if (SOURCE / path[0]).is_dir() else "podium"


def layer_index(name: str) -> int:
    return next(place for place, rooms in enumerate(LAYERS) if name in rooms)


@cache
def parse_module(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def find_imports(path: Path) -> Iterator[tuple[str, ...]]:
    """Return the podium modules that a file imports, as paths below the package."""
    package = path.relative_to(SOURCE).parts[:-1]
    for node in ast.walk(parse_module(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            whole = (*base, *(node.module.split(".") if node.module else ()))
            yield from ((*whole, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "podium":
            yield from ((*(node.module or "").split(".")[1:], alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")[1:]) for alias in node.names if alias.name.startswith("podium."))


def find_cross_folder_imports() -> Iterator[tuple[Path, str, str]]:
    """Return each import from one top-level folder into another."""
    for path in sorted(SOURCE.rglob("*.py")):
        own = path.relative_to(SOURCE).parts
        if own[0] in ("__init__.py", "__main__.py", *OUTSIDE_LAYERS):
            continue
        for imported in find_imports(path):
            if imported != ("__version__",) and (target := top_folder(imported)) != top_folder(own):
                yield path.relative_to(SOURCE), top_folder(own), target


def test_every_import_points_down() -> None:
    upward = [
        f"{path} imports {target}"
        for path, own, target in find_cross_folder_imports()
        if target in OUTSIDE_LAYERS
        or layer_index(target) < layer_index(own)
        or (layer_index(target) == layer_index(own) and target != own)
        if (own, target) not in ALLOWED_PAIRS
    ]

    assert upward == []


def test_no_two_folders_import_each_other() -> None:
    known = {(own, target) for _, own, target in find_cross_folder_imports()}

    assert [(one, other) for one, other in known if (other, one) in known] == []


def test_every_folder_at_the_top_has_a_layer() -> None:
    folders = {path.parent.relative_to(SOURCE).parts[0] for path in SOURCE.glob("*/**/*.py")}

    assert folders - OUTSIDE_LAYERS <= {name for rooms in LAYERS for name in rooms}


def test_the_rules_know_no_process_no_git_and_no_http() -> None:
    forbidden = {"subprocess", "socket", "aiohttp", "sqlite3", "os", "signal"}
    found = []
    for path in (path for name in PURE_FOLDERS for path in (SOURCE / name).rglob("*.py")):
        for node in ast.walk(parse_module(path)):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            else:
                continue
            found += [f"{path.name} imports {name}" for name in names if name.split(".")[0] in forbidden]

    assert found == []


def test_programs_are_started_in_one_place() -> None:
    starting = {"Popen", "run", "call", "check_call", "check_output", "posix_spawn", "posix_spawnp", "fork", "forkpty"}
    named = {"open_process", "create_subprocess_exec", "create_subprocess_shell"}
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(parse_module(path)):
            match node:
                case ast.Attribute(value=ast.Name(id="subprocess" | "os"), attr=name) if name in starting:
                    found.add(str(path.relative_to(SOURCE)))
                case ast.Attribute(attr=name) | ast.Name(id=name) if name in named:
                    found.add(str(path.relative_to(SOURCE)))

    assert found == set(STARTING_PROCESSES)


def test_only_acts_post_to_the_mailbox_of_a_run() -> None:
    posting = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for imported in find_imports(path)
        if imported[-1:] == ("post_to_mailbox",) or imported == ("store", "mailbox")
    }

    assert posting == set(POSTING_MAIL)


@pytest.mark.parametrize(("names", "allowed"), RECORDING_ACTS.items())
def test_only_acts_create_what_a_person_asks_for(names: tuple[str, ...], allowed: set[str]) -> None:
    creating = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(parse_module(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    }

    assert creating == allowed


def test_only_one_module_resolves_the_names_of_runs() -> None:
    resolving = {"find_run", "find_in_repository"}
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(parse_module(path))
        if isinstance(node, ast.Attribute) and node.attr in resolving
    }

    assert found == {"runs/find.py"}


def test_surfaces_start_and_resume_runs_through_acts() -> None:
    found = []
    for path in (path for name in SURFACES for path in sorted((SOURCE / name).rglob("*.py"))):
        allowed = CONTINUING_RUNS.get(str(path.relative_to(SOURCE)), set())
        for node in ast.walk(parse_module(path)):
            match node:
                case ast.Attribute(value=ast.Name(id="app"), attr=name) if name in PYTHON_ACTS - allowed:
                    found.append(f"{path.relative_to(SOURCE)}:{node.lineno} calls App.{name}")
                case ast.Attribute(value=ast.Name(id="runs") | ast.Attribute(attr="runs"), attr=name) if (
                    name in STARTING_METHODS - allowed
                ):
                    found.append(f"{path.relative_to(SOURCE)}:{node.lineno} calls Runs.{name}")
                case ast.Attribute(attr=name) | ast.Name(id=name) if name in STARTING_RUNS - allowed:
                    found.append(f"{path.relative_to(SOURCE)}:{node.lineno} calls {name}")

    assert found == []


def find_acts() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Return the functions that are declared as acts."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(parse_module(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                ast.unparse(one).startswith("act(") for one in node.decorator_list
            ):
                yield path.relative_to(SOURCE), node


def test_every_act_is_told_who_acts() -> None:
    silent = []
    for path, act in find_acts():
        required = zip(act.args.kwonlyargs, act.args.kw_defaults, strict=True)
        told = [ast.unparse(one.annotation or one) for one, default in required if one.arg == "by" and default is None]
        silent += [f"{path}: {act.name}"] * (told != ["Actor"])

    assert silent == []


def test_routes_take_their_scope_from_the_act_that_they_call() -> None:
    naming: dict[str, set[str]] = {}
    for path in (SOURCE / "web" / "api" / "routes").glob("*.py"):
        for node in ast.walk(parse_module(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                routes = [text for one in node.decorator_list if not (text := ast.unparse(one)).startswith("get(")]
                if any("/" in text and "guards=[may(" not in text for text in routes):
                    naming.setdefault(path.name, set()).add(node.name)

    assert naming == ROUTES_WITHOUT_ACT


def test_acts_are_below_the_surfaces() -> None:
    assert {path.parts[0] for path, _ in find_acts()} == {"runs", "workers", "schedules"}


def find_branch_moves(path: Path) -> Iterator[str]:
    """Return what a module uses to move branches: functions and git commands."""
    for node in ast.walk(parse_module(path)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name) if name in MOVING_BRANCHES:
                yield name
            case ast.Call(
                func=ast.Name(id="call_git" | "read_git_output"), args=[_, ast.Constant(value=str(name)), *_]
            ):
                if name in MOVING_COMMANDS:
                    yield name


def test_surfaces_move_branches_through_acts() -> None:
    moving = {
        str(path.relative_to(SOURCE)): found
        for name in SURFACES
        for path in (SOURCE / name).rglob("*.py")
        if (found := {*find_branch_moves(path)})
    }

    assert moving == REMOVING_BRANCHES


def test_whoever_uses_a_command_is_found_in_one_place() -> None:
    """A command can also be entered in a chat, which `get_command_actor` knows."""
    naming = {
        str(path.relative_to(SOURCE))
        for path in (SOURCE / "cli").rglob("*.py")
        for node in ast.walk(parse_module(path))
        if isinstance(node, ast.Call) and ast.unparse(node) == "get_local_actor('command')"
    }

    assert naming == set()


def test_an_import_inside_a_function_says_why() -> None:
    silent = []
    for path in sorted(SOURCE.rglob("*.py")):
        lines = path.read_text(encoding="utf-8").splitlines()
        for function in ast.walk(parse_module(path)):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            imports = sorted(
                (node for node in ast.walk(function) if isinstance(node, ast.ImportFrom) and node.level),
                key=lambda node: node.lineno,
            )
            said_until = 0  # a comment with the reason covers the imports that follow it without a gap
            for node in imports:
                near = lines[node.lineno - 2 : node.end_lineno]
                if any("#" in line for line in near) or node.lineno == said_until + 1:
                    said_until = node.end_lineno or 0
                else:
                    silent.append(f"{path.relative_to(SOURCE)}:{node.lineno}")

    assert silent == []
