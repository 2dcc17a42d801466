"""Scripts of awk, sed, jq, printf and similar programs need no permission only in fixed harmless shapes."""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import string
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from podium.policy import check, generalised
from podium.policy.command_words import compile_use
from podium.policy.operand_kinds import is_harmless_word
from podium.policy.safe_options import READING

# Scripts that act

ACTING = {
    "awk": """awk 'BEGIN{y = /"/; system("touch ran"); z = /"/}'""",
    "sed": "sed 's/X[/]/g;/e#/p' a.txt",
    "printf": "printf abc%n PATH && ls",
}


def make_folder_to_act_in(folder: Path) -> None:
    """Make a file whose line is a command, and a folder with a program `ls`."""
    (folder / "a.txt").write_text("touch ran #X/\n")
    (folder / "3").mkdir()
    (folder / "3" / "ls").write_text("#!/bin/sh\n/usr/bin/touch ran\n")
    (folder / "3" / "ls").chmod(0o755)


@pytest.mark.parametrize("command", ACTING.values(), ids=ACTING)
def test_a_script_that_runs_a_program_needs_permission(tmp_path: Path, command: str) -> None:
    make_folder_to_act_in(tmp_path)

    subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, check=False)

    assert (tmp_path / "ran").exists(), "the attack itself works"
    assert check(command, {}).decision == "ask"
    assert check(command, {}, "plan").decision == "deny"
    assert check(command, {"allow": ["Bash(awk *)", "Bash(sed *)", "Bash(printf *)", "Bash(ls *)"]}).decision == "ask"
    assert generalised(command) is None


def test_a_value_after_the_script_of_awk_is_a_file_that_awk_reads(tmp_path: Path) -> None:
    (tmp_path / "-F").touch()
    (tmp_path / ".env").write_text("KEY=1")
    command = "awk '{print $0}' -F .env"

    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert "KEY=1" in done.stdout, "the attack itself works"
    assert check(command, {}).decision == "ask"
    assert check(command, {"allow": ["Bash(awk *)"]}).decision == "ask"


