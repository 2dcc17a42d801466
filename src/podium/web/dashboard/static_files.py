"""Serve the dashboard's files from memory. Only files that existed when the server started are served."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

from litestar import Request, Response, get
from litestar.di import NamedDependency
from litestar.exceptions import NotFoundException
from litestar.params import FromPath

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
    ".txt": "text/plain; charset=utf-8",
}


class StaticFile(NamedTuple):
    """One of the dashboard's files."""

    content: bytes
    media_type: str
    etag: str


def load_static_files() -> dict[str, StaticFile]:
    """Return the dashboard's files, keyed by path, such as `screens/now.mjs`."""
    found: dict[str, StaticFile] = {}
    _collect_files(files(__package__).joinpath("static"), "", found)
    return found


def _collect_files(folder: Traversable, prefix: str, found: dict[str, StaticFile]) -> None:
    for one in folder.iterdir():
        if one.is_dir():
            _collect_files(one, f"{prefix}{one.name}/", found)
        elif (media_type := MEDIA_TYPES.get(f".{one.name.rpartition('.')[2]}")) is not None:
            content = one.read_bytes()
            found[f"{prefix}{one.name}"] = StaticFile(content, media_type, f'"{sha256(content).hexdigest()[:16]}"')


@get("/", include_in_schema=False, sync_to_thread=False)
def serve_page(
    request: Request[Any, Any, Any], static_files: NamedDependency[dict[str, StaticFile]]
) -> Response[bytes]:
    """Return the dashboard's HTML page."""
    return _respond(request, static_files["index.html"])


@get("/{name:path}", include_in_schema=False, sync_to_thread=False)
def serve_file(
    name: FromPath[str], request: Request[Any, Any, Any], static_files: NamedDependency[dict[str, StaticFile]]
) -> Response[bytes]:
    """Return one of the dashboard's files."""
    found = static_files.get(name.lstrip("/"))
    if found is None:
        raise NotFoundException(f"there is no page {name[:100]}")
    return _respond(request, found)


def _respond(request: Request[Any, Any, Any], file: StaticFile) -> Response[bytes]:
    headers = {"etag": file.etag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == file.etag:
        return Response(b"", status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
