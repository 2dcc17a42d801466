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

The kinds of values are in `operand_kinds`.
"""

from __future__ import annotations

from .safe_git_options import GIT
from .safe_project_options import OUTSIDE, PROJECT

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


READING = {
    "ls": "-aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ1 -I=text -w=number -T=number --all --almost-all --author "
    "--color[=name] --classify[=name] --directory --file-type --format=name --full-time --group-directories-first "
    "--human-readable --hide=text --ignore=text --inode --no-group --numeric-uid-gid --recursive --reverse --si "
    "--size --sort=name --time=name --time-style=text --width=number --help --version -- <path>... reads",
    "cat": "-AbeEnstTuv --number --number-nonblank --show-all --show-ends --show-tabs --show-nonprinting "
    "--squeeze-blank --help --version -- <path>... reads",
    "head": "-NUM -qvz -n=number -c=number --lines=number --bytes=number --quiet --silent --verbose --help --version "
    "-- <path>... reads",
    "tail": "-NUM -fqvzr -n=number -c=number --lines=number --bytes=number --quiet --silent --verbose --help "
    "--version -- <path>... reads",
    "wc": "-clmLw --bytes --chars --lines --words --max-line-length --total=name --help --version -- <path>... reads",
    "grep": "-EFGPivwxyclLoqshHnbTUZazrI -NUM -e=pattern -f=pattern-file -m=number -A=number -B=number -C=number "
    "-d=name -D=name --extended-regexp --fixed-strings --basic-regexp --perl-regexp --regexp=pattern "
    "--file=pattern-file --ignore-case --no-ignore-case --invert-match --word-regexp --line-regexp --count "
    "--color[=name] --colour[=name] --files-with-matches --files-without-match --max-count=number --only-matching "
    "--quiet --silent --no-messages --byte-offset --with-filename --no-filename --label=text --line-number "
    "--initial-tab --null --after-context=number --before-context=number --context=number --text --binary "
    "--recursive --binary-files=name --exclude=text --include=path --exclude-dir=text --line-buffered --null-data "
    "--help --version -- <pattern> <path>... reads",
    "rg": "-inlcwvoSsFPUHINxqap0 -e=pattern -f=pattern-file -A=number -B=number -C=number -m=number -t=name -T=name "
    "-g=glob -d=number -r=text -j=number -M=number -E=name --ignore-case --line-number --files-with-matches --count "
    "--files-without-match --count-matches --word-regexp --invert-match --only-matching --smart-case "
    "--case-sensitive --fixed-strings --pcre2 --multiline --multiline-dotall --with-filename --no-filename "
    "--no-line-number --line-regexp --quiet --text --pretty --null --regexp=pattern --file=pattern-file "
    "--after-context=number --before-context=number --context=number --max-count=number --type=name --type-not=name "
    "--type-list --glob=glob --iglob=glob --glob-case-insensitive --max-depth=number --replace=text --threads=number "
    "--max-columns=number --max-columns-preview --max-filesize=number --encoding=name --color=name --colors=text "
    "--column --no-column --heading --no-heading --no-messages --no-config --sort=name --sortr=name --stats --json "
    "--vimgrep --trim --files --passthru --crlf --engine=name --context-separator=text --one-file-system --help "
    "--version -- <pattern> <path>... reads",
    "find": "single-dash -HLP -name=path -iname=path -path=path -ipath=path -wholename=path -iwholename=path "
    "-type=names -xtype=names -maxdepth=number -mindepth=number -size=number -mtime=number -mmin=number "
    "-atime=number -amin=number -ctime=number -cmin=number -newer=path -anewer=path -cnewer=path -newermt=text "
    "-newerct=text -newerat=text -empty -print -print0 -printf=text -ls -prune -not -o -or -a -and -regex=text "
    "-iregex=text -regextype=name -perm=mode -user=name -group=name -uid=number -gid=number -links=number "
    "-inum=number -samefile=path -lname=path -ilname=path -nouser -nogroup -xdev -mount -depth -true -false "
    "-readable -writable -executable -quit -daystart -noleaf -fstype=name -used=number -help -version <path>... "
    "reads",
    "stat": "-Lft -c=text -x --dereference --file-system --format=text --printf=text --terse --version <path>... "
    "options-first reads",
    "file": "-bihLksEN --brief --mime --mime-type --mime-encoding --dereference --keep-going --no-pad -F=text "
    "--separator=text --extension --version -- <path>... reads",
    "du": "-abchHklmsSx -d=number -B=number -t=number --all --apparent-size --bytes --total --human-readable "
    "--max-depth=number --summarize --si --one-file-system --exclude=text --separate-dirs --time --threshold=number "
    "-- <path>... reads",
    "df": "-ahHiklPT -t=name -x=name --all --human-readable --inodes --local --print-type --total --type=name "
    "--output[=names] -- <path>... reads",
    "tree": "-adfhsCDFnpugitrUxJQ -L=number -I=text -P=text --dirsfirst --filelimit=number --gitignore --noreport "
    "--prune --du --si --sort=name --charset=name --matchdirs --ignore-case --inodes --version <path>... "
    "values-apart reads",
    "diff": "-uqrbwBiNaycpsetTEZd -NUM -U=number -C=number -W=number -x=text -I=text -F=text -L=text "
    "--unified[=number] --context[=number] --brief --recursive --ignore-case --ignore-all-space "
    "--ignore-space-change --ignore-blank-lines --ignore-trailing-space --ignore-tab-expansion "
    "--ignore-matching-lines=text --new-file --text --side-by-side --width=number --suppress-common-lines "
    "--color[=name] --exclude=text --label=text --strip-trailing-cr --report-identical-files --show-c-function "
    "--minimal --no-dereference --normal -- <path>... reads",
    "cmp": "-blsv -n=number -i=number --print-bytes --verbose --quiet --silent --bytes=number -- <path>... reads",
    "sort": "-bdfghinrRsuVzcCmM -k=text -t=text --key=text --field-separator=text --numeric-sort --reverse "
    "--unique --general-numeric-sort --human-numeric-sort --version-sort --random-sort --month-sort "
    "--dictionary-order --ignore-case --ignore-leading-blanks --check[=name] --merge --stable --zero-terminated "
    "--parallel=number --sort=name --help --version -- <path>... reads",
    "uniq": "-cdDiuz -f=number -s=number -w=number --count --repeated --all-repeated[=name] --unique --ignore-case "
    "--skip-fields=number --skip-chars=number --check-chars=number --group[=name] --zero-terminated <path> "
    "options-before reads",
    "cut": "-snz -b=names -c=names -f=names -d=text --bytes=names --characters=names --fields=names --delimiter=text "
    "--complement --only-delimited --output-delimiter=text -- <path>... options-first reads",
    "tr": "-cCdst --complement --delete --squeeze-repeats --truncate-set1 -- <text>... reads",
    "nl": "-p -b=text -n=name -w=number -s=text -v=number -i=number --body-numbering=text --number-width=number "
    "<path>... options-first reads",
    "date": "-uR -d=date -r=path -I[=name] --date=date --utc --universal --iso-8601[=name] --rfc-3339=name "
    "--rfc-email --reference=path --version <date-format> reads",
    "which": "-as --all <text>... reads",
    "type": "-aptPf <text>... reads",
    "realpath": "-emLPqsz --canonicalize-existing --canonicalize-missing --relative-to=path --relative-base=path "
    "--no-symlinks --strip --quiet -- <path>... reads",
    "readlink": "-femnqsvz --canonicalize --canonicalize-existing --canonicalize-missing --no-newline -- <path>... "
    "reads",
    "md5sum": "-btz --binary --text --tag --zero -- <path>... reads",
    "sha1sum": "@md5sum",
    "sha256sum": "@md5sum",
    "sha512sum": "@md5sum",
    "shasum": "-bp -a=number --algorithm=number -- <path>... reads",
    "b2sum": "@md5sum",
    "cksum": "-z -a=name --algorithm=name -- <path>... reads",
    "id": "-agGnruzZ <name>... reads",
    "uname": "-asnrvmpio --all --kernel-name --machine --operating-system reads",
    "nproc": "--all reads",
    "uptime": "-ps reads",
    "arch": "reads",
    "hostname": "-fsiId reads",
    "column": "-tenx -s=text -o=text -c=number -N=text -R=text --table --separator=text --output-separator=text "
    "<path>... options-first reads",
    "sed": "-nErsuz -e=sed --expression=sed --quiet --silent --regexp-extended --separate --null-data "
    "--sandbox --version -- <sed> <path>... reads",
    "awk": "-F=text -v=assignment -- <awk> <path>... options-first reads",
    "jq": "-rcesSCMajn --raw-output --compact-output --exit-status --slurp --sort-keys --color-output "
    "--monochrome-output --ascii-output --join-output --null-input --raw-input --tab --indent=number --stream "
    "--unbuffered --version -- <jq> <path>... reads",
    "rev": "<path>... reads",
    "tac": "-br -s=text --before --separator=text -- <path>... reads",
    "fold": "-bs -w=number --bytes --spaces --width=number -- <path>... options-first reads",
    "paste": "-sz -d=text --serial --delimiters=text -- <path>... options-first reads",
    "comm": "-123z --check-order --nocheck-order --output-delimiter=text --total -- <path>... reads",
    "join": "-i -a=number -e=text -j=number -o=text -t=text -v=number -1=number -2=number --header -- <path>... "
    "options-first reads",
    "expand": "-i -t=names --tabs=names -- <path>... reads",
    "xxd": "single-dash -a -b -e -i -p -u -E -c=number -g=number -l=number -s=number -o=number <path> options-before "
    "reads",
    "od": "-abcdfhilosxv -A=name -t=name -N=number -j=number -w=number -- <path>... reads",
    "hexdump": "-bcCdovx -n=number -s=number <path>... reads",
    "strings": "-af -n=number -t=name -e=name -- <path>... options-first reads",
    "zcat": "<path>... reads",
    "base64": "-diD -w=number --decode --ignore-garbage --wrap=number -- <path>... reads",
    "cd": "<folder> reads operands-required:1",
    "test": "single-dash -f -d -e -r -w -x -s -L -h -z -n -eq -ne -lt -le -gt -ge -nt -ot -ef -a -o <path>... reads",
    "echo": "<anything>... reads",
    "printf": "-- <printf-format> <text>... reads",
    "true": "<anything>... reads",
    "false": "<anything>... reads",
    ":": "<anything>... reads",
    "pwd": "-LP reads",
    "whoami": "reads",
    "basename": "-az -s=text --multiple --suffix=text -- <text>... reads",
    "dirname": "-z --zero -- <text>... reads",
    "seq": "-w -f=text -s=text --equal-width --format=text --separator=text <number>... reads",
    "sleep": "<number>...",
    "ps": "-eflAaxjMHTwu -o=text -p=number -C=name --forest --no-headers --sort=text <ps-format>",
}
"""Programs that show files or other information. Without a rule, only those marked `reads` are allowed."""
SQLITE = (
    "single-dash -readonly -json -csv -column -header -headers -noheader -line -list -markdown -table -box -batch "
    "-bail -quote -ascii -tabs -html -separator=text -nullvalue=text -version"
)
FILES = {
    "tee": "-ai --append -- <path>...",
    "mv": "-finuvT -t=path --force --interactive --no-clobber --update --verbose --target-directory=path -- <path>...",
    "rm": "-rRfidvI --recursive --force --interactive[=name] --dir --verbose -- <path>...",
    "rmdir": "-pv --parents --verbose --ignore-fail-on-non-empty -- <path>...",
    "touch": "-acmh -d=text -t=text -r=path --no-create --date=text --reference=path -- <path>...",
    "mkdir": "-pv -m=mode --parents --verbose --mode=mode -- <path>...",
    "truncate": "-co -s=number -r=path --size=number --no-create --reference=path -- <path>...",
    "chmod": "-Rcfv --recursive --verbose --changes --silent --quiet <mode> <path>...",
    "cp": "-aRrfipnuvlsLPdHxT -t=path --archive --recursive --force --interactive --no-clobber --update[=name] "
    "--verbose --preserve[=names] --parents --link --dereference --no-dereference --target-directory=path -- "
    "<path>...",
    "ln": "-sfvinrTLP --symbolic --force --verbose --relative --no-dereference --no-target-directory -- <path>...",
    "unlink": "<path>",
    "tar": "-tvzjJa -f=archive --list --verbose --gzip --bzip2 --xz --zstd --auto-compress --file=archive "
    "--exclude=text --wildcards --strip-components=number --full-time --numeric-owner --version -- <archive>...",
    "unzip": "-lvtpZ1 <path>... needs:-l,-v,-t,-p,-Z",
    "gzip": "-ltv --list --test --verbose <path>... needs:-l,-t,--list,--test",
    "sqlite3": f"{SQLITE} <path> <schema-query>... operands-required:2",
    "sqlite3-safe": f"{SQLITE} -safe <path> <sql>... operands-required:2",
    "rsync": "-avnrzhPtuiOcm --archive --verbose --dry-run --recursive --compress --human-readable --progress "
    "--stats --update --checksum --itemize-changes --exclude=text --include=path --list-only --partial <archive>...",
    "curl": "-sSfLIviNk46g -m=number -A=text -X=name -r=text -w=plain -o=stdout -H=header -d=plain -G --silent "
    "--show-error --fail --location --head --verbose --include --compressed --max-time=number "
    "--connect-timeout=number --retry=number --retry-delay=number --user-agent=text --request=name --range=text "
    "--write-out=plain --header=header --data=plain --data-raw=text --json=plain --output=stdout --get --http1.1 "
    "--http2 --ipv4 --ipv6 --insecure --no-progress-meter --version <url>...",
    "wget": "-qnvSd -T=number -t=number -O=stdout --spider --quiet --no-verbose --server-response --timeout=number "
    "--tries=number --user-agent=text --header=header --output-document=stdout --version <url>... "
    "needs:--spider,-O,--output-document,--version",
    "man": "-kfwaK <name>...",
}
"""Programs that change the files given as operands, and programs that pack or download files."""

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