ASKED = (
    r"""
awk '{ y = 1; z = /"/; system("touch ran") }' a
awk '{ y /"/; system("id") ; "/" }' a
awk '{ print y /"/ system("id") /"/ }' a
awk '{print $1 /"/ > "ran" /"/ }' a
awk 'y = /"/ {system("id")}' a
awk '{x = $1 / "/" ; "id" | getline; y = "/"}' a
awk '/[/]/ {print "/"}' a
awk '/a\/"/ {print "}' a
awk '/["]/ {print "x"}' a
awk '{print "\"; system("id"); "\""}' a
awk '{print $1 > "ran"}' a
awk '{print $1 >> FILENAME}' a
awk '{print | $0}' a
awk '{printf "%n", x}' a
awk '{printf $1}' a
awk '{print ENVIRON["KEY"]}' a
awk '{getline x < $1; print x}' a
awk '{system($0)}' a
awk '@load "filefuncs"' a
awk '{print} # "' a
awk '{f = "system"; @f("id")}' a
awk -v 'x=1' 'BEGIN{system(x)}'
awk --file=x a
awk --fil x
awk --sourc x a
awk -f x a
awk -nf x a
sed 's/X[/]/g;/e#/p' a
sed 's/X[^/]/g;/e#/p' a
sed 's|X[|]|g;|e#|p' a
sed '/[/]/e#/p' a
sed 's/X\[/]/g;/e#/p' a
sed 's/x/y/e' a
sed 's/x/y/we' a
sed 's/x/y/w ran' a
sed 's/x/y/gw ran' a
sed 's/x/y/m;e' a
sed 's/[[:alpha:]]/x/;e' a
sed 's\x\y\e' a
sed 'sexeye' a
sed 's;a;b;e' a
sed 's/\cX/x/' a
sed 's/a\x2fb/c/' a
sed 's/a\d047b/c/' a
sed 's/a\o57b/c/' a
sed 'y/a/b/' a
sed '1r x' a
sed '1w x' a
sed '1{p}' a
sed '1a\' a
sed ':a;N;ba' a
sed --posix p a
sed 'w ran' -e p
sed p a --in-pla
sed -n --in p a
sed -ns --expre 'w ran' a
printf abc%n PATH
printf '%5n' PATH
printf '%ln' PATH
printf '%-n' PATH
printf '%*n' 3 PATH
printf '%s%n' a PATH
printf '%(%F)T' 1
printf -v PATH x
printf -vPATH x
printf '%*d' 9 1
printf -- '%n' PATH
printf '%99999999s' x
jq '$ENV' a
jq '$ ENV' a
jq 'env' a
jq '.a|env' a
jq '.[env:1]' a
jq '"\(env)"' a
jq '"\($ENV.PATH)"' a
jq '{a: env}' a
jq '{(env.A): 1}' a
jq '..env' a
jq '$__prog_args' a
jq 'import "a" as a; a' a
jq 'include "a"; b' a
jq 'input_filename' a
jq 'def f: env; f' a
jq '1 as $x | 2 # "' a
jq -L . '.a' a
jq -nf a
jq --from-fil a b
jq --rawfil a b . c
find . -printf x -fprintf ran y
find . -fprint0 ran
find . -okdir id ';'
find . -files0-from a
find . --delete
sort --compress-prog=./x a
sort --compress-program ./x a
sort --out=ran a
sort -oran a
sort -uo ran a
sort -T sub a
sort --temp=sub a
sort --files0=a
sort --random-source=.env a
sort -S 1 a
uniq a ran
uniq -- a ran
diff --to-f=x a
diff --from-file=x a
diff -l a b
diff --paginate a b
wc --files0-from=a
wc --files0=a
du --files0=a
du -X a
date -f a
date -s 1
date --se=1
date 010100002030
file -C -m a
file -m a b
file -z a
file -f a
tree -o ran
tree -R -H . -L 1
xxd -r a ran
xxd a ran
xxd a -b
xxd -s 1 a -c8
xxd -bs 5 a
uniq a -c
tree -Io x ran
tree -L1o ran
tree -aPo x ran
ls --hyperlink
stat --printf
strings @a
strings -T x a
column -J a
nl -d x a
test -v 'a[$(id)]'
test -R x
test x -a -v 'a[0]'
[ -v x ]
[[ -v x ]]
[[ a[0] -eq 1 ]]
read PATH
let x=1
let 'a[$(id)]=1'
echo $((a[0]))
((PATH=3))
declare PATH=3
export PATH=3
mapfile -C id a
getopts a PATH
hash -p ./x ls
enable -f ./x ls
type -f --x
git log --diff-merges=remerge
git show --diff-merges=r
git show --remerge-diff
git log --outpu=ran
git diff --ext-d
git diff --no-ind a b
git diff -O a
git grep --open x
git grep -Oid x
git -c core.pager=id log
git --exec-p=. log
rg --pre=id x
rg --pr id x
rg --hostname-b id x
rg --search-z x
rg -z x
split --filter=id a
tee ran
xargs id
env id
LESSOPEN='|id' less a
LESSOPEN='|id' cat a
TZ=x date
A=1 awk '{print}' a
yq -i .a a
fd -x id
fd -X id
bat --pager=id a
less a
man ls
expr 1 + 1
numfmt --to=iec 1
awk '{print $0}' -F /etc/passwd
awk '{print $0}' -F .env
awk '{print $0}' a -F ../a
mawk '{print $0}' -F /etc/passwd
cut -f1 a -d /etc/passwd
paste a -d .env
join a b -t /etc/passwd
date -d 'TZ="/etc/shadow" now'
date --date='TZ="../../a"'
basename
""".replace("\nbasename\n", "")
    .strip("\n")
    .splitlines()
)


@pytest.mark.parametrize("command", ASKED)
def test_a_script_or_option_outside_the_fixed_shapes_needs_permission(command: str) -> None:
    assert check(command, {}).decision == "ask"


# Scripts that need no permission

