#!/usr/bin/env python3
"""Count the sentences of the product that tests of several files assert word for word.

    python3 tools/count_wordings.py [TESTS_FOLDER [PACKAGE_FOLDER]]      default: tests src/podium

The wording of a message belongs into the tests of the command or module that says it. Other tests assert facts, so
that a sentence can be changed in one place. A sentence is a literal of the package, or a part of one between values,
that has at least 25 characters and a space. It is asserted if it, or a part of it that is as long, stands in an assert
statement, in `match=` or in a parameter.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SHORTEST = 25


def main() -> None:
    """Print how many sentences there are, and each with the lines that assert it, the most frequent first."""
    tests = Path(sys.argv[1] if len(sys.argv) > 1 else "tests")
    package = Path(sys.argv[2] if len(sys.argv) > 2 else "src/podium")
    sentences = {text for _, tree in parse_modules(package) for text in find_sentences(tree)}
    joined = "\n".join(sorted(sentences))
    places: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for name, tree in parse_modules(tests):
        for line, text in find_asserted(tree):
            for sentence in match_sentences(text, sentences, joined):
                places[sentence][name].append(line)
    repeated = {sentence: files for sentence, files in places.items() if len(files) > 1}
    print(f"sentences that are asserted in more than one file: {len(repeated)}")
    print(f"files beside the first that assert them: {sum(len(files) - 1 for files in repeated.values())}")
    for sentence, files in sorted(repeated.items(), key=lambda one: (-len(one[1]), one[0])):
        print(f"\n{len(files)}  {sentence!r}")
        for name, lines in sorted(files.items()):
            print(f"   {name}:{','.join(map(str, lines))}")


def parse_modules(root: Path) -> Iterator[tuple[str, ast.Module]]:
    """Yield the modules below a folder, with their paths in it."""
    for path in sorted(root.rglob("*.py")):
        yield str(path.relative_to(root)), ast.parse(path.read_text(encoding="utf-8"))


def find_sentences(tree: ast.Module) -> Iterator[str]:
    """Yield the literals of a module that are not docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if is_long(node) and id(node) not in docstrings:
            yield node.value.strip()  # type: ignore[attr-defined]


def find_asserted(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the literals in assert statements, `match=` and parameters of tests, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            looked_at: ast.AST = node.test
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.parametrize":
            looked_at = node
        elif isinstance(node, ast.keyword) and node.arg == "match":
            looked_at = node.value
        else:
            continue
        for one in ast.walk(looked_at):
            if is_long(one):
                yield one.lineno, re.sub(r"\\(\W)", r"\1", one.value.strip())  # type: ignore[attr-defined]


def is_long(node: ast.AST) -> bool:
    """Tell whether a node is a literal that can be a sentence."""
    text = node.value.strip() if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return len(text) >= SHORTEST and " " in text


def match_sentences(text: str, sentences: set[str], joined: str) -> list[str]:
    """Return the sentences that a literal of a test contains, or else the one that it is a part of."""
    if text in sentences:
        return [text]
    if found := [sentence for sentence in sentences if sentence in text]:
        return found
    at = joined.find(text)
    return [] if at < 0 else [joined[joined.rfind("\n", 0, at) + 1 :].split("\n", 1)[0]]


if __name__ == "__main__":
    main()
