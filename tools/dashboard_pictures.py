"""Make the pictures of the dashboard in docs/images: a demo's runs in a real browser.

    .venv/bin/python tools/dashboard_pictures.py

It needs Debian's chromium, and no key and no network.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Page, expect, sync_playwright

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
PODIUM = (sys.executable, "-m", "podium")

DEPLOYER = """\
---
name: deployer
description: Deploys the shop.
engine: scripted
tools: [bash]
---
```script
[{"calls": [{"name": "bash", "arguments": {"command": "rm -rf build && make deploy"}}]}, "Deployed."]
```
"""


def main() -> None:
    """Fill a store and take the pictures."""
    IMAGES.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        repo, home = Path(folder, "shop"), Path(folder, "home")
        environ = {**os.environ, "PODIUM_HOME": str(home), "PODIUM_MODEL": "rehearsal"}
        make_repository(repo)
        run(repo, environ, "run", "plan-build-review", "Add a discount code to the checkout", "--quiet")
        run(
            repo,
            environ,
            "decide",
            "Where do we keep carts?",
            "--option",
            "sqlite",
            "--option",
            "redis",
            "--by",
            "debate",
        )
        run(repo, environ, "run", "deployer", "Deploy the shop", "--detach")
        with serve(repo, environ) as address:
            take_pictures(address)


def make_repository(repo: Path) -> None:
    """Make a repository with a file and an agent."""
    (repo / ".podium" / "agents").mkdir(parents=True)
    (repo / ".podium" / "agents" / "deployer.md").write_text(DEPLOYER, encoding="utf-8")
    (repo / "shop.py").write_text("PRICE = 10\n", encoding="utf-8")
    git = ["git", "-C", str(repo), "-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    subprocess.run(["git", "init", "-q", "-b", "main", str(repo)], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "Open the shop"], check=True)


def run(repo: Path, environ: dict[str, str], *arguments: str) -> None:
    """Run podium in the repository; what it prints does not matter here."""
    subprocess.run(
        [*PODIUM, *arguments], cwd=repo, env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )


@contextmanager
def serve(repo: Path, environ: dict[str, str]) -> Iterator[str]:
    """Serve the store, and yield the address that signs a browser in."""
    with subprocess.Popen(
        [*PODIUM, "serve", "--port", "0", "--json"], cwd=repo, env=environ, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            text += server.stdout.readline()
        try:
            yield json.loads(text)["sign_in"]
        finally:
            server.terminate()


def take_pictures(address: str) -> None:
    """Open each screen and save its picture."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--disable-gpu"])
        context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
        page = context.new_page()
        page.goto(address)
        expect(page.get_by_text("deployer").first).to_be_visible(timeout=30_000)
        save(page, "now")
        page.goto(f"{address.partition('#')[0]}#/approvals")
        expect(page.get_by_text("make deploy").first).to_be_visible()
        save(page, "approvals")
        page.set_viewport_size({"width": 390, "height": 844})
        save(page, "phone")
        page.set_viewport_size({"width": 1280, "height": 800})
        plan = page.evaluate(
            """async () => (await (await fetch("/api/plans", {headers: {Authorization:
            `Bearer ${sessionStorage.getItem("podium-token")}`}})).json()).plans[0].run"""
        )
        for place, name, text in (
            (f"run/{plan}", "run", "Timeline"),
            (f"plans/{plan}", "plan", "steps done"),
            ("decisions", "decisions", "Where do we keep carts?"),
            (f"cost/{plan}", "cost", "Time of the run"),
        ):
            page.goto(f"{address.partition('#')[0]}#/{place}")
            expect(page.get_by_text(text).first).to_be_visible(timeout=30_000)
            save(page, name)
        browser.close()


def save(page: Page, name: str) -> None:
    """Save a picture of the page."""
    page.screenshot(path=IMAGES / f"dashboard-{name}.png", animations="disabled")


if __name__ == "__main__":
    main()