ALLOWED = r"""
awk '{print $1}' a
awk '{print $1, $3}' a
awk -F: '{print $1}' a
awk -F, '{ print $1 " " $NF }' a
awk 'NR==5' a
awk 'NR>=5 && NR<=9 {print NR": "$0}' a
awk '{s+=$1} END {print s}' a
awk -F, '{s+=$2; n++} END {print s/n}' a
awk '{print $(NF-1)}' a
awk '/ERROR/ {n++} END {print n}' a
awk '!seen[$0]++' a
awk '{c[$1]++} END {for (k in c) print k, c[k]}' a
awk 'length($0) > 100 {print FILENAME": "FNR}' a
awk '$3 > 100' a
awk '$2 == "FAIL" {print $1}' a
awk '{printf "%-10s %5.1f%%\n", $1, $2}' a
sed 's/foo/bar/' a
sed -E 's/[0-9]+/N/g' a
sed -n '10,20p' a
sed -n 10,20p a
sed -n '/word/p' a
sed -n '/def main/,/return/p' a
sed '/^#/d;/^$/d' a
sed 's|src/|lib/|' a
sed 's/\.py$/.txt/' a
sed -n -e 1p -e '5,7p' a
sed -ne '1p;9q' a
sed '$d' a
sed -n '/^## \[1/,/^## \[/p' a
sed 's/\[x\]/x/' a
awk '/^def x/,/^}/' a
awk '/^}/ {n++} END {print n}' a
sed 3q a
printf '%s\n' a b
printf 'done\n'
printf '%-10s|%5.2f%%' a 1
jq . a
jq '.a.b' a
jq -r '.items[] | select(.status == "failed") | .name' a
jq -r '.[] | "\(.id) \(.name)"' a
jq 'group_by(.type) | map({type: .[0].type, n: length})' a
jq -r '.scripts | keys[]' a
jq '.[2:5] | length' a
jq '.[] | select(.f | test("\\.py$"))' a
find . -name '*.py' -printf '%s %p\n'
sort -t, -k2 -n a
awk '{print $1}' a -F :
cut -f1 a -d ,
date -d yesterday
git log --diff-merges=first-parent
""".strip("\n").splitlines()


@pytest.mark.parametrize("command", ALLOWED)
def test_a_script_of_a_fixed_shape_needs_no_permission(command: str) -> None:
    assert check(command, {}).decision == "allow"
    assert check(command, {}, "plan").decision == "allow"


def test_a_rule_that_contains_the_script_allows_it() -> None:
    rules = {"allow": ["Bash(awk '{print toupper($1)}' *)"]}

    assert check("awk '{print toupper($1)}' a.txt", rules).decision == "allow"
    assert check("awk '{print tolower($1)}' a.txt", {"allow": ["Bash(awk *)"]}).decision == "ask"


# SQL


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("sqlite3") is None and not os.environ.get("CI"), reason="sqlite3 must be installed")
@pytest.mark.parametrize("query", ["select * from v", "pragma integrity_check", "select \"edit\"('x', 'touch ran')"])
def test_a_rule_for_sqlite3_covers_no_query_that_runs_a_program(tmp_path: Path, query: str) -> None:
    """A database of the checkout can define a view that starts an editor."""
    make = "create table t(a check(a <> edit('', 'touch ran'))); create view v as select edit('x', 'touch ran')"
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        database.create_function("edit", 2, lambda text, editor: text)
        database.executescript(f"{make}; insert into t values ('x')")

    subprocess.run(["sqlite3", "a.db", query], cwd=tmp_path, capture_output=True, check=False)

    assert (tmp_path / "ran").exists(), "the attack itself works"
    assert check(shlex.join(["sqlite3", "a.db", query]), {"allow": ["Bash(sqlite3 *)"]}).decision == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "sqlite3 a.db",
        "sqlite3 -safe a.db",
        "echo .shell id | sqlite3 a.db",
        "sqlite3 a.db 'select 1'",
        "sqlite3 a.db 'pragma quick_check'",
        "sqlite3 -safe a.db 'select edit(1)'",
        "sqlite3 -safe a.db 'select \"edit\"(1)'",
        "sqlite3 -safe a.db 'select [edit](1)'",
        "sqlite3 -safe a.db 'select edit/**/(1)'",
        "sqlite3 -safe a.db 'select edit (1)'",
        "sqlite3 -safe a.db 'select * from fsdir'",
        "sqlite3 -safe a.db 'select 1; delete from t'",
        "sqlite3 -safe a.db 'with x as (select 1) delete from t'",
        "sqlite3 -safe a.db 'pragma journal_mode(delete)'",
        "sqlite3 -saf a.db 'select 1'",
    ],
)
def test_a_rule_for_sqlite3_covers_only_reading(command: str) -> None:
    assert check(command, {"allow": ["Bash(sqlite3 *)", "Bash(echo *)"]}).decision == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "sqlite3 a.db .tables",
        "sqlite3 a.db '.schema users'",
        "sqlite3 a.db 'pragma table_info(users)'",
        "sqlite3 -safe a.db 'select count(*) from t'",
        "sqlite3 -safe -header -csv a.db \"select id, name from users where name like 'a%' order by id desc limit 5;\"",
        "sqlite3 -safe a.db 'select * from t where id in (1, 2) and (a = 1 or b < 2)'",
        "sqlite3 --version",
    ],
)
def test_a_rule_for_sqlite3_covers_the_schema_and_queries_in_safe_mode(command: str) -> None:
    assert check(command, {"allow": ["Bash(sqlite3 *)"]}).decision == "allow"


