#!/usr/bin/env python3
"""Write docs/api.md from the docstrings of the public names: python tools/api_reference.py"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
LONGEST_LINE = 100
PACKAGES = ("podium", "podium.patterns", "podium.engines", "podium.policy", "podium.testing")

HEAD = """\
# API reference

This page lists the public names of the Python package, with their docstrings. [Podium in Python](python.md) explains
them with examples. Other modules of the package are not part of the API and can change in any release; see
[Releases](contributing/releases.md#what-is-public).

The page is generated: `python tools/api_reference.py` writes it, and a test fails if it is not current.
"""

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign
Function = ast.FunctionDef | ast.AsyncFunctionDef


def main() -> None:
    """Write the page."""
    PAGE.write_text(build_page(), encoding="utf-8")


def build_page() -> str:
    """Return the text of the page."""
    return "\n\n".join([HEAD.strip(), *(block for name in PACKAGES for block in iter_package(name))]) + "\n"


def iter_package(name: str) -> Iterator[str]:
    """Yield the blocks of Markdown about a package: functions first, then classes, then exceptions."""
    package = import_module(name)
    yield f"## {name}"
    yield inspect.cleandoc(package.__doc__ or "")
    for _, public in sorted((rank_name(package, public), public) for public in package.__all__):
        yield f"### `{name}.{public}`"
        yield from iter_definition(*find_definition(package, public))


def rank_name(package: ModuleType, name: str) -> int:
    """Return the position of a name's kind on the page."""
    value = getattr(package, name)
    if isinstance(value, type):
        return 2 if issubclass(value, BaseException) else 1
    return 0 if inspect.isroutine(value) else 1


def find_definition(package: ModuleType, name: str) -> tuple[Definition, str]:
    """Return the syntax tree of a public name's definition, and its docstring."""
    value = getattr(package, name)
    module = getattr(value, "__module__", None)
    for source in [module] if module is not None and module.startswith("podium") else find_sources(package):
        body = parse_module(source).body
        for place, node in enumerate(body):
            if isinstance(node, Definition) and name in list_defined_names(node):
                return node, find_docstring(body, place)
    raise SystemExit(f"{package.__name__}.{name}: no definition found")


def find_sources(package: ModuleType) -> Iterator[str]:
    """Yield the modules from which a package imports its names."""
    for node in ast.walk(parse_module(package.__name__)):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield import_module("." * node.level + (node.module or ""), package.__name__).__name__


@cache
def parse_module(name: str) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(inspect.getsource(import_module(name)))


def list_defined_names(node: ast.stmt) -> list[str]:
    """Return the names that a statement defines."""
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def find_docstring(body: list[ast.stmt], place: int) -> str:
    """Return the docstring of a statement: its own, or for an assignment the string that follows it."""
    node = body[place]
    if isinstance(node, ast.ClassDef | Function):
        return ast.get_docstring(node) or ""
    match body[place + 1 : place + 2]:
        case [ast.Expr(value=ast.Constant(value=str(text)))]:
            return inspect.cleandoc(text)
    return ""


def iter_definition(node: Definition, docstring: str) -> Iterator[str]:
    """Yield the blocks about a name: its signature, its docstring, and the members of a class."""
    yield f"```text\n{format_signature(node)}\n```"
    if docstring:
        yield docstring
    if isinstance(node, ast.ClassDef) and (members := "\n".join(iter_members(node))):
        yield members


def format_signature(node: Definition) -> str:
    """Return how a name is called or defined, without its body. A long signature has a line for each parameter."""
    match node:
        case ast.ClassDef():
            init = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
            bases = [base for base in map(ast.unparse, node.bases) if base != "Struct"]
            given = bases if init is None else list_parameters(init)
            head, tail = f"class {node.name}", ""
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            given = list_parameters(node)
            head, tail = split_call(node)
        case _:
            return ast.unparse(node)
    if len(", ".join(given)) > LONGEST_LINE - len(head) - len(tail):
        return f"{head}(\n" + "".join(f"    {one},\n" for one in given) + f"){tail}"
    return f"{head}({', '.join(given)}){tail}" if given or not isinstance(node, ast.ClassDef) else head


def split_call(node: Function) -> tuple[str, str]:
    """Return what is before and after the parameters of a function: a context manager's shows what it yields."""
    is_async = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    if find_decorators(node) & {"contextmanager", "asynccontextmanager"} and isinstance(node.returns, ast.Subscript):
        return f"{is_async}with {node.name}", f" as {ast.unparse(node.returns.slice)}"
    return f"{is_async}def {node.name}", "" if node.returns is None else f" -> {ast.unparse(node.returns)}"


def find_decorators(node: Function) -> set[str]:
    """Return the names of a function's decorators, without the modules from which they come."""
    return {ast.unparse(one).partition("(")[0].rpartition(".")[2] for one in node.decorator_list}


def list_parameters(node: Function) -> list[str]:
    """Return the parameters of a function as they are written, without `self` or `cls`."""
    given = node.args
    places = [*given.posonlyargs, *given.args]
    defaults = [*[None] * (len(places) - len(given.defaults)), *given.defaults]
    found = [format_parameter(one, default) for one, default in zip(places, defaults, strict=True)]
    if places and places[0].arg in ("self", "cls"):
        del found[0]
    if given.vararg is not None:
        found.append(f"*{ast.unparse(given.vararg)}")
    elif given.kwonlyargs:
        found.append("*")
    found += [format_parameter(*one) for one in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return found if given.kwarg is None else [*found, f"**{ast.unparse(given.kwarg)}"]


def format_parameter(parameter: ast.arg, default: ast.expr | None) -> str:
    """Return a parameter with its type and its default."""
    written = ast.unparse(parameter)
    return written if default is None else f"{written} = {ast.unparse(default)}"


def iter_members(node: ast.ClassDef) -> Iterator[str]:
    """Yield a line for each public field, property and method of a class, with its docstring."""
    for place, member in enumerate(node.body):
        names = list_defined_names(member)
        if names and not names[0].startswith("_"):
            docstring = " ".join(find_docstring(node.body, place).split()) or find_meaning(member)
            yield f"- `{format_member(node, member)}`" + (f": {docstring}" if docstring else "")


def split_annotation(node: ast.AnnAssign) -> tuple[ast.expr, list[ast.expr]]:
    """Return the type of a field, and what `Annotated` adds to it."""
    match node.annotation:
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[kind, *added])):
            return kind, added
    return node.annotation, []


