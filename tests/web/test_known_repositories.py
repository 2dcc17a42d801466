"""Which folders a client may name: without the scope approve, only repositories where the person's runs work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podium.runs.queries.known_repositories import KnownRepositories
from podium.testing import make_repository

from .api_client import ApiClient
from .conftest import Site, open_site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("known")
    for name in ("unknown", "worked-in"):
        make_repository(folder / name)
        (folder / name / "src").mkdir()
    with open_site(folder) as site:
        site.studio.agent("speaker", says=("Hello.",))
        site.portal.call(run_in, site, folder / "worked-in")
        yield site


async def run_in(site: Site, repo: Path) -> None:
    async with site.studio.app() as app, app.start(site.studio.agents["speaker"], "Hi", repo=repo) as run:
        await run.result()


@pytest.fixture(scope="module")
def routes(site: Site) -> dict[tuple[str, str], list[str]]:
    """Return the fields of every route of the API document that name folders, in its query or its body."""
    with ApiClient(site) as client:
        document = client.read("/api/schema/openapi.json")
    found: dict[tuple[str, str], list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            names = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            schema = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
            names += document["components"]["schemas"].get(schema, {}).get("properties", {})
            if folders := [name for name in names if name in ("repo", "also")]:
                found[method.upper(), path] = folders
    return found


BODIES: dict[str, dict[str, Any]] = {
    "/api/runs": {"agent": "answer", "request": "Hi"},
    "/api/workers": {"branch": "feat/x", "task": "Do it", "agent": "answer"},
    "/api/merges": {},
}


def name_folder(client: ApiClient, method: str, path: str, field: str, folder: Path) -> tuple[int, str]:
    """Send a request that names a folder, and return the status and the detail of the reply."""
    path = path.format_map({"name": "answer", "run": "none", "decision_id": "d1"})
    value: Any = [str(folder)] if field == "also" else str(folder)
    if method == "GET":
        response = client.get(path, params={field: str(folder)})
    else:
        response = client.request(method, path, json={**BODIES[path], field: value})
    return response.status_code, str(response.json().get("detail", ""))


def test_no_route_lets_a_token_that_may_not_approve_name_an_unknown_folder(
    site: Site, routes: dict[tuple[str, str], list[str]]
) -> None:
    folder = site.repo.parent
    link = folder / "link"
    link.symlink_to(folder / "unknown")
    others = [folder / "unknown", folder / "unknown" / "src", folder / "missing", folder, link, Path("/etc"), Path("/")]
    others += [folder / ("x" * 300), Path("/" + "a/" * 3000)]
    seen: dict[tuple[str, str, str], list[tuple[int, str]]] = {}

    with ApiClient(site, scopes=("read", "act")) as client:
        for (method, path), fields in routes.items():
            if method != "GET" and path not in BODIES:
                continue  # these need the scope approve in any case
            for field in fields:
                shown = [name_folder(client, method, path, field, one) for one in others]
                seen[method, path, field] = [
                    (status, says.replace(repr(str(one)[:200]), "FOLDER"))
                    for (status, says), one in zip(shown, others, strict=True)
                ]

    assert len(seen) >= 12
    says = (
        "FOLDER is not in a repository of the server or of an earlier run; start a run there on the server's machine "
        "first, or use a token with the scope approve"
    )
    assert {reply for replies in seen.values() for reply in replies} == {(403, says)}


def test_a_repository_with_a_run_of_the_person_may_be_named(site: Site) -> None:
    folder = site.repo.parent
    with ApiClient(site, scopes=("read", "act")) as client:
        statuses = [
            client.get("/api/agents", params={"repo": str(one)}).status_code
            for one in (site.repo, folder / "worked-in", folder / "worked-in" / "src")
        ]

    assert statuses == [200, 200, 200]


def test_a_repository_inside_a_known_one_is_not_known(site: Site) -> None:
    inner = site.repo / "vendor"
    make_repository(inner)

    with ApiClient(site, scopes=("read", "act")) as client:
        refused = client.get("/api/agents", params={"repo": str(inner)})

    assert refused.status_code == 403


def test_a_token_that_may_approve_names_any_folder(site: Site) -> None:
    with ApiClient(site) as client:
        read = client.get("/api/agents", params={"repo": str(site.repo.parent / "unknown")})
        others = (f"{site.repo.parent}/missing", f"/{'x' * 300}", "/a" * 3000, "/\0", f"{site.repo}/.git/HEAD")
        missing = [client.get("/api/agents", params={"repo": one}).status_code for one in others]

    assert (read.status_code, missing) == (200, [422] * 5)


@pytest.mark.parametrize("given", ["", ".", "repo", "../repo", "\0", "/\0", "/a" * 5000])
def test_a_path_that_is_not_absolute_is_unknown(site: Site, given: str) -> None:
    assert KnownRepositories(site.store, site.repo).find(given) is None