# Options

ACTING_OPTIONS = """
sort --compress-program --output --temporary-directory --files0-from --random-source --debug --batch-size
diff --to-file --from-file --exclude-from --paginate --starting-file --palette --GTYPE-group-format --ifdef
date --set --file --debug
wc --files0-from --debug
du --files0-from --exclude-from
tree --fromfile --fromtabfile --gitfile --infofile --hintro --houtro
sed --in-place --file --debug --line-length --follow-symlinks --binary --posix
jq --from-file --rawfile --slurpfile --argfile --arg --args --jsonargs --library-path --seq --raw-output0
rg --pre --pre-glob --search-zip --hostname-bin --hyperlink-format --ignore-file --hidden --follow --unrestricted
grep --exclude-from --dereference-recursive --perl-regexp-file
file --files-from --magic-file --compile --uncompress --uncompress-noreport --parameter --special-files --no-sandbox
md5sum --check
git-diff --output --ext-diff --textconv --no-index --output-indicator-new
git-log --output --ext-diff --textconv --remerge-diff --show-signature
git-grep --open-files-in-pager --no-index --untracked --textconv --recurse-submodules
""".strip().splitlines()


@pytest.mark.parametrize("line", ACTING_OPTIONS)
def test_no_abbreviation_of_an_unlisted_option_is_allowed(line: str) -> None:
    program, *options = line.split()
    start = program.replace("-", " ", 1) if program.startswith("git-") else program
    use = compile_use(start)
    listed = use.flags | use.values.keys() | use.optional.keys()

    abbreviations = {option[:end] for option in options for end in range(3, len(option) + 1)} - listed
    tried = [f"{start} {short}{rest} a" for short in abbreviations for rest in ("", "=x", " x")]

    assert [command for command in tried if check(command, {}).decision == "allow"] == []


@pytest.mark.parametrize(
    "program", [key for key, use in READING.items() if not {"<anything>...", "single-dash"} & {*use.split()}]
)
def test_no_unlisted_letter_is_allowed_alone_or_among_listed_ones(program: str) -> None:
    use = compile_use(program)
    listed = [name[1] for name in (*use.flags, *use.values, *use.optional) if len(name) == 2]
    flags = [name[1] for name in use.flags if len(name) == 2]
    others = sorted(set(string.ascii_letters + string.digits) - set(listed))
    digits = string.digits if "-NUM" in use.flags else ""

    tried = [f"{program} -{before}{letter} a" for letter in others if letter not in digits for before in ("", *flags)]

    assert [command for command in tried if check(command, {}).decision == "allow"] == []


# Time


@pytest.mark.parametrize("kind", ["sed", "awk", "jq", "printf-format", "sql", "schema-query"])
@pytest.mark.parametrize("length", [299, 10_000])
def test_a_script_of_equal_pieces_is_judged_at_once(kind: str, length: int) -> None:
    pieces = [*string.printable, *r's/ /a/, $1 "a" .a [0] {a: x[ 1; "\( && %5. a, !/a/'.split()]
    texts = [(piece * length)[: length - len(end)] + end for piece in pieces for end in ("", "\0", '"', "/", "}")]

    start = time.perf_counter()
    for text in texts:
        is_harmless_word(kind, text)
        is_harmless_word(kind, f"select {text}")

    assert time.perf_counter() - start < 5
