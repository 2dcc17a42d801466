"""List the harmless options and operands of programs that can run other programs if they are told to.

`safe_options` describes the format.
"""

from __future__ import annotations

BAZEL = (
    "-k -c=name --keep_going --compilation_mode=name --jobs=number --test_output=name --test_filter=text "
    "--nocache_test_results --verbose_failures -- <label>..."
)
FLAKE = "-L --print-build-logs --no-link --dry-run --json <flake>..."
JJ = "-sp -r=text -n=number --revisions=text --limit=number --summary --stat --git --no-graph --no-pager <path>..."
HG = "-nqvp -r=text -l=number --rev=text --limit=number --stat --git --quiet --verbose <path>..."

RUNNABLE = {
    "fd": "-HIusigFalLp0q1 -d=number -t=name -e=name -E=text -c=name -j=number -S=text --hidden --no-ignore "
    "--case-sensitive --ignore-case --glob --fixed-strings --absolute-path --list-details --follow --full-path "
    "--print0 --quiet --max-depth=number --min-depth=number --exact-depth=number --type=name --extension=name "
    "--exclude=text --color=name --threads=number --size=text --changed-within=text --changed-before=text "
    "--max-results=number --strip-cwd-prefix --version --help <pattern> <path>...",
    "fdfind": "@fd",
    "bat": "-AnpPSu -l=name -H=text -r=text --show-all --plain --number --language=name --highlight-line=text "
    "--line-range=text --style=names --color=name --decorations=name --paging=name --theme=text --tabs=number "
    "--wrap=name --list-languages --list-themes --version --help <path>...",
    "batcat": "@bat",
    "delta": "-snw=number --side-by-side --line-numbers --dark --light --width=number --version --help <path>...",
    "jj": "--no-pager --version <command>",
    "jj status": JJ,
    "jj st": JJ,
    "jj log": JJ,
    "jj diff": JJ,
    "jj show": JJ,
    "hg": "--version <command>",
    "hg status": HG,
    "hg st": HG,
    "hg log": HG,
    "hg diff": HG,
    "hg summary": HG,
    "just": "-lnqv --list --summary --dry-run --quiet --verbose --show=name --version --help <target>...",
    "ctest": "-VNQF -j=number -R=text -E=text -L=text -C=name --parallel=number --verbose --extra-verbose --quiet "
    "--progress --output-on-failure --rerun-failed --stop-on-failure --timeout=number --test-dir=path "
    "--tests-regex=text --exclude-regex=text --label-regex=text --show-only --print-labels --version --help",
    "nix": "--version <command>",
    "nix build": FLAKE,
    "nix flake": "<command>",
    "nix flake check": FLAKE,
    "nix flake show": FLAKE,
    "nix flake metadata": FLAKE,
    "fzf": "-eixms0 -f=text -q=text -d=text -n=names --exact --multi --no-sort --tac --filter=text --query=text "
    "--delimiter=text --nth=names --select-1 --exit-0 --version --help",
    "bazel": "<command>",
    "bazel build": BAZEL,
    "bazel test": BAZEL,
    "bazel query": BAZEL,
    "bazel version": "",
    "bazelisk": "@bazel",
    "set": "-euxvfCnm -o=name",
    "shopt": "-supqo <name>...",
}
NEVER_RUNNABLE = (
    "nix-shell nix-build nix-env nix-instantiate let mapfile readarray compgen complete declare typeset local read "
    "enable hash fc bind history getopts java javac emacsclient ssh-agent gpg-agent socat expect make-kpkg rclone "
    "xdg-open rundll32 mutt sendmail logsave dpkg-reconfigure update-alternatives gtester "
    "duckdb pgcli mycli litecli usql cqlsh sqlcmd sqlplus isql pandoc tig lazygit w3m lynx elinks mc nnn ranger fab"
)
"""Programs for which a wildcard in a rule covers only `--version` and `--help`."""
