"""Choose the program, the environment and the folder of a process that runs outside the sandbox.

Such a process has the user's rights, so nothing that an agent's command can write may decide what it runs. Its program
is looked up only outside the checkouts, its environment names no folder of a checkout, and it starts in an empty
folder of Podium's home. `PODIUM_REPO` tells it the repository.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ..values.errors import Mistake
from ..values.plain_text import escape_unprintable, truncate_text
from .checkouts import Checkouts, find_checkouts
from .locations import REPO_MARKERS, find_home_folder, find_repo, is_repo_marker

REPO_VARIABLE = "PODIUM_REPO"
START_FOLDERS = "program-folders"
"""The folder in Podium's home that contains the start folders."""
NO_HOME = "/nonexistent"
"""The home folder of a program if the user's own home folder is in a checkout."""
EXAMINED_BYTES = 4096

SEARCH_LISTS = re.compile(
    r"PATH|(?:PYTHON|NODE_|GO|CLASS|CD|F|MAN|INFO|GEM_|LIBRARY_|C|PKG_CONFIG_|LUA_|LUA_C|TCLLIB|GIT_EXEC_|NIX_|OCAML"
    r"|MODULE|GI_TYPELIB_|QT_PLUGIN_|GCONV_|JULIA_LOAD_|GUILE_LOAD_|\w*LIBRARY_|\w*FRAMEWORK_)PATH"
    r"|RUBYLIB|PERL5LIB|PERLLIB|R_LIBS\w*|ERL_LIBS|XDG_\w+_DIRS|TERMINFO_DIRS|MAKEFILES"
)
"""Names of variables with lists of folders or files in which programs find code."""
LOADING_VARIABLES = re.compile(
    r"PYTHON\w*|VIRTUAL_ENV|CONDA_PREFIX|NODE_\w+|(?i:npm_config_\w+)|RUBYOPT|PERL5?\w*|BASH_ENV|ENV|ZDOTDIR"
    r"|LD_\w+|DYLD_\w+|GIT_\w+|MAKEFLAGS|UV_\w+|PIP_\w+|PIPX_\w+|BUN_\w+|DENO_\w+|COREPACK_\w+|BUNDLE_\w+"
    r"|GEM_HOME|\w*JAVA\w*OPTIONS|JAVA_HOME|CARGO_\w+|RUST\w+|GOROOT|GOFLAGS|GOENV|GOWORK|PHPRC|PHP_INI_SCAN_DIR"
    r"|COMPOSER_\w+|NVM_DIR|YARN_\w+|PNPM_\w+|MISE_\w+|ASDF_\w+|SHELL|EDITOR|VISUAL|PAGER|\w+_PAGER"
)
"""Names of variables that make programs load code, so that a relative path in them depends on the folder."""


