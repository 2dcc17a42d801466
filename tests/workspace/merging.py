"""A real repository with branches, for the merge tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from podium.testing import make_repository, run_git
from podium.workspace.merging.merge_train import CheckResult, TrainBranch

LINES = "".join(f"{number}\n" for number in range(30))


class Repo:
    """A repository with `main` checked out, and branches that are created without changing the checkout."""

    def __init__(self, path: Path) -> None:
        self.path = path
        make_repository(path, {"a.txt": LINES, "b.txt": LINES, "old.txt": LINES})

    def git(self, *args: str, at: Path | None = None) -> str:
        return run_git(at or self.path, *args).strip()

    def commit(self, files: Mapping[str, str | bytes | None], message: str = "more", at: Path | None = None) -> str:
        """Write, or remove, these files and commit them."""
        folder = at or self.path
        for name, content in files.items():
            if content is None:
                (folder / name).unlink()
                continue
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        self.git("add", "-A", at=folder)
        self.git("commit", "-q", "-m", message, at=folder)
        return self.git("rev-parse", "HEAD", at=folder)

    def branch(self, name: str, files: Mapping[str, str | bytes | None], *, start: str = "main") -> str:
        """Create a branch with one commit on top of its start."""
        folder = self.path.parent / "making"
        self.git("worktree", "add", "-q", "-B", name, str(folder), start)
        commit = self.commit(files, name, at=folder)
        self.git("worktree", "remove", "--force", str(folder))
        return commit

    def tip(self, branch: str = "main") -> str:
        return self.git("rev-parse", f"refs/heads/{branch}")

    def tree(self, commit: str) -> str:
        return self.git("rev-parse", f"{commit}^{{tree}}")

    def train_branch(self, branch: str, *after: str) -> TrainBranch:
        return TrainBranch(branch=branch, commit=self.tip(branch), after=after)

    def visible_state(self) -> dict[str, str]:
        """Return everything that a person could see of the repository."""
        return {
            "refs": self.git("for-each-ref"),
            "head": (self.path / ".git" / "HEAD").read_text(),
            "index": self.git("ls-files", "--stage"),
            "status": self.git("status", "--porcelain", "--ignored"),
            "reachable": self.git("rev-list", "--all", "--objects"),
            "worktrees": self.git("worktree", "list", "--porcelain"),
        }


def replace_line(line: int, text: str) -> str:
    """Return the usual content with one line replaced."""
    lines = LINES.splitlines(keepends=True)
    lines[line] = f"{text}\n"
    return "".join(lines)


async def check_not_broken(path: Path) -> CheckResult:
    """A check that fails if a certain file exists."""
    if (path / "broken.txt").exists():
        return CheckResult(passed=False, command="make test", output="line\n" * 100 + "1 failed: broken.txt\n")
    return CheckResult(passed=True)
