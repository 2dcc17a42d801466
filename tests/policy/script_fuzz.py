"""Generate scripts of small languages near the shapes that need no permission, run them, and report what they do.

The programs run under strace, many in one shell, each between two marks that the shell leaves in the trace.
"""

from __future__ import annotations

import random
import re
import shlex
import string
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from podium.policy.command_words import compile_use
from podium.policy.safe_options import ALIASES

BATCH = 250
PROGRAMS = ("gawk", "mawk", "sed", "printf", "jq", "find")

SCRIPTS: dict[str, list[str]] = {
    "awk": r"""
{print $1}
{print $1, $NF}
{print $1" "$2}
NR==2
NR>=1 && NR<=3 {print NR, $0}
/one/ {print $2}
!/one/
/one/,/two/
$2 == "x" {print $1}
$1 ~ /on[a-z]+/ {print}
{s+=$1} END {print s}
{s+=$1; n++} END {print s/n}
!seen[$0]++
{c[$1]++} END {for (k in c) print k, c[k]}
{printf "%s %5.2f\n", $1, $2}
BEGIN {FS=","; OFS="\t"} {print $1, $2}
length > 3
length($1) > 2 {print FILENAME, FNR}
NF && $1 > 1
{print $2 * 2 "x"}
NR%2==0 {print; next} {x = $1}
/one/,/^}/
$1 ~ /^}/ {n++} END {print n}
""".strip("\n").splitlines(),
    "sed": r"""
1,3p
$d
/one/p
/one/,/two/p
/one/,+2d
s/one/two/
s/one/two/gp
s|a/b|c|g
s,a,b,2
s/ *$//
s/^[0-9]*//
s/\(a\)b/\1/
s/a\/b/c\/d/
/^#/d;/^$/d
1!d;s/x/y/I
2q
$=
s@one@&&@;3q
1,/two/!s/[^a-z]/-/g
/^## \[/,/\]/p
s/\[x\]/y/g
""".strip("\n").splitlines(),
    "printf": r"""
%s\n
%d %s\n
%-5s|%5.2f
%%
a\tb
%x %o
%b
%q
%c%c
abc
""".strip("\n").splitlines(),
    "jq": r"""
.
.a.b
.items[].name
.items[0]
.items[] | select(.n > 1) | .name
.items[] | "\(.n) \(.name)"
.items | map(.n) | add
keys
length
.items[] | [.n, .name] | @csv
.["a"]?
{n: .a.b, size: length}
.items | group_by(.n) | map({n: .[0].n})
. as $x | $x.a
if .a then "yes" else "no" end
.items[0:1]
reduce .items[] as $i (0; . + $i.n)
to_entries[] | "\(.key)"
..
[inputs]
""".strip("\n").splitlines(),
}
PIECES: dict[str, list[str]] = {
    "awk": re.split(
        r" {2}|\n",
        r"""
"  /  \  [  ]  {  }  ;  (  )  #  |  >  >>  <  |&  &&  ,  !  ~  =  $  system("touch ran")  "touch ran"
getline  close  fflush  > "ran"  | "sh"  "id" | getline  /x/  [/]  \/  /"/  "/"  y =   n  s  print
printf  "%n"  ENVIRON  @load  @f  \n  \"  system  ("touch ran")  $(NF-1)  delete c  function f(x)
func  in  for  1  *  -  ARGV[1]  NR  FILENAME  length  split  sub(/a/, b)  END  BEGIN  exit  '  ^  ++
""".strip("\n"),
    ),
    "sed": re.split(
        r" {2}|\n",
        r"""
/  |  ,  [  ]  [/]  [^/]  \  \/  \[  \n  \\  #  ;  {  }  !  &  w ran  e  /e  /w ran  e touch ran
1e touch ran  r a.txt  R  W ran  s  s/a/touch ran/e  y/a/b/  p  g  /e#  ;e  a\  i x  c x  F  z  b  t
:a  1  $  0~2  +1  I  M  /m  ^  *  \cd  \x2f  \o57  \d047  [[:alpha:]]  []]  [^]]  [a  a]  \]  \|  \,
gp  ge  we  touch ran  \{1\}  (  )  \(  \)  \1  @  %  :  '  "
""".strip("\n"),
    ),
    "printf": re.split(
        r" {2}|\n",
        r"""
%n  %  n  %s  %-n  %5n  %ln  %*n  %(%F)T  %d  %*d  \  \c  %%  %%n  %b
""".strip("\n"),
    ),
    "jq": re.split(
        r" {2}|\n",
        r"""
$ENV  env  input_filename  $__loc__  $ ENV  import  import "x" as x;  include "x";  input  @sh  debug
stderr  halt  get_search_list  $__prog_args  def f: env; f  #  "  \(  )  (  \  {  }  [  ]  |  .  ,  :
;  ::  $x  ?  //  ..  getpath  limit(3; .)  $  @  1  '  env.PATH  {env}  {(env)}  [env:1]  "\(env)"
tojson  test  range(3)  not  input_line_number
""".strip("\n"),
    ),
}
OPTIONS = {
    "gawk": "|||-F,|-F :|-F\\t|-v n=1|-i x|-f|--|-n|--re-interval",
    "mawk": "|||-F,|-F :|-F\\t|-v n=1|-W exec|-f|--|-We",
    "sed": "||-n|-n|-E|-nE|-r|-s|-u|-z|-i|-ni|--posix|-e|-ne|--in",
    "printf": "|||--|-v x|-vx",
    "jq": "|||-r|-c|-n|-rn|-e|-s|-R|-S|-L .|-f|--tab|--indent 1",
}
"""Alternatives of options for each program."""
ARGUMENTS = re.split(r" {2}", r"""PATH  x  IFS  1  a b  -5  'A  a[$(touch ran)]  %n  0x1f  HOME  x[0]  BASH_ENV  --""")
TESTS = r"""
-name '*.txt'
-type f
-maxdepth 2
-printf '%p %s\n'
-print
-print0
-ls
-mtime -1
-size +1k
-not -name 'a*'
-o
-and
-path './sub/*' -prune
-newer a.txt
-empty
-regex '.*a.*'
-perm 644
-user root
-quit
-iname 'A*'
-depth
-executable
-printf '%{x}%n%h'
-printf '\c%T@'
-newermt 2020-01-01
-links 1
""".strip().splitlines()
ACTIONS = r"""
-delete
-exec touch ran ';'
-execdir touch ran +
-ok touch ran ';'
-fprint ran
-fprintf ran x
-fls ran
-fprint0 ran
-files0-from a.txt
--delete
-del
-exe touch ran ';'
-printf
-name
-D all
-O3
-okdir
""".strip().splitlines()