def build_unsandboxed_environment(
    environ: Mapping[str, str], checkouts: Checkouts, given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return an environment without the paths through which a program would find code of a checkout.

    Lists of folders such as `PATH` keep their other absolute folders. Any other variable that names a path in a
    checkout is left out. Python does not add the folder of a script to its path, unless `given`, the variables that the
    program's definition sets, says otherwise.
    """
    wanted = {**environ, **(given or {})}
    kept = {
        name: cleaned for name, value in wanted.items() if (cleaned := _clean_value(name, value, checkouts)) is not None
    }
    if "HOME" in wanted and "HOME" not in kept:
        kept["HOME"] = NO_HOME
    # Without PATH, some programs search the folder that they start in.
    kept["PATH"] = kept.get("PATH") or os.defpath
    kept["PYTHONSAFEPATH"] = (given or {}).get("PYTHONSAFEPATH", "1")
    return kept


def _clean_value(name: str, value: str, checkouts: Checkouts) -> str | None:
    """Return the value of a variable without paths that lead into a checkout, or None if nothing is left of it."""
    parts = value.split(os.pathsep)
    if SEARCH_LISTS.fullmatch(name) or (len(parts) > 1 and all(map(os.path.isabs, parts))):
        return os.pathsep.join(part for part in parts if os.path.isabs(part) and not checkouts.contain(part)) or None  # noqa: PTH117 - plain text
    if checkouts.list_named(value) or (LOADING_VARIABLES.fullmatch(name) and _has_relative_path(value)):
        return None
    return value


def _has_relative_path(value: str) -> bool:
    """Return whether a part of a value is a relative path, as `./a.js` and `a/b` are in `--require=./a.js -r a/b`."""
    return any(
        part.startswith(".") or ("/" in part and part[0] != "/") for part in re.split(r"[\s=:,]+", value) if part
    )


def find_current_checkouts(home: Path, *others: Path | None) -> Checkouts:
    """Return the checkout that this process works in, if any, and other checkouts. `home` is Podium's home folder."""
    try:
        repo: Path | None = find_repo(Path.cwd(), home=home)
    except OSError:  # the working folder was removed
        repo = None
    is_checkout = repo is not None and any(is_repo_marker(repo / mark, home) for mark in REPO_MARKERS)
    return find_checkouts(repo if is_checkout else None, *others)


def find_unsandboxed_program(name: str, path: str, checkouts: Checkouts) -> str:
    """Return the absolute path of a program that no checkout provides. Raise Mistake if there is none.

    A bare name is looked up in the absolute folders of `path`. A program is skipped if it is in a checkout, if a link
    on the way to it is, or if it is a script that names an interpreter or another program there.
    """
    if os.path.isabs(name):  # noqa: PTH117 - plain text
        if why := _explain_dependence(name, checkouts):
            raise Mistake(f"the program {_show(name)} {why}, where agents' commands can change it")
        return name
    if os.sep in name:
        raise Mistake(
            f"the program {_show(name)} is a relative path, and programs outside the sandbox do not start in the "
            "checkout; give an absolute path"
        )
    skipped = ""
    for folder in path.split(os.pathsep):
        if not os.path.isabs(folder) or checkouts.contain(folder):  # noqa: PTH117 - plain text
            skipped = skipped or _find_there(name, folder)
        elif found := _find_there(name, folder):
            if not _explain_dependence(found, checkouts):
                return found
            skipped = skipped or found
    if skipped:
        raise Mistake(
            f"program {_show(name)} found only in a checkout ({_show(skipped)}), where agents' commands can change it; "
            "install it outside the repository"
        )
    raise Mistake(f"program {_show(name)} not found on the PATH")


def find_current_program(name: str, path: str, home: Path | None) -> str | None:
    """Return the absolute path of an executable program, or None. A bare name is not looked up in the current checkout.

    `home` is Podium's home folder; by default, it is the usual one. An absolute path is the user's own choice.
    """
    if os.path.isabs(name):  # noqa: PTH117 - plain text
        return shutil.which(name)
    checkouts = find_current_checkouts(find_home_folder(os.environ) if home is None else home)
    try:
        found = find_unsandboxed_program(name, path, checkouts)
    except Mistake:
        return None
    return shutil.which(found)


def _find_there(name: str, folder: str) -> str:
    found = shutil.which(name, path=folder) if folder else None
    return found or ""


def _explain_dependence(program: str, checkouts: Checkouts) -> str:
    """Return how a program depends on a checkout, or "" if it does not."""
    if checkouts.contain(program):
        return "is in a checkout"
    try:
        with open(program, "rb") as file:  # noqa: PTH123 - plain text
            beginning = os.fsdecode(file.read(EXAMINED_BYTES))
    except (OSError, ValueError):
        return ""  # starting it reports the error
    # Installers write scripts whose second line names the interpreter, if its path is too long for the first.
    if beginning.startswith("#!") and any(checkouts.list_named(line) for line in beginning.splitlines()):
        return "is a script that names a path in a checkout"
    return ""


@contextmanager
def open_start_folder(home: Path, checkouts: Checkouts) -> Iterator[Path]:
    """Yield an empty private folder to start a program in, and remove it afterwards.

    If Podium's home is in a checkout, yield the root folder: programs also search the folders above the one that they
    start in, and agents' commands could write there.
    """
    if checkouts.contain(home):
        yield Path("/")
        return
    above = home / START_FOLDERS
    above.mkdir(mode=0o700, parents=True, exist_ok=True)
    with TemporaryDirectory(dir=above, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _show(name: str) -> str:
    return repr(escape_unprintable(truncate_text(name, 200)))