def find_meaning(node: ast.stmt) -> str:
    """Return what the key of a file means that sets a field. A link within the page of the key becomes text."""
    for added in split_annotation(node)[1] if isinstance(node, ast.AnnAssign) else ():
        match added:
            case ast.Call(func=ast.Name(id="Key"), args=[ast.Constant(value=str(text)), *_]):
                return re.sub(r"\[([^\]]*)\]\(#[^)]*\)", r"\1", text)
    return ""


def format_member(owner: ast.ClassDef, node: ast.stmt) -> str:
    """Return a member of a class: a field or a property with its type, or a method with its parameters."""
    if isinstance(node, ast.AnnAssign):
        default = "" if node.value is None else f" = {ast.unparse(node.value)}"
        return f"{ast.unparse(node.target)}: {ast.unparse(split_annotation(node)[0])}{default}"
    if not isinstance(node, Function):
        return ast.unparse(node)
    decorators = find_decorators(node)
    if "property" in decorators:
        return node.name if node.returns is None else f"{node.name}: {ast.unparse(node.returns)}"
    head, tail = split_call(node)
    name = f"{owner.name}.{node.name}" if "classmethod" in decorators else node.name
    return f"{head.removesuffix(node.name)}{name}({', '.join(list_parameters(node))}){tail}".removeprefix("def ")


if __name__ == "__main__":
    main()
