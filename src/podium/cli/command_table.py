"""Define the table of commands, and build the text of `podium --help`.

Printing the help must add almost nothing to the interpreter's startup time, so this module imports only
the version.
"""

from .. import __version__

SECTIONS = ("Work", "Inspect", "Steer", "Agents", "Set up")

# name, section, purpose, example
COMMANDS = (
    ("chat", "Work", "Chat with an agent; the default command on a terminal.", "podium chat triage"),
    ("run", "Work", "Send a request to an agent and follow the run.", 'podium run triage "Why is it slow?"'),
    ("resume", "Work", "Resume a run that was interrupted or paused.", "podium resume 3f2a"),
    ("fork", "Work", "Start a new run from an earlier point in a run.", "podium fork 3f2a --at 40"),
    ("retry", "Work", "Retry a run from where it failed.", "podium retry 3f2a --budget usd=5"),
    ("undo", "Work", "Restore the files that a run changed.", "podium undo 3f2a --dry-run"),
    ("delegate", "Work", "Delegate a task to a worker on its own branch.", 'podium delegate feat/csv "Export to CSV"'),
    ("merge", "Work", "Merge workers' branches and run the checks.", "podium merge --all"),
    (
        "schedule",
        "Work",
        "Send requests to agents at set times.",
        'podium schedule add "0 9 * * 1-5" triage "Any news?"',
    ),
    ("watch", "Work", "Pick up new issues and have agents work on them.", "podium watch issues --once --dry-run"),
    (
        "decide",
        "Work",
        "Decide between options yourself, or let a team vote.",
        'podium decide "Tea?" --option yes --option no',
    ),
    ("serve", "Work", "Serve the dashboard and the HTTP API.", "podium serve --open"),
    ("mcp", "Work", "Serve agents as tools for MCP clients.", "podium mcp"),
    ("acp", "Work", "Serve a team as one agent for an editor.", "podium acp pr-review"),
    ("host", "Work", "Execute a fleet's runs on this machine.", "podium host --labels gpu --slots 4"),
    ("demo", "Work", "Watch a team work, crash and resume; needs no key or network.", "podium demo"),
    ("status", "Inspect", "Show open requests, active agents and finished runs.", "podium status --watch"),
    ("ps", "Inspect", "List runs and their states.", "podium ps --all"),
    ("group", "Inspect", "Organise runs: rename, pin, move and archive groups.", "podium group pin billing"),
    ("show", "Inspect", "Show one run: its tree of agents and its answer.", "podium show 3f2a"),
    ("follow", "Inspect", "Follow a run that another process is working on.", "podium follow 3f2a"),
    ("results", "Inspect", "Show the results of a run so far.", "podium results 3f2a --markdown"),
    ("cost", "Inspect", "Show the cost of all runs, or of each agent in one run.", "podium cost 3f2a"),
    ("decisions", "Inspect", "List the decisions made in this repository, or show one.", "podium decisions --in-force"),
    ("logs", "Inspect", "Print or follow the timeline of a run, or search all runs.", "podium logs 3f2a -f"),
    ("plan", "Inspect", "Show a team's plan and the state of its steps.", "podium plan 3f2a"),
    ("artifacts", "Inspect", "List or print the artifacts from a team's steps.", "podium artifacts 3f2a s1-1.diff"),
    ("verify", "Inspect", "Check that the timeline of a run has not been altered.", "podium verify 3f2a"),
    ("audit", "Inspect", "List who approved what in a run, and what was executed.", "podium audit 3f2a"),
    ("workers", "Inspect", "List, inspect, wait for or cancel workers.", "podium workers wait"),
    ("hosts", "Inspect", "List the hosts in a fleet, and create or remove their logins.", "podium hosts add gpu-1"),
    ("worktrees", "Inspect", "List and clean up the worktrees in a repository.", "podium worktrees cleanup --dry-run"),
    ("send", "Steer", "Send a message to an agent in a run.", 'podium send 3f2a/answer "Mention the cost."'),
    ("pause", "Steer", "Pause a run.", "podium pause 3f2a"),
    (
        "snapshot",
        "Steer",
        "Take a snapshot of a paused run, from which you can fork it later.",
        "podium snapshot 3f2a --name before",
    ),
    ("budget", "Steer", "Show or change the budget of a run.", "podium budget 3f2a usd=5,tokens=300000"),
    ("stop", "Steer", "Stop a run and keep its partial results.", "podium stop 3f2a"),
    ("approvals", "Steer", "List open permission requests and questions.", "podium approvals"),
    ("approve", "Steer", "Approve a permission request.", "podium approve 5f0c"),
    ("deny", "Steer", "Deny a permission request.", 'podium deny 5f0c --why "Not on a Friday."'),
    ("answer", "Steer", "Answer a question from an agent.", 'podium answer 6a0c "The red one."'),
    ("agents", "Agents", "List the available agents and their sources.", "podium agents"),
    ("check", "Agents", "Check agent files and the references between them.", "podium check .podium/agents/lead.md"),
    ("graph", "Agents", "Draw the workflow of an agent.", "podium graph triage"),
    ("teams", "Agents", "List the available teams and their sources.", "podium teams"),
    ("team", "Agents", "Show, save, change, export or delete a team.", "podium team show pr-review"),
    ("trust", "Agents", "Choose which of a repository's settings to trust.", "podium trust --list"),
    (
        "policy",
        "Set up",
        "Show whether the permission rules allow a command, and which rule decides.",
        "podium policy check -- git push",
    ),
    ("models", "Set up", "List the available models and the default one.", "podium models"),
    ("engines", "Set up", "List the coding agents that can be used as engines.", "podium engines"),
    ("config", "Set up", "Show the effective settings, and check the settings files.", "podium config show"),
    ("store", "Set up", "Create, migrate, check, prune, export or import the store.", "podium store check"),
    ("doctor", "Set up", "Check this machine and repository, and suggest fixes.", "podium doctor"),
)