def generate_commands(seed: int, count: int) -> list[str]:
    """Return this many commands near the shapes, for all programs in turn."""
    chance = random.Random(seed)
    return [shlex.join(_make_words(PROGRAMS[number % len(PROGRAMS)], chance)) for number in range(count)]


def _make_words(program: str, chance: random.Random) -> list[str]:
    if program == "find":
        return _make_find_words(chance)
    language = "awk" if program in ("gawk", "mawk") else program
    script = _mutate(chance.choice(SCRIPTS[language]), language, chance)
    words = [program, *chance.choice(OPTIONS[program].split("|")).split(), script]
    if program == "printf":
        words += chance.choices(ARGUMENTS, k=chance.randrange(4))
    else:
        words.append("data.json" if program == "jq" else chance.choice(("a.txt", "b.txt")))
    if chance.random() < 0.05:
        words.insert(chance.randrange(1, len(words)), chance.choice(words[1:]))
    return words


def _make_find_words(chance: random.Random) -> list[str]:
    picked = [chance.choice(TESTS) for _ in range(chance.randrange(1, 5))]
    if chance.random() < 0.4:
        picked.insert(chance.randrange(len(picked) + 1), chance.choice(ACTIONS))
    words = ["find", chance.choice((".", "sub", "./sub")), *shlex.split(" ".join(picked))]
    if chance.random() < 0.3:
        del words[chance.randrange(1, len(words))]
    return words


