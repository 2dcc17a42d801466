"""An import points down the layers, never up; surfaces do not know each other, nor do patterns and the outside."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import podium

SOURCE = Path(podium.__file__).parent

LAYERS = (
    {"cli", "__main__"},
    {"api", "app", "casting", "driving", "live", "processes", "outfit", "preflight", "settings"},
    {"patterns"},
    {"config", "engines", "mcp_client", "roster", "store", "tools", "trust", "workers", "workspace"},
    {
        "budget",
        "change",
        "clock",
        "effect",
        "grouping",
        "journal",
        "keeper",
        "memory",
        "message",
        "mind",
        "operation",
        "pace",
        "permission",
        "placement",
        "picture",
        "policy",
        "redaction",
        "report",
        "scope",
        "session",
        "worker_state",
        "workforce",
    },
    {
        "action",
        "agent",
        "attachment",
        "errand",
        "errors",
        "event",
        "finding",
        "marked",
        "mcp_server",
        "patience",
        "plain",
        "request",
        "result",
        "size",
        "usage",
    },
)
BESIDE = {"testing"}
"""Public help for users' tests: it may use anything, and nothing in the product uses it."""


def layer(module: str) -> int:
    return next(place for place, names in enumerate(LAYERS) if module in names)


def imports(path: Path) -> Iterator[str]:
    """The modules of ours, by their first name below the package, that a file imports."""
    package = path.relative_to(SOURCE).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            named = (*base, *(node.module or "").split(".")) if node.module else base
            for alias in node.names:
                whole = [part for part in (*named, alias.name) if part]
                yield whole[0]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("podium"):
            yield ((node.module or "").split(".") + [alias.name for alias in node.names])[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("podium."))


def test_every_module_has_a_layer_and_imports_only_downwards() -> None:
    upward: list[str] = []
    for path in sorted(SOURCE.rglob("*.py")):
        module = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if module in {"__init__", *BESIDE}:
            continue
        for imported in imports(path):
            if imported == "__version__":
                continue
            if imported in BESIDE or layer(imported) < layer(module) or _strangers(module, imported):
                upward.append(f"{path.relative_to(SOURCE)} imports {imported}")

    assert upward == []


def _strangers(module: str, imported: str) -> bool:
    """Two outside things do not know each other."""
    outside = {"config", "engines", "mcp_client", "roster", "store", "tools"}
    return module != imported and module in outside and imported in outside


def test_patterns_know_nothing_of_the_outside() -> None:
    known = {imported for path in (SOURCE / "patterns").glob("*.py") for imported in imports(path)}

    assert not known & (LAYERS[1] | LAYERS[3])


def test_the_core_knows_no_process_no_git_and_no_http() -> None:
    forbidden = {"subprocess", "socket", "aiohttp", "sqlite3", "os", "signal"}
    named = {name for layer in LAYERS[-2:] for name in layer}
    core = [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0].removesuffix(".py") in named]
    found = []
    for path in core:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            else:
                continue
            found += [f"{path.name} imports {name}" for name in names if name.split(".")[0] in forbidden]

    assert found == []
