#!/usr/bin/env python3
"""Count the places in which tests make for themselves what one kit could give them: repositories and scripted runs.

    python3 tools/count_test_kits.py [TESTS_FOLDER]      default: tests

A place is the line of a call or of a function. Tests that are about the thing itself, such as those of bare
repositories or of the scripted engine, count too, so no figure has to become zero.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

KINDS_OF_REPOSITORY = ("--bare", "--separate-git-dir")
"""Options of `git init` for repositories that only a test of such repositories needs."""


def main() -> None:
    """Print each figure with the places that it counts."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "tests")
    trees = {
        str(path.relative_to(root)): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(root.rglob("*.py"))
    }
    for what, find in IDEAS.items():
        places = [f"{name}:{line}" for name, tree in trees.items() for line in find(tree)]
        print(f"{what}: {len(places)}")
        for place in places:
            print(f"  {place}")


def find_made_repositories(tree: ast.Module) -> Iterator[int]:
    """Yield the lines on which `git init` is called."""
    for node in ast.walk(tree):
        words = get_words(node)
        is_git = "git" in words[:1] or words[:1] == ["init"] or words[:2] == ["/usr/bin/git", "init"]
        if is_git and "init" in words and not any(word.startswith(KINDS_OF_REPOSITORY) for word in words):
            yield node.lineno  # type: ignore[attr-defined]


def find_git_callers(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of functions that pass their arguments on to git."""
    for function in find_functions(tree):
        passed = f"*{function.args.vararg.arg}" if function.args.vararg is not None else ""
        lists = [node for node in ast.walk(function) if isinstance(node, ast.List)]
        if passed and any(get_words(one)[:1] == ["git"] and passed in ast.unparse(one) for one in lists):
            yield function.lineno


def find_tool_steps(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of functions that return a step in which the model calls one tool."""
    for function in find_functions(tree):
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None and is_tool_step(node.value):
                yield function.lineno
                break


def is_tool_step(node: ast.expr) -> bool:
    """Tell whether an expression is a step with the calls of tools."""
    if isinstance(node, ast.Dict):
        return any(isinstance(key, ast.Constant) and key.value == "calls" for key in node.keys)
    return isinstance(node, ast.Call) and any(one.arg == "calls" for one in node.keywords)


def find_written_scripts(tree: ast.Module) -> Iterator[int]:
    """Yield the lines on which a script is put into a prompt."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and "```script" in ast.unparse(node):
            yield node.lineno


def find_engines(tree: ast.Module) -> Iterator[int]:
    """Yield the lines on which an engine is put together from its parts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "ModelEngine":
            yield node.lineno


def find_server_fixtures(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of fixtures and context managers that start a model server."""
    for function in find_functions(tree):
        decorators = " ".join(ast.unparse(one) for one in function.decorator_list)
        is_opener = "fixture" in decorators or "contextmanager" in decorators
        if is_opener and calls_any(function, "ModelServer", "serve_model"):
            yield function.lineno


def find_event_readers(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of helpers that open the store to read the entries or events of a run."""
    for function in find_functions(tree):
        is_test = function.name.startswith("test_")
        if not is_test and calls_any(function, "StoreReader") and calls_any(function, "read_entries", "read_rows"):
            yield function.lineno


def find_functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield all functions and methods of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def calls_any(function: ast.AST, *names: str) -> bool:
    """Tell whether one of these functions is called in a function."""
    calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(ast.unparse(func).rpartition(".")[2] in names for func in calls)


def get_words(node: ast.AST) -> list[str]:
    """Return the strings that stand directly in a list, a tuple or the arguments of a call."""
    if isinstance(node, ast.List | ast.Tuple):
        items = node.elts
    elif isinstance(node, ast.Call):
        items = node.args
    else:
        return []
    return [one.value for one in items if isinstance(one, ast.Constant) and isinstance(one.value, str)]


IDEAS: dict[str, Callable[[ast.Module], Iterator[int]]] = {
    "places that make a git repository": find_made_repositories,
    "functions that call git with any arguments": find_git_callers,
    "functions that make a step with a tool call": find_tool_steps,
    "places that put a script into a prompt": find_written_scripts,
    "places that put a scripted engine together": find_engines,
    "fixtures that start a model server": find_server_fixtures,
    "helpers that read the entries of a run": find_event_readers,
}


if __name__ == "__main__":
    main()