def _mutate(script: str, language: str, chance: random.Random) -> str:
    """Change a script at up to four places."""
    for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 3, 4))):
        at, end = sorted(chance.randrange(len(script) + 1) for _ in range(2))
        match chance.randrange(6):
            case 0 | 1:
                script = script[:at] + chance.choice(PIECES[language]) + script[at:]
            case 2:
                script = script[:at] + chance.choice(PIECES[language]) + script[min(end, at + 3) :]
            case 3:
                script = script[:at] + script[at + 1 :]
            case 4:
                script = script[:end] + script[at:]
            case _:
                other = chance.choice(SCRIPTS[language])
                script = script[:at] + other[chance.randrange(len(other)) :]
    return script


# Options ---------------------------------------------------------------------------------------------

VALUES = (
    "1",
    "x",
    "a.txt",
    "ran",
    "-1",
    "none",
    "2,3",
    "0",
    "c",
    "%s",
    "sub",
    ".",
    "+1",
    "-",
    "all",
    "1k",
    "@a.txt",
    "--",
)
FILES = ("a.txt", "b.txt", "sub", "data.json", "x", ".")


def generate_option_commands(seed: int, count: int, programs: Sequence[str]) -> list[str]:
    """Return this many commands with options from the programs' own help, abbreviated, bundled, and with values."""
    chance = random.Random(seed)
    options = {program: _list_long_options(program) for program in programs}
    return [
        shlex.join(_make_option_words(program, options[program], chance))
        for program in chance.choices(programs, k=count)
    ]


def _list_long_options(program: str) -> list[str]:
    helped = subprocess.run([program, "--help"], capture_output=True, stdin=subprocess.DEVNULL, text=True, check=False)
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][\w-]*", helped.stdout + helped.stderr)))


def _make_option_words(program: str, options: Sequence[str], chance: random.Random) -> list[str]:
    words = [program]
    for _ in range(chance.randrange(4)):
        if options and chance.random() < 0.4:
            option = chance.choice(options)
            end = chance.randrange(3, len(option)) if chance.random() < 0.2 else len(option)
            words.append(option[:end] + (f"={chance.choice(VALUES)}" if chance.random() < 0.3 else ""))
        else:
            words.append(
                "-" + "".join(chance.choices(string.ascii_letters + string.digits, k=chance.choice((1, 1, 2))))
            )
        if chance.random() < 0.35:
            words.append(chance.choice(VALUES))
    return [*words, *chance.choices(FILES, k=chance.randrange(3))]


def generate_bundles(program: str) -> list[str]:
    """Return commands in which letters follow a letter that takes a value, or an operand comes before the options."""
    use = compile_use(ALIASES.get(program, program))
    flags = sorted(flag[1:] for flag in use.flags if len(flag) == 2 and flag != "--")
    letters = sorted(option[1:] for option in (*use.values, *use.optional) if len(option) == 2)
    unlisted = sorted(set(string.ascii_letters) - {*flags, *letters})
    attached = [f"-{one}{value}{other} x ran" for one in letters for value in ("", "1") for other in unlisted]
    bundled = [f"-{flag}{one} 1 x" for flag in flags for one in letters]
    late = [f"x -{option}" for option in (*flags, *(f"{one}1" for one in letters))]
    return [f"{program} {words}".strip() for words in (*attached, *bundled, *late)]


# Running --------------------------------------------------------------------------------------------


class Deed(NamedTuple):
    """What a command did apart from reading: a system call, or a variable of the shell that it changed."""

    command: str
    call: str


def find_deeds(commands: Sequence[str], folder: Path) -> list[Deed]:
    """Run the commands in a folder under strace, and return what they did apart from reading and printing."""
    deeds: list[Deed] = []
    for start in range(0, len(commands), BATCH):
        batch = commands[start : start + BATCH]
        place = folder / f"{start}"
        _fill_folder(place)
        _run_traced(batch, place)
        deeds += _read_trace((place.parent / f"{start}.trace").read_text(errors="replace"), batch)
    return deeds


