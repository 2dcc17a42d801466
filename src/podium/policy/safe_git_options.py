"""List the harmless options and operands of git's subcommands. `safe_options` describes the format."""

from __future__ import annotations

DIFF = (
    "-puswabzRWcmrt -U=number -S=text -G=text -I=text -l=number -M[=number] -C[=number] -B[=number] --unified=number "
    "--patch --no-patch --raw --stat[=names] --numstat --shortstat --dirstat[=names] --cumulative --summary "
    "--name-only --name-status --color[=name] --no-color --word-diff[=name] --word-diff-regex=text "
    "--color-words[=text] --color-moved[=name] --no-renames --find-renames[=number] --find-copies[=number] "
    "--find-copies-harder --check --full-index --binary --abbrev[=number] --diff-filter=name --pickaxe-regex "
    "--pickaxe-all --text --ignore-space-change --ignore-all-space --ignore-blank-lines --ignore-cr-at-eol "
    "--ignore-space-at-eol --ignore-matching-lines=text --inter-hunk-context=number --function-context --exit-code "
    "--quiet --no-ext-diff --no-textconv --ignore-submodules[=name] --submodule[=name] --src-prefix=text "
    "--dst-prefix=text --no-prefix --relative[=path] --no-relative --minimal --patience --histogram "
    "--diff-algorithm=name --compact-summary --cached --staged --merge-base --diff-merges=merge-format "
    "--no-diff-merges --cc --root --indent-heuristic"
)
LOG = (
    "-NUM -iEFPgq -n=number -L=path --max-count=number --skip=number --since=text --after=text --until=text "
    "--before=text --author=text --committer=text --grep=text --all-match --invert-grep --regexp-ignore-case "
    "--extended-regexp --fixed-strings --perl-regexp --oneline --pretty[=git-format] --format=git-format "
    "--abbrev-commit --no-abbrev-commit --decorate[=name] --no-decorate --decorate-refs=text "
    "--decorate-refs-exclude=text --graph --no-graph --date=text --relative-date --merges --no-merges "
    "--min-parents=number --max-parents=number --first-parent --all --branches[=text] --tags[=text] --remotes[=text] "
    "--glob=text --exclude=text --reverse --follow --left-right --left-only --right-only --cherry --cherry-pick "
    "--cherry-mark --topo-order --date-order --author-date-order --no-walk[=name] --source --full-history --dense "
    "--sparse --simplify-merges --simplify-by-decoration --show-pulls --ancestry-path --boundary --count --parents "
    "--children --walk-reflogs --reflog --no-notes --mailmap --use-mailmap --no-mailmap --encoding=name --log-size "
    "--not"
)
REVISIONS = "-- <revision>... reads"
LISTED = (
    "--contains --no-contains --merged --no-merged --sort=git-sort --format=git-format --points-at --no-color "
    "--color[=name]"
)
GIT = {
    "git": "-Pv --no-pager --no-optional-locks --literal-pathspecs --version <command>",
    "git status": "-sbvzuno --short --branch --long --verbose --porcelain[=name] --show-stash --ahead-behind "
    "--no-ahead-behind --renames --no-renames --column[=names] --no-column --ignored[=name] --untracked-files[=name] "
    "--ignore-submodules[=name] -- <revision>... reads",
    "git log": f"{DIFF} {LOG} {REVISIONS}",
    "git whatchanged": f"{DIFF} {LOG} {REVISIONS}",
    "git show": f"{DIFF} {LOG} {REVISIONS}",
    "git diff": f"{DIFF} -123 --base --ours --theirs {REVISIONS}",
    "git diff-tree": f"{DIFF} -v --pretty[=git-format] --no-commit-id {REVISIONS}",
    "git diff-index": f"{DIFF} {REVISIONS}",
    "git diff-files": f"{DIFF} {REVISIONS}",
    "git range-diff": f"{DIFF} --creation-factor=number --no-dual-color {REVISIONS}",
    "git rev-list": f"{LOG} --objects --disk-usage {REVISIONS}",
    "git reflog": f"{DIFF} {LOG} <command> reads",
    "git reflog show": f"{DIFF} {LOG} {REVISIONS}",
    "git reflog exists": "<revision> reads",
    "git shortlog": f"-nsec {LOG} --numbered --summary --email --group=name {REVISIONS}",
    "git rev-parse": "-q --quiet --verify --short[=number] --abbrev-ref[=name] --symbolic-full-name --symbolic "
    "--show-toplevel --show-prefix --show-cdup --git-dir --git-common-dir --absolute-git-dir --is-inside-work-tree "
    "--is-inside-git-dir --is-bare-repository --is-shallow-repository --all --branches[=text] --tags[=text] "
    f"--remotes[=text] --show-object-format --revs-only --no-revs {REVISIONS}",
    "git ls-files": "-cdomstuvzikf -x=text --cached --deleted --modified --others --ignored --stage --unmerged "
    "--killed --directory --no-empty-directory --eol --exclude=text --exclude-standard --error-unmatch --full-name "
    f"--abbrev[=number] --deduplicate --format=git-format {REVISIONS}",
    "git ls-tree": "-drtlz --long --name-only --name-status --object-only --full-name --full-tree --abbrev[=number] "
    f"--format=git-format {REVISIONS}",
    "git blame": "-bcefhlnpstw -L=text -M[=number] -C[=number] --porcelain --line-porcelain --show-stats --show-name "
    "--show-number --show-email --since=text --date=text --abbrev=number --root --color-lines --color-by-age "
    f"--first-parent --ignore-rev=text {REVISIONS}",
    "git annotate": "@git blame",
    "git describe": "--tags --all --long --always --abbrev[=number] --dirty[=name] --broken[=name] --match=text "
    f"--exclude=text --contains --exact-match --candidates=number --first-parent {REVISIONS}",
    "git merge-base": f"-a --all --octopus --is-ancestor --independent --fork-point {REVISIONS}",
    "git name-rev": f"--tags --name-only --always --refs=text --exclude=text --no-undefined {REVISIONS}",
    "git for-each-ref": "--count=number --sort=git-sort --format=git-format --points-at=text --merged[=text] "
    f"--no-merged[=text] --contains[=text] --no-contains[=text] --ignore-case {REVISIONS}",
    "git show-ref": "-dhqs --head --heads --tags --branches --dereference --hash[=number] --verify --abbrev[=number] "
    f"--quiet {REVISIONS}",
    "git show-branch": "-ar --all --remotes --current --topo-order --date-order --sparse --list --sha1-name "
    f"{REVISIONS}",
    "git count-objects": "-vH --verbose --human-readable reads",
    "git check-ignore": f"-qvn --quiet --verbose --non-matching --no-index {REVISIONS}",
    "git check-attr": f"-a --all {REVISIONS}",
    "git cat-file": f"-ptse {REVISIONS}",
    "git cherry": f"-v --abbrev[=number] {REVISIONS}",
    "git grep": "-nilLcwEFPGhHoqvpWar -NUM -e=pattern -f=pattern-file -A=number -B=number -C=number -m=number "
    "--cached --and --or --not --all-match --heading --break --count --name-only --files-with-matches "
    "--files-without-match --line-number --column --ignore-case --word-regexp --invert-match --extended-regexp "
    "--fixed-strings --perl-regexp --only-matching --show-function --function-context --color[=name] --no-color "
    "--max-depth=number --max-count=number --quiet --full-name --recursive --threads=number -- <pattern> "
    "<revision>... reads",
    "git branch": f"-arvlq {LISTED} --list --all --remotes --verbose --show-current --column[=names] --ignore-case "
    "--abbrev[=number] --omit-empty <revision>... "
    "operands-with:--list,-l,--contains,--no-contains,--merged,--no-merged,--points-at reads",
    "git tag": f"-li -n[=number] {LISTED} --list --column[=names] --ignore-case <revision>... "
    "operands-with:--list,-l,--contains,--no-contains,--merged,--no-merged,--points-at reads",
    "git remote": "-v --verbose <command> reads",
    "git remote get-url": "--push --all <name> reads",
    "git stash": "<command> spelled",
    "git stash list": f"{LOG} reads",
    "git stash show": f"{DIFF} --include-untracked --only-untracked <revision> reads",
    "git worktree": "<command>",
    "git worktree list": "-vz --verbose --porcelain reads",
    "git submodule": "<command>",
    "git submodule status": "--cached <path>... reads",
    "git version": "--build-options reads",
    "git add": "-AunNv --all --update --dry-run --verbose --intent-to-add --no-all --ignore-errors -- <revision>...",
    "git commit": "-aqsvz -m=text -F=path -C=text --message=text --file=path --reuse-message=text --all --amend "
    "--no-edit --signoff --no-signoff --quiet --verbose --author=text --date=text --allow-empty "
    "--allow-empty-message --dry-run --short --branch --porcelain --reset-author --fixup=commit --no-gpg-sign "
    "--no-status -- <revision>... needs:-m,-F,-C,--message,--file,--reuse-message,--no-edit,--fixup",
    "git push": "spelled -unvq --set-upstream --dry-run --verbose --quiet --tags --follow-tags --porcelain "
    "--progress --atomic --no-progress <remote> <refspec>...",
    "git pull": "spelled -rqv --rebase[=name] --no-rebase --ff --ff-only --no-ff --quiet --verbose --autostash "
    "--tags --prune <remote> <refspec>...",
    "git fetch": "spelled -apqtvfk --all --prune --quiet --tags --no-tags --verbose --dry-run --depth=number "
    "--unshallow --progress <remote> <refspec>...",
    "git checkout": "spelled -qtd -b=branch --quiet --track --no-track --detach --no-guess -- <revision>...",
    "git switch": "spelled -q -c=branch --create=branch --quiet --track --no-track --detach --no-guess <revision>...",
    "git restore": "spelled -qSW -s=text --staged --worktree --source=text --quiet -- <revision>...",
    "git reset": "spelled -qN --soft --mixed --quiet -- <revision>...",
    "git merge": "spelled -qn -m=text --ff --ff-only --no-ff --no-commit --squash --no-edit --abort --stat --no-stat "
    "--quiet <revision>...",
    "git rebase": "spelled -q --abort --autostash --no-autostash --quiet --onto=text --keep-base <revision>...",
    "git cherry-pick": "spelled -xns --no-commit --signoff --abort --quit <revision>...",
    "git revert": "spelled -ns --no-edit --no-commit --abort --quit <revision>... needs:--no-edit,--abort,--quit",
    "git rm": "spelled -rqnf --cached --quiet --dry-run --ignore-unmatch -- <revision>...",
    "git mv": "spelled -fknv --verbose --dry-run <path>...",
    "git stash push": "spelled -qukS -m=text --include-untracked --keep-index --staged --message=text --quiet -- "
    "<revision>...",
    "git stash pop": "spelled -q --index --quiet <revision>",
    "git stash apply": "spelled -q --index --quiet <revision>",
    "git clone": "spelled -qvn -b=branch --depth=number --branch=branch --single-branch --no-tags --no-checkout "
    "--bare --quiet --verbose <url> <path>",
    "git init": "spelled -q -b=branch --initial-branch=branch --quiet <path>",
}
