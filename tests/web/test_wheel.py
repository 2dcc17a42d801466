"""The wheel serves the page that is in the repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parent.parent.parent
STATIC = ROOT / "src" / "podium" / "web" / "dashboard" / "static"
SCRIPT = """
import json, os, podium
from podium.web.dashboard.static_files import load_static_files
print(json.dumps([os.path.dirname(podium.__file__), {name: file.etag for name, file in load_static_files().items()}]))
"""


def build_wheel(folder: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [wheel] = folder.glob("*.whl")
    return wheel


def test_the_installed_wheel_has_the_files_of_the_page(tmp_path: Path) -> None:
    wheel, installed = build_wheel(tmp_path), tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(installed), str(wheel)]
    subprocess.run(install, check=True)

    environ = {**os.environ, "PYTHONPATH": str(installed)}
    said = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, env=environ, capture_output=True, check=True)

    place, served = json.loads(said.stdout)
    assert place == str(installed / "podium")
    files = [file for file in STATIC.rglob("*") if file.is_file()]
    assert served == {
        str(file.relative_to(STATIC)): f'"{sha256(file.read_bytes()).hexdigest()[:16]}"' for file in files
    }
    assert {"index.html", "app.mjs", "app.css", "vendor.mjs", "vendor.txt"} <= served.keys()


def test_the_vendored_libraries_are_those_that_their_note_names() -> None:
    note = (STATIC / "vendor.txt").read_text(encoding="utf-8")

    assert f"sha256 {sha256((STATIC / 'vendor.mjs').read_bytes()).hexdigest()}" in note


@pytest.mark.slow
def test_a_clean_environment_serves_the_page(tmp_path: Path) -> None:
    wheel, place = build_wheel(tmp_path), tmp_path / "environment"
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *constraints, f"{wheel}[web]"], check=True)
    environ = {"PATH": os.environ["PATH"], "PODIUM_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    with subprocess.Popen(
        [python, "-m", "podium", "serve", "--port", "0", "--json"],
        cwd=tmp_path,
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        try:
            text = ""
            while not text.rstrip().endswith("}"):
                text += server.stdout.readline()
            address = json.loads(text)["address"]
            assert httpx.get(f"{address}/app.mjs").content == (STATIC / "app.mjs").read_bytes()
        finally:
            server.terminate()
