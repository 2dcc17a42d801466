"""A git in place of the system's that kills the process that called it, and itself, at a chosen moment.

The moments are before and after a call, and the n-th change of the file system during a call.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count
from pathlib import Path

import pytest

REAL = "/tmp/real-git"
WRAPPER = f"""#!/bin/bash
case "$*" in *"config --name-only"*) exec {REAL}/git "$@" ;; esac
calls=$(( $(cat FOLDER/calls) + 1 ))
echo $calls > FOLDER/calls
read -r call moment < FOLDER/at
[ "$calls" = "$call" ] || [ "$2" = "$call" ] || exec {REAL}/git "$@"
echo "$moment: git $*" > FOLDER/struck
case $moment in
  before) ;;
  after) {REAL}/git "$@" ;;
  *)
    cat > FOLDER/input
    changes=rename,renameat,renameat2,link,unlink,fsync
    strace -f -o /dev/null -e inject=$changes:signal=KILL:when=$moment {REAL}/git "$@" < FOLDER/input ;;
esac
kill -KILL $PPID 0
"""


@cache
def _find_lack() -> str:
    """Return what is missing to put another program in place of git, or an empty string."""
    if missing := [name for name in ("bwrap", "strace") if shutil.which(name) is None]:
        return f"{' and '.join(missing)} not installed"
    if not Path("/usr/bin/git").exists():
        return "git is not in /usr/bin"
    tried = subprocess.run(["bwrap", "--dev-bind", "/", "/", "--tmpfs", REAL, "true"], capture_output=True, text=True)
    return tried.stderr.strip()


def run_with_deadly_git(folder: Path, argv: Sequence[str], call: int | str, moment: str) -> str:
    """Run a program whose git is deadly. Return what was struck, or an empty string if there was no such call.

    `call` is the number of the call, or its git command.
    """
    if lack := _find_lack():
        pytest.skip(f"git cannot be replaced here: {lack}")
    folder.mkdir(exist_ok=True)
    (folder / "git").write_text(WRAPPER.replace("FOLDER", str(folder)))
    (folder / "git").chmod(0o755)
    (folder / "calls").write_text("0\n")
    (folder / "at").write_text(f"{call} {moment}\n")
    (folder / "struck").unlink(missing_ok=True)
    mounts = ("--tmpfs", REAL, "--ro-bind", "/usr/bin/git", f"{REAL}/git", "--ro-bind", f"{folder}/git", "/usr/bin/git")
    done = subprocess.run(["bwrap", "--dev-bind", "/", "/", *mounts, "--", *argv], capture_output=True, text=True)
    if not (folder / "struck").exists():
        assert done.returncode == 0, done.stderr
        return ""
    return (folder / "struck").read_text().strip()


def strike_at_every_call(folder: Path, argv: Sequence[str], moments: Sequence[str]) -> Iterator[str]:
    """Run a program again and again, struck at each of its git calls. Yield what was struck.

    The caller restores the state that the program begins with.
    """
    for moment in moments:
        for call in count(1):
            if not (struck := run_with_deadly_git(folder, argv, call, moment)):
                break
            yield struck
