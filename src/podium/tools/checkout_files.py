"""Access the files in a checkout. Nothing outside the checkout is ever opened.

Each path is first resolved to its real path. If the kernel supports `openat2`, the kernel resolves the path and follows
links that stay inside the checkout. Otherwise, the path is traversed directory by directory, and every link is
rejected.

Permission rules are applied to the real path. Files are then opened and written at the real path without following
links, so a link that is created in the meantime causes an error instead of leading outside.
"""

from __future__ import annotations

import errno
import os
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..core.gate import InvalidCall
from ..system import openat2
from ..system.owned_files import WRITTEN, make_owned_name

LONGEST_NAME = 255
LONGEST_PATH = 4096

Kind = Literal["file", "directory", "absent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedPath:
    """A real path, relative to the checkout and without links; `.` is the checkout itself."""

    path: str
    kind: Kind

    def as_file(self) -> LocatedPath:
        """Return this path if it is a file or does not exist. Raise InvalidCall for a directory."""
        if self.kind == "directory":
            raise InvalidCall(f"{self.path} is a directory; use the path of a file.")
        return self


@contextmanager
def open_checkout(directory: Path, *, by_kernel: bool | None = None) -> Iterator[CheckoutFiles]:
    """Open the checkout for the duration of the block.

    `by_kernel` says whether the kernel resolves paths. By default, the kernel does so if `openat2` is available. Raise
    InvalidCall if the directory cannot be opened.
    """
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidCall(f"The checkout cannot be opened: {error.strerror}.") from error
    try:
        yield CheckoutFiles(fd, directory, by_kernel=openat2.is_available() if by_kernel is None else by_kernel)
    finally:
        os.close(fd)


class CheckoutFiles:
    """A checkout with its open directory descriptor. All methods except `locate` take located paths."""

    def __init__(self, fd: int, directory: Path, *, by_kernel: bool) -> None:
        self.fd = fd
        self._directory = directory
        self._by_kernel = by_kernel

    # Locating a path

    def locate(self, path: str) -> LocatedPath:
        """Resolve a path, which need not exist. Raise InvalidCall if it is outside the checkout or cannot be used."""
        relative = self._make_relative(_validate_path(path))
        located = self._locate_by_kernel(relative) if self._by_kernel else self._locate_by_walking(relative)
        if path.endswith("/") and located.kind != "directory":
            raise InvalidCall(
                f"{format_path(path)} ends with a slash, but there is no such directory; remove the slash."
            )
        return located

    def _make_relative(self, path: str) -> str:
        if not path.startswith("/"):
            return path
        for top in (os.path.abspath(self._directory), os.path.realpath(self._directory)):  # noqa: PTH100 - lexical, follows no links
            if path == top or path.startswith(f"{top.rstrip('/')}/"):
                return path[len(top) :].strip("/") or "."
        raise InvalidCall(f"{format_path(path)} is outside the checkout; use a path relative to the checkout.")

    def _locate_by_kernel(self, relative: str) -> LocatedPath:
        absent: list[str] = []
        names = [name for name in relative.split("/") if name not in ("", ".")]
        while True:
            try:
                fd = openat2.open_beneath(self.fd, "/".join(names) or ".", os.O_PATH)
            except FileNotFoundError:
                self._refuse_dangling_link(relative, names)
                absent.insert(0, names.pop())
                if ".." in absent:
                    raise InvalidCall(f"{format_path(relative)} is in a directory that does not exist.") from None
            except OSError as error:
                raise _convert_os_error(relative, error) from error
            else:
                break
        try:
            mode = os.fstat(fd).st_mode
            found = self._read_fd_path(fd, relative)
        finally:
            os.close(fd)
        return self._build_located_path(relative, found, mode, absent)

    def _refuse_dangling_link(self, relative: str, names: list[str]) -> None:
        """Raise InvalidCall if the path is a dangling link, because files are not created through links."""
        with suppress(OSError):
            os.close(openat2.open_beneath(self.fd, "/".join(names), os.O_PATH | os.O_NOFOLLOW))
            raise InvalidCall(f"{format_path(relative)} is a broken link; remove the link or use another path.")

    def _read_fd_path(self, fd: int, relative: str) -> list[str]:
        top, found = (str(Path(f"/proc/self/fd/{one}").readlink()) for one in (self.fd, fd))
        if found == top:
            return []
        if not found.startswith(f"{top.rstrip('/')}/"):
            raise InvalidCall(f"{format_path(relative)} was moved while it was being opened; try again.")
        return found[len(top) :].strip("/").split("/")

    def _locate_by_walking(self, relative: str) -> LocatedPath:
        names: list[str] = []
        for name in relative.split("/"):
            if name == "..":
                if not names:
                    raise _convert_os_error(relative, OSError(errno.EXDEV, ""))
                names.pop()
            elif name not in ("", "."):
                names.append(name)
        found: list[str] = []
        mode = stat.S_IFDIR
        fd = os.dup(self.fd)
        try:
            for name in names:
                if not stat.S_ISDIR(mode):
                    raise _convert_os_error(relative, NotADirectoryError(errno.ENOTDIR, ""))
                mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
                found.append(name)
                if stat.S_ISLNK(mode):
                    raise InvalidCall(
                        f"{'/'.join(found)} is a link, and links are not followed here; use the path it points to."
                    )
                if stat.S_ISDIR(mode):
                    fd = _descend_into(fd, name)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _convert_os_error(relative, error) from error
        finally:
            os.close(fd)
        return self._build_located_path(relative, found, mode, names[len(found) :])

    def _build_located_path(self, relative: str, found: list[str], mode: int, absent: list[str]) -> LocatedPath:
        path = "/".join([*found, *absent]) or "."
        if not _has_clean_characters(path):
            raise InvalidCall(
                f"{format_path(relative)} points to {format_path(path)}, which contains unprintable characters; "
                "rename the target first."
            )
        if absent:
            if not stat.S_ISDIR(mode):
                raise _convert_os_error(relative, NotADirectoryError(errno.ENOTDIR, ""))
            return LocatedPath(path=path, kind="absent")
        if stat.S_ISDIR(mode):
            return LocatedPath(path=path, kind="directory")
        if stat.S_ISREG(mode):
            return LocatedPath(path=path, kind="file")
        raise InvalidCall(
            f"{format_path(relative)} is {_describe_file_type(mode)}; only regular files and directories can be used."
        )

    # Opening located paths

    @contextmanager
    def open_directory(self, path: str, *, create: bool = False) -> Iterator[int]:
        """Open the directory at a located path and yield its descriptor. `create` makes missing directories."""
        fd = os.dup(self.fd)
        try:
            for name in _split_names(path):
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=fd)
                fd = _descend_into(fd, name)
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def open_file(self, path: str) -> Iterator[int]:
        """Open the file at a located path for reading and yield its descriptor.

        A fifo or device is rejected before it is opened.
        """
        above, name = _split_parent(path)
        with self.open_directory(above) as parent:
            if not stat.S_ISREG(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                raise InvalidCall(f"{format_path(path)} is no longer a file; check the path again.")
            # Non-blocking, because a fifo may replace the file at this moment.
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=parent)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise InvalidCall(f"{format_path(path)} is no longer a file; check the path again.")
            yield fd
        finally:
            os.close(fd)

    def write_file(self, path: str, content: bytes) -> None:
        """Write a file atomically at a located path, and create missing directories. A replaced file keeps its mode."""
        above, name = _split_parent(path)
        with self.open_directory(above, create=True) as parent:
            there = _stat_if_present(name, parent)
            if there is not None and not stat.S_ISREG(there.st_mode):
                raise InvalidCall(f"{format_path(path)} is no longer a file; check the path again.")
            written = make_owned_name(WRITTEN)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(written, flags, 0o666 if there is None else 0o600, dir_fd=parent)
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(content)
                    if there is not None:
                        _copy_owner_and_mode(fd, there)
                    file.flush()
                    os.fsync(fd)
                os.rename(written, name, src_dir_fd=parent, dst_dir_fd=parent)
                os.fsync(parent)  # the new name must survive a power failure, too
            except BaseException:
                with suppress(OSError):
                    os.unlink(written, dir_fd=parent)
                raise


