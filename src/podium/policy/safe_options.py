"""List the harmless options and operands of known programs. A wildcard at the end of a rule covers only these.

Each key is a program, or a program and its subcommand. Each value lists the harmless words; any other word needs a
person's approval, or a rule that contains the word itself. The values are written like usage lines:

- `-lah`, `--all`: options without a value; `-NUM` is a number such as `-20`; `--warn-*` is any option with that prefix
- `-n=number`, `--lines=number`: options with a value of that kind, attached or as the next word
- `--color[=name]`: an option with an optional value, which must be attached
- `<path>`, `<path>...`: one operand, any number of operands; `<command>` is a subcommand with its own entry
- `--`: can end the options; an entry such as `cargo test --` lists the words allowed after it
- `reads`: with these words the program changes nothing; `spelled`: a rule must spell out the subcommand
- `needs:--check,-n`: harmless only with one of these options; `operands-required:2`: harmless only with two operands
- `operands-with:--list,-l`: operands are harmless only with one of these options
- `options-first`: some versions read the words after the first operand as operands, so an option's value can be a path
- `options-before`: an option after an operand is not harmless, because the program may write to a file of that name
- `values-apart`: the value of an option is the next word or digits, and letters after that option are more options
- `single-dash`: long options have one dash or two; `@git blame`: use the value of that entry

The kinds of values are in `word_kinds`.
"""

from __future__ import annotations

from .safe_file_options import FILES, READING
from .safe_git_options import GIT
from .safe_project_options import OUTSIDE, PROJECT
from .safe_runner_options import NEVER_RUNNABLE, RUNNABLE

NEVER = (
    "vi vim nvim view vimdiff emacs nano pico ed ex less more most psql mysql mariadb mongosh redis-cli "
    "openssl gpg nc ncat netcat socat telnet ftp sftp scp lftp podman helm aws gcloud az pkill killall reboot "
    "shutdown mount umount mkfs passwd useradd usermod service apt-get dpkg dnf yum apk pacman gem patch split "
    "csplit shred dd install chown chgrp mkfifo mknod zip 7z cpio ar ld gcc cc clang g++ as m4 dc bc yq pax "
    "dot openvpn tcpdump nmap ansible ansible-playbook vagrant packer pushd popd ctags look troff groff nroff "
    "powershell cscript wscript cpan composer mvn gradle gradlew ant sbt rake nohup logrotate run-parts "
    "start-stop-daemon debugfs ip iptables sysctl "
)
"""Programs for which a wildcard in a rule covers only `--version` and `--help`.

Any other command with such a program must be spelled out in a rule.
"""

ALIASES = {
    "egrep": "grep",
    "fgrep": "grep",
    "ggrep": "grep",
    "gsed": "sed",
    "gawk": "awk",
    "mawk": "awk",
    "nawk": "awk",
    "gmake": "make",
    "gtar": "tar",
    "bsdtar": "tar",
    "gfind": "find",
    "gsort": "sort",
    "gls": "ls",
    "gcat": "cat",
    "py.test": "pytest",
    "pip3": "pip",
    "pnpm": "npm",
    "yarn": "npm",
    "gunzip": "gzip",
    "docker-compose": "docker compose",
    "npm run-script": "npm run",
    "npm t": "npm test",
    "npm list": "npm ls",
}
"""Maps a program or subcommand without its own entry in `SAFE` to the key of the entry that applies to it."""

SAFE: dict[str, str] = (
    READING
    | FILES
    | PROJECT
    | OUTSIDE
    | GIT
    | RUNNABLE
    | dict.fromkeys((NEVER + NEVER_RUNNABLE).split(), "--version --help")
)
