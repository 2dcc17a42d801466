"""Count which of 2,000 harmless commands the policy asks about, by cause.

`harmless_commands.txt` has one command on each line, as developers and agents write them: tests, builds, git, searches
and reading files. `harmless_commands_asked.txt` is the recorded result. Record it anew after a change of the policy:

    python -m tests.policy.harmless_commands
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from podium.policy import Rules, check
from podium.policy.command_words import Words
from podium.policy.shell_command import parse_command
from podium.policy.shell_program import find_risks, get_program_name, is_read_only

CORPUS = Path(__file__).with_name("harmless_commands.txt")
RECORDED = Path(__file__).with_name("harmless_commands_asked.txt")

USUAL_RULES = Rules(
    allow=tuple(
        f"Bash({start} *)"
        for start in (
            *("pytest", "python -m pytest", "uv run", "ruff check", "ruff format --check", "mypy", "make", "npm test"),
            *("npm run", "npx jest", "npx tsc", "npx eslint", "cargo", "cargo fmt", "go", "git", "git add"),
            *("git commit", "git fetch", "gh", "docker", "kubectl", "pip", "sqlite3", "sed", "awk", "jq", "echo"),
        )
    )
)
"""Rules of the kind that people write for their projects."""


def read_commands() -> list[str]:
    return CORPUS.read_text().splitlines()


def find_cause(command: str) -> str:
    """Return what the policy asks about: the shell's syntax, or the first program that needs a rule."""
    parsed = parse_command(command)
    if parsed.odd:
        return f"shell: {parsed.odd}"
    return next((_describe_program(words) for words in parsed.parts if not _reads(words)), "path")


def _reads(words: Words) -> bool:
    return is_read_only(words) and not find_risks(words)


def _describe_program(words: Words) -> str:
    name = get_program_name(words)
    return f"git {words[1]}" if name == "git" and words[1:] else name


def record() -> str:
    """Return the counts and the commands that ask, as they are kept in `harmless_commands_asked.txt`."""
    commands = read_commands()
    asked = [one for one in commands if check(one, Rules()).decision != "allow"]
    still_asked = {one for one in asked if check(one, USUAL_RULES).decision != "allow"}
    causes = Counter(map(find_cause, asked))
    lines = [
        f"{len(commands)} commands",
        f"{len(asked)} ask without a rule",
        f"{len(still_asked)} ask with usual rules",
        "",
        *(f"{count:4} {cause}" for cause, count in sorted(causes.items(), key=lambda pair: (-pair[1], pair[0]))),
        "",
        *(f"{'always' if one in still_asked else 'no rule'}: {one}" for one in asked),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    RECORDED.write_text(record())
