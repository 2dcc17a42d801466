"""List the harmless options and operands of build and test programs, and of programs that act outside the checkout.

`safe_options` describes the format.

A rule must spell out the subcommands marked `spelled`, because they change the repository or connect to another one.
For example, `Bash(git *)` does not cover `git push`, but `Bash(git push *)` covers it with the options and operands
listed here.
"""

from __future__ import annotations

SCRIPT_ARGUMENTS = (
    "-uv -t=text --watch=name --watchAll=name --coverage --verbose --silent --bail --ci --run --grep=text "
    "--testNamePattern=text --runInBand --passWithNoTests --color --no-color --quiet --check --maxWorkers=number "
    "--forceExit --detectOpenHandles --noEmit --timeout=number --headed --list --shard=path <path>..."
)
JS_SCRIPT = "-s --silent --if-present -w=path --workspace=path --workspaces --ignore-scripts <script> <path>..."
CARGO = (
    "-qvr --quiet --verbose --release --all --workspace --lib --bins --bin=name --tests --test=name --examples "
    "--example=name --benches --bench=name --all-targets --doc -p=name --package=name --exclude=name "
    "--features=names -F=names --all-features --no-default-features --no-run --no-fail-fast --keep-going -j=number "
    "--jobs=number --profile=name --message-format=names --color=name --locked --offline --frozen --no-deps "
    "<text>..."
)
GO = (
    "single-dash -v -x -n -race -short -failfast -json -cover -benchmem -work -msan -asan -a -trimpath -run=text "
    "-bench=text -benchtime=text -count=number -covermode=name -coverpkg=names -cpu=names -list=text "
    "-parallel=number -shuffle=name -skip=text -timeout=number -tags=names -p=number -fullpath <package>..."
)
PROJECT = {
    "pytest": "-qvxslhV -k=text -m=text -n=name -r=name -p=no-plugin -W=warning --lf --last-failed --ff "
    "--failed-first --nf --new-first --sw --stepwise --stepwise-skip --tb=name --durations=number "
    "--durations-min=number --maxfail=number --collect-only --co --exitfirst --verbose --quiet --verbosity=number "
    "--capture=name --show-capture=name --no-header --no-summary --color=name --strict --strict-markers "
    "--strict-config --showlocals --no-showlocals --deselect=path --ignore=path --ignore-glob=path --fixtures "
    "--fixtures-per-test --markers --version --help --disable-warnings --runxfail --setup-show --setup-only "
    "--setup-plan --numprocesses=name --timeout=number --cache-show[=text] --doctest-modules --full-trace "
    "--cov[=path] --no-cov --cov-branch --cov-fail-under=number --cov-report=terminal-report --keep-duplicates "
    "--continue-on-collection-errors --code-highlight=name --hypothesis-seed=number --dist=name <path>...",
    "npm": "-sv --silent --version <command>",
    "npm run": JS_SCRIPT,
    "npm run --": SCRIPT_ARGUMENTS,
    "npm test": "-s --silent --if-present -w=path --workspace=path --workspaces --ignore-scripts <path>...",
    "npm test --": SCRIPT_ARGUMENTS,
    "npm ls": "-al --all --long --depth=number --json --parseable -g --global --omit=name --prod --dev <name>...",
    "npm outdated": "--json --long <name>...",
    "make": "-kniqswBdprR -j[=number] -l[=number] --jobs[=number] --keep-going --dry-run --just-print --silent "
    "--quiet --always-make --no-print-directory --print-directory --question --trace --debug[=names] "
    "--output-sync[=name] --warn-undefined-variables --no-builtin-rules --print-data-base --version --help "
    "<target>...",
    "ninja": "-nv -j=number -k=number -l=number --verbose --quiet --version <target>...",
    "cmake": "--version --help <command>",
    "go": "<command>",
    "go test": GO,
    "go vet": GO,
    "go build": GO,
    "go list": "single-dash -m -deps -json -e -find -test -compiled -u -versions -f=plain <package>...",
    "go version": "single-dash -m <path>...",
    "go env": "single-dash -json <name>...",
    "go doc": "single-dash -all -short -src -u -c <name>...",
    "go mod": "<command>",
    "go mod graph": "",
    "go mod verify": "",
    "go mod why": "single-dash -m -vendor <package>...",
    "go fmt": "spelled single-dash -n -x <package>...",
    "go run": "spelled single-dash -race <package>...",
    "gofmt": "-ldes <path>...",
    "cargo": "-qV --version --list <command>",
    "cargo test": CARGO,
    "cargo test --": "-q --nocapture --show-output --ignored --include-ignored --exact --list --quiet "
    "--test-threads=number --skip=text --color=name <text>...",
    "cargo check": CARGO,
    "cargo build": CARGO,
    "cargo bench": CARGO,
    "cargo bench --": "@cargo test --",
    "cargo doc": CARGO,
    "cargo clippy": CARGO,
    "cargo clippy --": "-D=name -W=name -A=name",
    "cargo fmt": "spelled -q --all --check -p=name",
    "cargo run": f"spelled {CARGO}",
    "cargo run --": "",
    "cargo tree": "-dieq -p=name --depth=number --duplicates --invert=name --edges=names --locked --offline "
    "--workspace",
    "cargo metadata": "-q --no-deps --format-version=number --locked --offline",
    "ruff": "-V --version <command>",
    "ruff check": "-qvsne --select=names --extend-select=names --ignore=names --extend-ignore=names --statistics "
    "--diff --quiet --verbose --silent --no-cache --output-format=name --show-files --show-settings --preview "
    "--no-preview --line-length=number --target-version=name --exit-zero --exit-non-zero-on-fix --no-fix "
    "--exclude=text --extend-exclude=text --isolated --respect-gitignore --force-exclude --no-show-fixes -- "
    "<path>...",
    "ruff format": "spelled -qv --check --diff --quiet --verbose --no-cache --preview --line-length=number "
    "--exclude=text --isolated -- <path>...",
    "ruff rule": "--all --output-format=name <name>",
    "ruff version": "--output-format=name",
    "mypy": "-vVi -p=name -m=name --package=name --module=name --strict --strict-* --warn-* --no-warn-* --disallow-* "
    "--allow-* --no-implicit-* --implicit-* --show-* --hide-* --check-untyped-defs --ignore-missing-imports --pretty "
    "--no-pretty --no-error-summary --no-incremental --no-namespace-packages --namespace-packages --no-site-packages "
    "--explicit-package-bases --python-version=number --platform=name --exclude=text --follow-imports=name "
    "--enable-error-code=name --disable-error-code=name --color-output --no-color-output --verbose --version --help "
    "--always-true=name --always-false=name --local-partial-types --extra-checks --skip-version-check --sqlite-cache "
    "--scripts-are-modules -- <path>...",
    "pyright": "--outputjson --stats --verbose --warnings --level=name --pythonversion=number --version <path>...",
    "black": "-qvS -l=number -t=name --check --diff --color --no-color --quiet --verbose --line-length=number --fast "
    "--safe --target-version=name --exclude=text --preview --version -- <path>...",
    "isort": "-cqv --check --check-only --diff --quiet --verbose --profile=name --version -- <path>...",
    "flake8": "-qv --select=names --ignore=names --extend-ignore=names --max-line-length=number "
    "--max-complexity=number --exclude=text --count --statistics --show-source --version <path>...",
    "pylint": "-E -j=number --errors-only --disable=names --enable=names --reports=name --score=name "
    "--output-format=builtin-report -f=builtin-report --version <path>...",
    "coverage": "<command>",
    "coverage report": "-mi --show-missing --skip-covered --skip-empty --precision=number --sort=text --format=name "
    "--fail-under=number",
    "tox": "-qvlr -e=names --list --recreate --version",
    "nox": "-lrR -s=names --list --reuse-existing-virtualenvs --no-install --version",
    "pre-commit": "<command>",
    "pre-commit run": "-av --all-files --verbose --show-diff-on-failure <name>",
    "jest": "-bio -f -t=text --verbose --silent --ci --coverage --runInBand --onlyChanged --bail[=number] "
    "--passWithNoTests --no-cache --no-coverage --listTests --forceExit --detectOpenHandles --colors --no-color "
    "--watch=name --watchAll=name -w=number --maxWorkers=number --testNamePattern=text --testPathPattern=path "
    "--changedSince=name --version <path>...",
    "vitest": "-t=text --run --silent --passWithNoTests --bail=number --retry=number --changed --color --no-color "
    "--coverage --testNamePattern=text --reporter=builtin-report --version <spec>...",
    "mocha": "-bj -g=text -f=text -t=number --grep=text --fgrep=text --bail --timeout=number --recursive --exit "
    "--parallel --reporter=builtin-report --no-color --color --check-leaks --forbid-only --version <spec>...",
    "eslint": "--ext=names --quiet --max-warnings=number --no-color --color --format=builtin-report "
    "-f=builtin-report --no-fix --report-unused-disable-directives --version -- <path>...",
    "prettier": "-cl --check --list-different --no-color --log-level=name --single-quote --no-semi "
    "--tab-width=number --print-width=number --ignore-unknown --version <path>...",
    "tsc": "-v --noEmit --pretty --skipLibCheck --strict --listFiles --showConfig --version -p=path --project=path "
    "<path>...",
    "deno": "-qV --version <command>",
    "deno test": "-q --filter=text --fail-fast --parallel --quiet --no-check --doc --shuffle <module>...",
    "deno check": "-q --quiet <module>...",
    "deno lint": "-q --quiet --json --compact <module>...",
    "deno fmt": "spelled -q --check --quiet <path>...",
    "deno info": "--json <module>",
    "deno task": "spelled -q <script>",
    "bun": "-v --version --revision <command>",
    "bun test": "-t=text --bail[=number] --timeout=number --coverage --only --todo --test-name-pattern=text <path>...",
    "bun run": "--silent <script-only> <path>...",
}
"""Programs that build and test a project.

They run the project's own code, but none of the listed options makes them run another program.
"""
OUTSIDE = {
    "docker": "-v --version <command>",
    "docker ps": "-aqslf --all --quiet --size --latest --no-trunc --format=plain --filter=text -n=number",
    "docker images": "-aq --all --quiet --no-trunc --digests --format=plain --filter=text <text>",
    "docker logs": "-ft -n=number --tail=number --since=text --until=text --timestamps --follow <name>",
    "docker version": "",
    "docker info": "",
    "docker compose": "<command>",
    "docker compose ps": "-aq --all --quiet --services --format=name <name>...",
    "docker compose logs": "-ft -n=number --tail=number --since=text --no-color --timestamps <name>...",
    "kubectl": "<command>",
    "kubectl get": "-Aw -n=name -l=text -o=wide --namespace=name --all-namespaces --selector=text --show-labels "
    "--no-headers --sort-by=text <resource>...",
    "kubectl describe": "-A -n=name -l=text --namespace=name --all-namespaces --selector=text <resource>...",
    "kubectl logs": "-fp -n=name -c=name -l=text --namespace=name --container=name --tail=number --since=text "
    "--previous --timestamps <resource>",
    "kubectl version": "--client --output=name",
    "gh": "--version <command>",
    "gh pr": "<command>",
    "gh pr list": "-R=text -L=number -s=name -A=text -l=text -S=text --repo=text --limit=number --state=name "
    "--author=text --label=text --search=text --json=names --base=path --head=path --draft",
    "gh pr view": "-c -R=text --comments --repo=text --json=names <text>",
    "gh pr diff": "--color=name --name-only --patch -R=text --repo=text <text>",
    "gh pr status": "-c --conflict-status --json=names",
    "gh pr checks": "--required --json=names -R=text --repo=text <text>",
    "gh issue": "<command>",
    "gh issue list": "@gh pr list",
    "gh issue view": "@gh pr view",
    "gh issue status": "--json=names",
    "gh run": "<command>",
    "gh run list": "-R=text -L=number -b=path -w=text --repo=text --limit=number --branch=path --workflow=text "
    "--json=names",
    "gh run view": "-v --log --log-failed --verbose -R=text --repo=text --json=names --job=number <text>",
    "terraform": "single-dash -version <command>",
    "terraform validate": "single-dash -json -no-color",
    "terraform version": "single-dash -json",
    "pip": "-V --version <command>",
    "pip list": "-o --outdated --format=name --not-required --user --local",
    "pip show": "-f --files --verbose <name>...",
    "pip freeze": "--local --user --all",
    "pip check": "",
    "pip install": "spelled -qU -r=path -e=path --quiet --upgrade --no-deps --requirement=path --editable=path "
    "<requirement>...",
    "uv": "-V --version <command>",
    "uv tree": "--depth=number --locked --frozen --no-dev",
    "uv sync": "spelled -q --frozen --locked --all-extras --all-groups --no-dev --extra=name --group=name --quiet",
    "uv lock": "spelled -q --check --locked --quiet",
    "uv pip": "<command>",
    "uv pip list": "--outdated --format=name",
    "uv pip show": "<name>...",
    "uv pip freeze": "",
    "uv pip check": "",
    "poetry": "-V --version <command>",
    "poetry show": "-tlo --tree --latest --outdated --all <name>",
    "poetry check": "--lock",
    "poetry install": "spelled -q --no-root --with=names --without=names --only=names --sync",
    "apt": "<command>",
    "apt list": "--installed --upgradable <text>...",
    "apt show": "<name>...",
    "apt search": "<text>...",
    "brew": "--version <command>",
    "brew list": "-1l --versions --cask --formula <name>...",
    "brew info": "--json[=name] <name>...",
    "systemctl": "--version <command>",
    "systemctl status": "--no-pager --user -l -n=number <name>...",
    "systemctl is-active": "--user -q <name>...",
    "crontab": "-l",
    "kill": "-l",
}
"""The harmless options and operands of programs that act outside the checkout, such as docker and apt.

The listed subcommands only show information, except those marked `spelled`. A rule must spell out a subcommand marked
`spelled`; a wildcard does not cover it.
"""