def _copy_owner_and_mode(fd: int, there: os.stat_result) -> None:
    """Copy the owner and mode of the replaced file, without the setuid, setgid and sticky bits."""
    with suppress(OSError):  # only root can change a file's owner
        os.fchown(fd, there.st_uid, there.st_gid)
    os.fchmod(fd, stat.S_IMODE(there.st_mode) & 0o777)


def _stat_if_present(name: str, parent: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _descend_into(fd: int, name: str) -> int:
    """Open a subdirectory, close its parent's descriptor, and return the new descriptor."""
    below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    os.close(fd)
    return below


def _split_names(path: str) -> list[str]:
    names = [] if path == "." else path.split("/")
    assert not {"", ".", ".."} & set(names), "the path must be resolved with `locate` first"
    return names


def _split_parent(path: str) -> tuple[str, str]:
    *above, name = _split_names(path)
    return "/".join(above) or ".", name


# Path checks and error messages


def _validate_path(path: str) -> str:
    if not path:
        raise InvalidCall("The path is empty; use a path relative to the checkout.")
    if not _has_clean_characters(path):
        raise InvalidCall(f"{format_path(path)} contains unprintable characters; use a path without such characters.")
    if path == "~" or path.startswith("~/"):
        raise InvalidCall(f"{format_path(path)} is in a home directory; use a path relative to the checkout.")
    if len(os.fsencode(path)) >= LONGEST_PATH or any(len(os.fsencode(name)) > LONGEST_NAME for name in path.split("/")):
        raise InvalidCall(
            f"{format_path(path)} is too long; the limit is {LONGEST_NAME} bytes per name, {LONGEST_PATH - 1} per path."
        )
    return path


def _has_clean_characters(path: str) -> bool:
    """Return whether the path can be recorded and shown unchanged: it is valid UTF-8 without control characters."""
    return not any(unicodedata.category(character) in ("Cc", "Cs") for character in path)


def _convert_os_error(path: str, error: OSError) -> InvalidCall:
    match error.errno:
        case errno.EXDEV:
            return InvalidCall(f"{format_path(path)} leads out of the checkout; only paths inside it can be used.")
        case errno.ELOOP:
            return InvalidCall(
                f"{format_path(path)} contains a link that cannot be followed; use the path it points to."
            )
        case errno.ENOTDIR:
            return InvalidCall(f"{format_path(path)} cannot be used: one of its parent directories is a file.")
        case _:
            return InvalidCall(f"{format_path(path)} cannot be reached: {error.strerror or error}.")


def format_path(path: str) -> str:
    """Format a path for a message. A long path is cut, and a path with unprintable characters is quoted."""
    cut = path if len(path) <= 200 else f"{path[:200]}…"
    return cut if cut.isprintable() else ascii(cut)


def _describe_file_type(mode: int) -> str:
    """Return the type of a directory entry that is neither a file nor a directory, with an article."""
    kinds = ((stat.S_ISFIFO, "a fifo"), (stat.S_ISSOCK, "a socket"), (stat.S_ISLNK, "a link"))
    return next((words for is_kind, words in kinds if is_kind(mode)), "a device")