def _fill_folder(place: Path) -> None:
    """Make a folder with files whose lines would be commands if a program ran them."""
    (place / "sub").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "sub/a.txt", "x", "1"):
        (place / name).write_text("touch ran; one 1 X/ x#\n1,two,3 a/b ab\n3 touch ran #one\n\n# 5 x two a[/]\n")
    (place / "data.json").write_text('{"a": {"b": 1}, "items": [{"n": 1, "name": "x"}, {"n": 2, "name": "y"}]}\n')


TRACED = (
    "execve,execveat,fork,vfork,clone,clone3,open,openat,openat2,creat,unlink,unlinkat,rename,renameat,renameat2,mkdir,"
    "mkdirat,mknod,mknodat,link,linkat,symlink,symlinkat,truncate,ftruncate,chmod,fchmod,fchmodat,chown,fchown,fchownat,"
    "utimensat,socket,connect,bind,kill,ptrace"
)


def _run_traced(commands: Sequence[str], place: Path) -> None:
    lines = ["ulimit -t 5", 'IFS=" "', 'kept="$PATH|$IFS|$HOME|$x|$BASH_ENV"']
    for number, command in enumerate(commands):
        lines += [
            f": </mark/{number}",
            f"{command} </dev/null >/dev/null 2>&1",
            f'[ "$kept" = "$PATH|$IFS|$HOME|$x|$BASH_ENV" ] || : </changed/{number}',
            'PATH=/usr/bin:/bin IFS=" " HOME=; unset x BASH_ENV; kept="$PATH|$IFS|$HOME|$x|$BASH_ENV"',
        ]
    script = place.parent / f"{place.name}.sh"
    script.write_text("\n".join([*lines, ": </mark/end", ""]))
    traced = ["strace", "-f", "-qq", "-s", "200", "-o", str(script.with_suffix(".trace")), "-e", f"trace={TRACED}"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": "", "LC_ALL": "C"}
    done = subprocess.run(
        [*traced, "bash", str(script)], cwd=place, env=environment, capture_output=True, timeout=600, check=False
    )
    assert "</mark/end" not in done.stderr.decode(errors="replace") or done.returncode in (0, 1), done.stderr[-2000:]


_CALL = re.compile(r"^(?P<pid>\d+) +(?P<name>\w+)\((?P<rest>.*)")
_MARK = re.compile(r'"/mark/(\d+|end)"')
_WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND")


def _read_trace(trace: str, commands: Sequence[str]) -> Iterator[Deed]:
    shell, current, starts = "", -1, 0
    ended = False
    for line in trace.splitlines():
        call = _CALL.match(line)
        if call is None:
            continue
        pid, name, rest = call["pid"], call["name"], call["rest"]
        shell = shell or pid
        if mark := _MARK.search(rest):
            ended = mark[1] == "end"
            current, starts = (-1 if ended else int(mark[1])), 0
        elif current >= 0 and _is_deed(name, rest):
            words = shlex.split(commands[current])
            own = name in ("fork", "vfork", "clone", "clone3") and pid == shell
            begun = name == "execve" and pid != shell and f'/{words[0]}"' in rest.partition(",")[0]
            if words[0] != "printf" and (own or begun) and starts < 2:
                starts += 1
            else:
                yield Deed(commands[current], line)
    assert ended, "the trace has no end"


def _is_deed(name: str, rest: str) -> bool:
    if name in ("open", "openat", "openat2"):
        return "/changed/" in rest or (_WRITES.search(rest) is not None and not re.search(r'"/dev/(?:null|tty)"', rest))
    if name == "socket":
        return "AF_UNIX" not in rest
    if name in ("clone", "clone3"):
        return "CLONE_THREAD" not in rest
    return not (name == "connect" and "/nscd/socket" in rest)
