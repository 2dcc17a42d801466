"""Find the risks of a simple command, the paths that it reads and changes, and whether it runs other commands.

Only the words of the command are considered. `safe_options` lists the harmless words of known programs. For other
programs, only the paths among the words are checked: a person who writes a wildcard rule for such a program accepts
its other effects.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

from .command_words import Risk, Words, is_known_program, judge_words, split_names
from .option_names import is_running_word
from .path_rules import is_protected, is_sensitive, locate_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node


_GLOB_SIGN = re.compile(r"[*?\[]")
_QUOTE = re.compile(r"[\"'\\$`]")

_ANSI_ESCAPE = re.compile(
    r"\\(x\{[0-9a-fA-F]*\}?|x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL
)

STARTS_ELSEWHERE = re.compile("-C|--(?:directory|chdir|cwd)")
_START_OPTIONS = ("-C", "--directory", "--chdir", "--cwd")


DEEPEST = 8
"""The number of commands around a command, as in `nice timeout 5 ls`, up to which it is checked."""


def get_program_name(words: Words) -> str:
    """Return the name of a command's program in lower case, without its folder: `rm` for `/bin/RM`."""
    return words[0].rpartition("/")[2].lower() if words else ""


def is_runner(words: Words, name: str) -> bool:
    """Return whether a command starts with a prefix, such as `uv run`, that runs the remaining words as a command."""
    if words[1:2] == ("exec",) and not is_known_program(name):
        return True
    return name in RUNNERS and len(words) > 1 and words[1] in RUNNERS[name]


@lru_cache(maxsize=1024)
def find_risks(words: Words, *, depth: int = 0) -> tuple[Risk, ...]:
    """Return the risky words in a simple command, with reasons. A wildcard in a rule never allows a risky word.

    `depth` is the number of commands around this one, such as 1 for the `ls` in `nice ls`.
    """
    return tuple(_find_risks(words, depth))


def _find_risks(words: Words, depth: int) -> Iterator[Risk]:
    name = get_program_name(words)
    if depth > DEEPEST:
        yield Risk(0, f"more than {DEEPEST} commands run each other")
        yield from _find_risks_of_paths(enumerate(words))
        return
    if name == "command" and len(words) == 3 and words[1] in ("-v", "-V"):
        return
    if name in WRAPPERS:
        yield from _find_wrapper_risks(words, name, depth)
    elif is_runner(words, name):
        yield from _find_runner_risks(words, depth)
    elif INTERPRETER.fullmatch(name):
        yield from _find_interpreter_risks(words, depth)
        yield from _find_risks_of_paths(enumerate(words))
    elif is_known_program(name):
        judged = judge_words(words, name)
        yield from judged.risks
        if name != words[0]:
            yield from _find_path_risks(0, words[0])
        yield from _find_risks_of_paths(judged.paths)
    else:
        for at in range(1, len(words)):
            if is_running_word(words, at):
                yield Risk(at, f"{words[at]} may make {words[0]} run another program, so a rule must contain it")
        yield from _find_risks_of_paths(enumerate(words))


def _find_risks_of_paths(paths: Iterable[tuple[int, str]]) -> Iterator[Risk]:
    for at, word in paths:
        yield from _find_path_risks(at, word)


@lru_cache(maxsize=1024)
def is_read_only(words: Words) -> bool:
    """Return whether a command is known to be read-only."""
    name = words[0]
    if name == "command":
        return not find_risks(words)
    known = name not in WRAPPERS and is_known_program(name) and judge_words(words, name).is_reading
    return known and not any(risk.kind == "deed" for risk in find_risks(words))


def find_mentioned_paths(words: Words, name: str) -> list[str]:
    """Return the words and parts of words that may be paths, or an empty list if the program `name` opens no files."""
    return [] if name in PATHLESS else list(chain.from_iterable(map(_find_paths, words[1:])))


def find_changed_paths(words: Words, name: str) -> list[str]:
    """Return the paths that a command with the program `name` is known to write, move or delete."""
    operands = _find_changed_operands(words, name)
    return [word.removeprefix("of=") for word in operands if not word.startswith("-")] if operands else []


