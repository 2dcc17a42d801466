"""Finding files and lines."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium import Agent, App, Settings
from podium.core.gate import InvalidCall
from podium.testing import ModelServer, make_repository, run_git
from podium.tools.file_listing import holds_secrets
from podium.tools.line_search import GrepQuery, Hit, parse_ripgrep_hits, search_files
from podium.tools.search_files import SHOWN_FILES, Glob, Grep, compile_glob

from .doing import call_tool, make_tool_use

PROGRAMS = [
    pytest.param(
        True, id="ripgrep", marks=pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not installed")
    ),
    pytest.param(False, id="own"),
]


def write_tree(directory: Path, files: dict[str, str]) -> Path:
    for age, (path, text) in enumerate(files.items()):
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text)
        os.utime(directory / path, (1_000_000 - age, 1_000_000 - age))
    return directory


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.py", "a.py", True),
        ("*.py", "deep/er/a.py", True),
        ("*.py", "a.pyc", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/deep/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/x/y/a.py", True),
        ("**/test_*", "tests/test_a.py", True),
        ("src/**", "src/x/y", True),
        ("src/", "src/x", True),
        ("*.{ts,tsx}", "a/b.tsx", True),
        ("[ab].py", "c.py", False),
        ("./a.py", "a.py", True),
        ("**", "any/thing", True),
        ("*", "any/thing", True),
    ],
)
def test_patterns_match_as_people_expect(pattern: str, path: str, expected: bool) -> None:
    assert compile_glob(pattern)(path) is expected


@given(st.text(alphabet="*a/?{},[]!", max_size=40), st.text(alphabet="ab/", max_size=60))
def test_any_pattern_is_matched_in_time_or_refused(pattern: str, path: str) -> None:
    try:
        assert compile_glob(pattern)(path) in (True, False)
    except InvalidCall:
        assert "{" in pattern


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    assert not compile_glob("*a" * 30 + "b")("a" * 250)
    assert not compile_glob("**/a/" * 20 + "b")("a/" * 200 + "c")


async def test_files_come_newest_first_without_what_git_ignores(tmp_path: Path) -> None:
    repo = make_repository(tmp_path, {"a.txt": "one\ntwo\n"})
    write_tree(repo, {"src/new.py": "", "src/old.py": "", "build/out.py": "", "gone.py": ""})
    (repo / ".gitignore").write_text("build/\n")
    run_git(repo, "add", "gone.py")
    (repo / "gone.py").unlink()

    assert (await call_tool(Glob(repo), pattern="**/*.py")).text == "src/new.py\nsrc/old.py"
    assert (await call_tool(Glob(repo), pattern="o*", path="src")).text == "src/old.py"
    assert (await call_tool(Glob(repo), pattern="*.rs")).text == "No file matches *.rs."


async def test_without_git_everything_but_git_itself_is_listed_and_no_link_followed(tmp_path: Path) -> None:
    outside = write_tree(tmp_path / "outside", {"secret.py": ""})
    place = write_tree(tmp_path / "place", {"a.py": "", "sub/b.py": "", ".git/c.py": "", "sub/.git/d.py": ""})
    (place / "out").symlink_to(outside)

    assert (await call_tool(Glob(place), pattern="*.py")).text == "a.py\nsub/b.py"
    with pytest.raises(InvalidCall, match=r"leads out|is a link"):
        await call_tool(Glob(place), path="out")


async def test_a_long_list_is_cut_with_the_count(tmp_path: Path) -> None:
    write_tree(tmp_path, {f"f{n}": "" for n in range(SHOWN_FILES + 7)})

    lines = (await call_tool(Glob(tmp_path))).text.splitlines()

    assert len(lines) == SHOWN_FILES + 1
    assert lines[-1] == "[7 more files match; narrow the pattern or the path]"


TREE = {
    "a.py": "import os\ndef f():\n    return os.name\n",
    "b.md": "OS in capitals\nnothing\n",
    "sub/c.py": "one\nos two\nthree\nfour\nfive\nos six\n",
    ".env": "os=secret\n",
    "ignored/x.py": "os\n",
    ".hidden.py": "os hidden\n",
    ".gitignore": "ignored/\n",
}


@pytest.mark.parametrize("ripgrep", PROGRAMS)
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            {"pattern": r"\bos\b", "glob": "[a-z].py"},
            "a.py:1:import os\na.py:3:    return os.name\nsub/c.py:2:os two\nsub/c.py:6:os six",
        ),
        ({"pattern": "^OS", "glob": "*.md"}, "b.md:1:OS in capitals"),
        ({"pattern": "^OS", "glob": "*.md", "ignore_case": True}, "b.md:1:OS in capitals"),
        ({"pattern": "IMPORT", "ignore_case": True}, "a.py:1:import os"),
        ({"pattern": "secret"}, "No line matches secret."),
        ({"pattern": "^IMPORT"}, "No line matches ^IMPORT (0 lines; 1 with ignore_case)."),
        ({"pattern": "^OS", "path": "sub/c.py"}, "No line matches ^OS (0 lines; 2 with ignore_case)."),
        ({"pattern": "^os$"}, "No line matches ^os$."),
        ({"pattern": "hidden"}, ".hidden.py:1:os hidden"),
        ({"pattern": "^os", "path": "sub"}, "sub/c.py:2:os two\nsub/c.py:6:os six"),
        ({"pattern": "^os", "path": "sub/c.py"}, "sub/c.py:2:os two\nsub/c.py:6:os six"),
        (
            {"pattern": "^os", "path": "sub", "context": 1},
            "sub/c.py-1-one\nsub/c.py:2:os two\nsub/c.py-3-three\n--\nsub/c.py-5-five\nsub/c.py:6:os six",
        ),
        (
            {"pattern": "^os", "path": "sub", "max": 1},
            "sub/c.py:2:os two\n[there are more matches; narrow the expression, the glob or the path]",
        ),
        ({"pattern": "-e", "glob": "*.py"}, "No line matches -e."),
    ],
)
async def test_lines_are_found_alike_with_either_program(
    tmp_path: Path, ripgrep: bool, arguments: dict[str, Any], expected: str
) -> None:
    repo = write_tree(make_repository(tmp_path, {"a.txt": "one\ntwo\n"}), TREE)

    answer = await call_tool(Grep(repo, ripgrep=ripgrep), **arguments)

    assert answer.text == expected


def test_the_json_output_of_ripgrep_is_parsed() -> None:
    match = b'{"type":"match","data":{"path":{"text":"./src/a.py"},"lines":{"text":"x = 1\\r\\n"},"line_number":3}}'
    odd = b'{"type":"context","data":{"path":{"text":"././a"},"lines":{"bytes":"Y2Fm6Q=="},"line_number":4}}'
    begin = b'{"type":"begin","data":{"path":{"text":"./src/a.py"}}}'
    summary = b'{"data":{"elapsed_total":{"human":"0s","nanos":1,"secs":0},"stats":{}},"type":"summary"}'

    assert parse_ripgrep_hits(match) == [Hit(path="src/a.py", line=3, text="x = 1", is_match=True)]
    assert parse_ripgrep_hits(odd) == [Hit(path="a", line=4, text="caf\ufffd", is_match=False)]
    assert parse_ripgrep_hits(begin) == parse_ripgrep_hits(summary) == []


async def test_a_link_and_a_binary_file_are_not_searched(tmp_path: Path) -> None:
    write_tree(tmp_path / "outside", {"secret": "needle\n"})
    place = write_tree(tmp_path / "place", {"plain": "needle\n"})
    (place / "binary").write_bytes(b"needle\0\n")
    (place / "link").symlink_to("../outside/secret")
    os.mkfifo(place / "fifo")

    assert (await call_tool(Grep(place, ripgrep=False), pattern="needle")).text == "plain:1:needle"


async def test_an_expression_that_never_ends_is_stopped(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": "a" * 60 + "!\n"})
    query = GrepQuery(pattern="(a+)+$", ignore_case=False, context=0, max_matches=10)

    hits = await search_files(tmp_path, ["a"], query, timeout=0.3)

    assert hits.has_timed_out
    assert hits.lines == []


async def test_a_search_that_breaks_is_not_taken_for_one_that_finds_nothing(tmp_path: Path) -> None:
    query = GrepQuery(pattern="(", ignore_case=False, context=0, max_matches=10)

    hits = await search_files(tmp_path, [], query)

    assert "missing )" in hits.error


@pytest.mark.parametrize("pattern", ["(", "", "a\nb", "\ud800"])
async def test_an_invalid_expression_is_refused(tmp_path: Path, pattern: str) -> None:
    tool = Grep(tmp_path, ripgrep=False)

    with pytest.raises(InvalidCall, match="`pattern`"):
        await tool.prepare(make_tool_use(tool, pattern=pattern))


async def test_the_matches_that_are_returned_are_bounded(tmp_path: Path) -> None:
    write_tree(tmp_path, {"wide": "x" * 1_000_000 + "\n", "long": "x\n" * 5000})

    wide = await call_tool(Grep(tmp_path, ripgrep=False), pattern="x", path="wide")
    long = await call_tool(Grep(tmp_path, ripgrep=False), pattern="x", path="long")

    assert len(wide.text) < 600
    assert wide.text.endswith(" [cut]")
    assert len(long.text.splitlines()) == 201


@pytest.mark.parametrize(
    "path", [".env", "deep/.ENV.local", "id_rsa", "certs/server.pem", ".ssh/config", ".aws/credentials"]
)
def test_files_that_usually_hold_secrets_are_known(path: str) -> None:
    assert holds_secrets(path)


@pytest.mark.parametrize("path", [".env.example", "environment.py", "id_rsa.pub", "src/keys.py"])
def test_files_that_only_look_like_secrets_are_not(path: str) -> None:
    assert not holds_secrets(path)


@pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not installed")
async def test_a_file_with_secrets_that_git_does_not_ignore_stops_no_search(tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "repo", {"a.txt": "one\ntwo\n"})
    write_tree(repo, {".env": "needle", "sub/.env": "needle", "b.txt": "needle"})
    calls: list[Any] = [
        {"calls": [{"name": "grep", "arguments": arguments}]}
        for arguments in ({"pattern": "needle"}, {"pattern": "needle", "path": "sub"}, {"pattern": "a("})
    ]
    async with ModelServer([*calls, {"says": "Done."}]) as server:
        environ = {"OPENAI_API_KEY": "sk-canary-0000", "OPENAI_BASE_URL": server.url}
        settings = Settings.load(environ, home=tmp_path / "home", permission_mode="bypass")
        agent = Agent(name="looker", prompt="Look.", tools=("Read", "Grep", "Bash"))
        async with App(settings, environ=environ) as app, app.start(agent, "Look", repo=repo) as run:
            result = await run.result()
        answers = [one.text for one in server.calls[-1].call.messages if one.role == "tool"]

    assert result.succeeded, result.error
    assert answers[0] == "b.txt:1:needle\n[not searched, because agents must not read it: .env, sub/.env]"
    assert answers[1] == "No line matches needle.\n[not searched, because agents must not read it: sub/.env]"
    assert answers[2].startswith("grep could not search: ")