NAMES = tuple(name for name, _, _, _ in COMMANDS)
LOOKING_NAMES = tuple(
    name for name, section, _, _ in COMMANDS if section not in ("Work", "Steer") or name == "approvals"
)
"""The commands that change nothing by themselves. Only these are suggested for a mistyped command."""
LOOKING_SUBCOMMANDS = frozenset(
    ("check", "diff", "explain", "export", "list", "logs", "output", "path", "show", "test", "validate", "wait")
)
"""The subcommands that change nothing. Only these are suggested for a mistyped subcommand."""
EXAMPLES = {name: example for name, _, _, example in COMMANDS}

_SHARED_MODULES = {
    "commands.agents": ("graph",),
    "commands.agents_show": ("agents show",),
    "commands.answer": ("approve", "deny"),
    "commands.fork": ("retry",),
    "commands.hosts": ("host",),
    "commands.local_models": ("models add", "models remove", "models test"),
    "commands.logs": ("audit", "verify"),
    "commands.run": ("follow",),
    "commands.serve": ("mcp", "acp"),
    "commands.steer": ("pause", "send", "stop", "snapshot", "budget", "workers cancel"),
    "commands.resume": ("workers resume",),
    "chat.chat": ("chat",),
    "demo.demo": ("demo",),
    "teams.decide": ("decide",),
    "teams.decisions": ("decisions",),
    "teams.plan": ("plan", "artifacts"),
    "teams.team_set": ("team set",),
    "teams.teams": ("teams", "team"),
    "workers.delegate": ("delegate",),
    "workers.merge": ("merge", "workers merge"),
    "workers.workers": ("workers",),
    "workers.workers_output": ("workers diff", "workers output", "workers logs"),
    "workers.workers_wait": ("workers wait",),
    "workers.worktrees": ("worktrees", "workers cleanup"),
}
_MODULES = {name: module for module, names in _SHARED_MODULES.items() for name in names}


def find_command_module(name: str) -> str:
    """Return the module of a command such as `ps` or `team set`, relative to this package."""
    return _MODULES.get(name) or _MODULES.get(group := name.partition(" ")[0]) or f"commands.{group}"


def build_help_text() -> str:
    """Return the text of `podium --help`."""
    return f"""\
Podium runs teams of AI agents and records everything they do on a durable timeline.

Usage: podium [--debug] COMMAND [ARGUMENTS]

{_format_command_list()}
Options:
  --debug     Show the traceback of an error (also PODIUM_DEBUG=1).
  --version   Show the version.
  -h, --help  Show this help; after a command, show the help for that command.

First steps: podium demo, then podium doctor."""


def _build_version_text() -> str:
    """Return the text of `podium --version`."""
    return f"podium {__version__}"


def answer_help_or_version(arguments: list[str]) -> str | None:
    """Return the help or the version if these arguments request it, otherwise None."""
    match arguments:
        case [] | ["--help" | "-h" | "help"]:
            return build_help_text()
        case ["--version"]:
            return _build_version_text()
        case ["--debug", *rest]:
            return answer_help_or_version(rest)
    return None


def _format_command_list() -> str:
    width = max(map(len, NAMES))
    return "\n".join(
        f"{section}:\n"
        + "".join(f"  {name:{width}}  {purpose}\n" for name, place, purpose, _ in COMMANDS if place == section)
        for section in SECTIONS
    )
