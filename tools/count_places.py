#!/usr/bin/env python3
"""Count the places in which one idea is written down: tables of tools, answers, starts of workers, ends of merges.

    python3 tools/count_places.py [PACKAGE_FOLDER]      default: src/podium

A place is a module that constructs the values or calls the functions listed below. The module that defines them counts
only if it uses them too. A module that calls `find.resolve` leaves the resolving of names to that function, so it is no
place.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

TOOLS = {
    "read_file",
    "write_file",
    "edit_file",
    "glob",
    "grep",
    "git_diff",
    "bash",
    "run_checks",
    "web_fetch",
    "ask_person",
    "report_status",
    "list_files",
    "Read",
    "Write",
    "Edit",
    "Glob",
    "Grep",
    "Bash",
    "WebFetch",
}
"""Names of tools, as models and as rules use them."""
FEWEST_TOOLS = 3
"""A literal with fewer names of tools is not a table."""

IDEAS = {
    "places that answer a request": ("PermissionAnswered", "QuestionAnswered"),
    "places that put mail into a run's mailbox": ("post_to_mailbox",),
    "places that start a worker": ("WorkerTask", "delegate_to_worker", "create_worker", "enqueue_worker_run"),
    "places that choose a worker's options": ("WorkerOptions",),
    "places that end a merge": ("tidy_branches", "conclude_merge", "fast_forward", "move_together"),
    "places that resolve a run's or worker's name": (
        "find_run",
        "find_run_id",
        "find_named_run",
        "find_worker",
        "find_worker_run",
        "find_run_and_agent",
        "find_newest_worker",
        "find_in_repository",
    ),
}


def main() -> None:
    """Print each figure with the places that it counts."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "src/podium")
    trees = {
        ".".join(path.relative_to(root).with_suffix("").parts): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(root.rglob("*.py"))
    }
    tables = [f"{name}:{line}" for name, tree in trees.items() for line in find_tool_tables(tree)]
    print_places("tables of tools", tables)
    for idea, names in IDEAS.items():
        print_places(idea, [name for name, tree in trees.items() if any(find_calls(tree, names))])
    asserted = [f"{name}:{line}" for name, tree in trees.items() for line in find_asserted_starts(tree)]
    print_places("assertions that an event is the start of a run", asserted)


def print_places(what: str, places: list[str]) -> None:
    """Print how many places there are, and which."""
    print(f"{what}: {len(places)}")
    for place in places:
        print(f"  {place}")


def find_tool_tables(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of a module's constants that name several tools."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            words = [one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant)]
            named = {word for text in words if isinstance(text, str) for word in text.split()[:1]} & TOOLS
            if len(named) >= FEWEST_TOOLS:
                yield node.lineno


def find_calls(tree: ast.Module, names: tuple[str, ...]) -> Iterator[int]:
    """Yield the lines on which one of these names is called or handed to another function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and get_last_name(node.func) != "isinstance":
            used = (node.func, *node.args)
            if any(get_last_name(one) in names for one in used):
                yield node.lineno


def get_last_name(node: ast.expr) -> str:
    """Return the name, or the attribute's name, that an expression consists of."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def find_asserted_starts(tree: ast.Module) -> Iterator[int]:
    """Yield the lines that assert that an event is a RunStarted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and "RunStarted" in ast.unparse(node.test):
            yield node.lineno


if __name__ == "__main__":
    main()