def _find_changed_operands(words: Words, name: str) -> Words:
    """Return the operands that a command is known to change. The result may also contain options."""
    if name in WRITERS:
        return words[1:]
    if name in COPIERS:
        targets = (
            words[at + 1] if word == "-t" else word.partition("=")[2]
            for at, word in enumerate(words[:-1])
            if word == "-t" or word.startswith("--target-directory=")
        )
        return (*words[-1:], *targets)
    if name == "git":
        at = next((at for at, word in enumerate(words) if at and not word.startswith("-")), len(words))
        return words[at + 1 :] if words[at : at + 1] and words[at] in GIT_WRITES else ()
    if name == "sed" and any(re.match(r"-[a-zA-Z]*i|--in", word) for word in words[1:]):
        return words[1:]
    return ()


@lru_cache(maxsize=4096)
def _find_paths(word: str) -> tuple[str, ...]:
    """Return the possible paths in a word: the word, an option's value, or what follows a separator (`HEAD:.env`)."""
    marks = [mark.end() for mark in _PATH_MARK.finditer(word)]
    if len(marks) > MOST_MARKS:
        marks = marks[: MOST_MARKS // 2] + marks[-MOST_MARKS // 2 :]
    paths = [word[end:] for end in marks if end < len(word)] if marks else []
    if not word.startswith("-"):
        paths.insert(0, word)
    elif not word.startswith("--") and len(word) > 2:
        paths.insert(0, word[2:])
    return tuple(paths)


# Git and other programs expect a path after these: `of=FILE`, `@FILE`, `:0:FILE`, `:(top)FILE`, `:/FILE`, `:!FILE`.
_PATH_MARK = re.compile(r"[:=@]|(?<=:)(?:[/!^]|\([^)]*\))")
MOST_MARKS = 16


def _find_path_risks(at: int, word: str) -> Iterator[Risk]:
    if not _ADDRESS.match(word):
        for path in _find_paths(word):
            if is_protected(path):
                yield Risk(at, f"{path} is protected", "guarded", path)
            elif is_sensitive(path):
                yield Risk(at, f"{path} may contain secrets", "guarded", path)
            elif not locate_path(path).is_inside:
                yield Risk(at, f"{path} may be outside the checkout", "outside", path)


_ADDRESS = re.compile(r"(?:https?|wss?|git|ssh)://")


def _find_wrapper_risks(words: Words, name: str, depth: int) -> Iterator[Risk]:
    """Yield the risks of a command that runs an inner command: its own risks, and those of the inner command."""
    at = 1
    while at < len(words) and BEFORE_WRAPPED.fullmatch(words[at]):
        if name in TEXT_READERS or "=" in words[at]:
            yield Risk(at, f"{words[at]} changes the command that {name} runs")
        at += 1
    yield Risk(at, f"{name} runs another command")
    if name in TEXT_READERS - SHELLS:
        # The inner command may come from a string or a file, so it cannot be found among the words of this command.
        yield Risk(len(words), f"{name} runs code that does not appear in the command")
    elif at < len(words):
        yield from (risk._replace(place=at + risk.place) for risk in find_risks(words[at:], depth=depth + 1))


BEFORE_WRAPPED = re.compile(r"-.*|\d+(?:\.\d+)?[smhd]?|[A-Za-z_]\w*=.*", re.DOTALL)
"""Matches an option, a duration, a number or an assignment before the wrapped command."""


def _find_runner_risks(words: Words, depth: int) -> Iterator[Risk]:
    """Yield the risks of a command such as `uv run pytest`: its own risks, and those of the command that it runs."""
    at = 2
    while at < len(words) and words[at].startswith("-"):
        yield Risk(at, f"{words[at]} changes the command that {words[0]} {words[1]} runs")
        at += 1
    yield Risk(at, f"{words[0]} {words[1]} runs another command")
    if at < len(words):
        yield from (risk._replace(place=at + risk.place) for risk in find_risks(words[at:], depth=depth + 1))


def _find_interpreter_risks(words: Words, depth: int) -> Iterator[Risk]:
    """Yield the risks in an interpreter's command line: words that make it run code from anywhere but a script file."""
    for at, word in enumerate(words[1:], 1):
        if word in ("--version", "-V", "--help"):
            return
        if not word.startswith("-"):
            if "://" in word or word == "inspect":
                yield Risk(at, f"{word} makes {words[0]} run other code")
            return
        yield Risk(at, f"{word} makes {words[0]} run code")
        if word == "-m" and at + 1 < len(words):
            yield Risk(at + 1, "-m runs a module")
            yield from (
                risk._replace(place=at + 1 + risk.place) for risk in find_risks(words[at + 1 :], depth=depth + 1)
            )
            return
    yield Risk(len(words), f"{words[0]} runs code that does not appear in the command")


INTERPRETER = re.compile(
    r"(?:python|pypy|ruby|perl|php|lua|node|nodejs|rscript|julia|tclsh|osascript|pwsh|ghci|jshell|groovy|scala|irb"
    r"|tsx|ts-node|ipython|jruby|luajit|escript|racket|guile|gnuplot|octave|sbcl|elixir)[\d.]*"
)
SHELLS = split_names(
    "bash sh dash zsh ksh ash fish csh tcsh rbash mksh lksh oksh pdksh yash posh elvish nu xonsh osh ysh rc es scsh"
)
TEXT_READERS = SHELLS | split_names(
    "eval source . su ssh env watch script flock trap alias at batch xargs parallel entr tmux screen expect busybox "
    "hyperfine nix-shell watchexec nodemon concurrently npm-run-all mosh zellij dtach abduco toybox"
)
"""Programs that read a command from a string or a file."""
WRAPPERS = TEXT_READERS | split_names(
    "sudo doas runuser timeout gtimeout nice ionice chrt taskset nohup setsid stdbuf unbuffer time command builtin "
    "exec coproc strace ltrace gdb perf chroot unshare nsenter setpriv sg systemd-run toybox fakeroot proot numactl "
    "prlimit xvfb-run npx bunx uvx pipx dbus-run-session firejail bwrap caffeinate rlwrap direnv sshpass torsocks "
    "faketime fakechroot pkexec run0 tini dumb-init gosu su-exec chpst setuidgid softlimit envdir chronic cpulimit "
    "cgexec catchsegv valgrind rr heaptrack eatmydata proxychains proxychains4 tsocks gtime schedtool setarch linux32 "
    "linux64 dotenv dotenvx cross-env cross-env-shell xterm urxvt rxvt kitty alacritty konsole gnome-terminal "
    "systemd-inhibit systemd-cat aws-vault envchain with-contenv s6-setuidgid dbus-launch nyc c8 env-cmd kcov bear "
    "scan-build ccache sccache distcc icecc wine wine64 winpty qemu-x86_64 qemu-aarch64 qemu-arm capsh machinectl pee "
    "ifne mispipe lckdo zrun envconsul summon uftrace newgrp runcon ld.so run-p run-s multitime daemonize tsp pueue nq "
    "lldb cgdb rust-gdb rust-lldb"
)
"""Programs whose arguments are, or contain, another command."""
RUNNERS = {
    **dict.fromkeys(("poetry", "pipenv", "pdm", "hatch", "rye", "pixi", "conda", "mamba", "coverage"), ("run",)),
    **dict.fromkeys(("asdf", "rtx", "opam", "stack", "cabal", "kubectl"), ("exec",)),
    "bundle": ("exec", "e", "ex", "exe"),
    "rustup": ("run",),
    **dict.fromkeys(("honcho", "foreman", "dart", "flutter", "crystal", "zig", "v"), ("run", "start")),
    **dict.fromkeys(("flatpak", "snap", "buildah", "memray", "viztracer", "mprof", "wrangler"), ("run",)),
    **dict.fromkeys(("samply", "py-spy", "austin"), ("record",)),
    **dict.fromkeys(("docker", "podman", "nerdctl", "runc", "crun"), ("run", "exec")),
    **dict.fromkeys(("npm", "pnpm", "yarn", "mise"), ("exec", "x", "dlx")),
    "uv": ("run", "tool"),
    "bun": ("x",),
    **dict.fromkeys(("pyenv", "rbenv", "nodenv", "jenv", "goenv", "nvm", "volta", "fnm"), ("exec", "run")),
    **dict.fromkeys(("op", "doppler", "infisical", "chamber", "sops", "vault"), ("run", "exec", "exec-env")),
    "nix": ("run", "shell", "develop"),
}
"""For each program, the subcommands whose remaining arguments are a command to run."""
EXEC_OPTIONS = frozenset(("-exec", "-execdir", "-ok", "-okdir"))
"""The options of `find` before a command."""
PATHLESS = split_names("echo printf true false pwd : whoami basename dirname seq")
"""Programs that open no files."""
WRITERS = split_names(
    "tee mv rm rmdir touch mkdir truncate dd chmod chown chgrp patch unlink shred split mkfifo mknod ed ex vi vim nano"
)
"""Programs that change the files given as operands."""
COPIERS = split_names("cp ln install rsync scp")
"""Programs that write to the path given as their last operand."""
GIT_WRITES = split_names("rm mv checkout restore apply clean reset")


def decode_text(node: Node) -> str:
    """Return the source text of a node."""
    return (node.text or b"").decode("utf-8", "replace")


def decode_word(node: Node) -> str:
    """Return a word as a program would receive it. Expansions that only the shell can resolve are left unchanged."""
    kind = node.type
    if kind == "word":
        text = decode_text(node)
        return text if "\\" not in text else re.sub(r"\\(.)", _unescape_backslash, text, flags=re.DOTALL)
    if kind == "translated_string":
        return decode_word(node.children[-1])
    if kind in ("concatenation", "command_name") and (children := node.children):
        # In `r$""m`, the sign before the quotes is no part of the word.
        return "".join(decode_word(child) for child in children if child.type != "$")
    text = decode_text(node)
    if kind == "raw_string":
        return text[1:-1]
    if kind == "string":
        return re.sub(r'\\(["\\$`\n])', r"\1", text[1:-1])
    if kind == "ansi_c_string":
        # bash ends such a string at a NUL.
        return _ANSI_ESCAPE.sub(_decode_ansi_escape, text[2:-1]).partition("\0")[0]
    return text


def is_glob(node: Node) -> bool:
    """Return whether a word is a pattern that the shell expands to names of files. Words with quotes do not count."""
    if node.type not in ("word", "concatenation"):
        return False
    text = decode_text(node)
    return _GLOB_SIGN.search(text) is not None and _QUOTE.search(text) is None


def _unescape_backslash(escape: re.Match[str]) -> str:
    return "" if escape[1] == "\n" else escape[1]


def _decode_ansi_escape(escape: re.Match[str]) -> str:
    code = escape[1]
    if code[0] in "xuU" and len(code) > 1:
        number = int(code[1:].strip("{}") or "0", 16)
        if code[0] == "x":
            number &= 0xFF
        return chr(number) if number <= sys.maxunicode else ""
    if code[0] in "01234567":
        return chr(int(code, 8) & 0xFF)
    if code[0] == "c" and len(code) == 2:
        return chr(ord(code[1].upper()) & 0x1F)
    return {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}.get(
        code, code if code in "\\'\"?" else f"\\{code}"
    )


def list_start_folders(words: tuple[str, ...]) -> Iterator[str]:
    """Yield the folders in which a program such as `git -C DIR` starts."""
    for word, value in zip(words, (*words[1:], ""), strict=True):
        if word in _START_OPTIONS:
            yield value
        elif word.startswith("-C"):
            yield word[2:]
        elif word.startswith(tuple(f"{option}=" for option in _START_OPTIONS[1:])):
            yield word.partition("=")[2]
