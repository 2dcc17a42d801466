"""The table of commands, and the help that it gives.

Asking for help must cost no more than starting the interpreter, so this module imports nothing but
the version. Each command lives in the module of its name; the table only tells of it.
"""

from .. import __version__

SECTIONS = ("Work", "Look", "Steer", "Agents", "Set up")

# name, section, purpose, example
COMMANDS = (
    ("chat", "Work", "Talk to an agent; podium alone does the same.", "podium chat triage"),
    ("run", "Work", "Give a request to an agent and follow it to the answer.", 'podium run triage "Why is it slow?"'),
    ("resume", "Work", "Go on with a run that was interrupted or paused.", "podium resume 3f2a"),
    ("delegate", "Work", "Have a worker do a task on a branch of its own.", 'podium delegate feat/csv "Export to CSV"'),
    ("merge", "Work", "Bring the branches of workers together, checked.", "podium merge --all"),
    ("demo", "Work", "Watch a team work, die and go on: no key, no network.", "podium demo"),
    ("ps", "Look", "List the runs and how they stand.", "podium ps --all"),
    ("group", "Look", "Put the list of runs in order: by repository and by team.", "podium group pin billing"),
    ("show", "Look", "Show one run: its tree of agents and its answer.", "podium show 3f2a"),
    ("results", "Look", "Show everything that a run has brought so far.", "podium results 3f2a --markdown"),
    ("cost", "Look", "Show what the runs cost, or one run, agent by agent.", "podium cost 3f2a"),
    ("logs", "Look", "Print a run's timeline, and follow it.", "podium logs 3f2a -f"),
    ("verify", "Look", "Check that a run's timeline is what was once written.", "podium verify 3f2a"),
    ("audit", "Look", "List who approved what in a run, and what ran.", "podium audit 3f2a"),
    ("workers", "Look", "List the workers and how they stand; wait, cancel, diff.", "podium workers wait"),
    ("worktrees", "Look", "List the worktrees of workers, and put them away.", "podium worktrees cleanup --dry-run"),
    ("send", "Steer", "Say something to an agent of a run.", 'podium send 3f2a/answer "Mention the cost."'),
    ("pause", "Steer", "Let a run begin nothing more for now.", "podium pause 3f2a"),
    ("budget", "Steer", "See what a run may use, or change it.", "podium budget 3f2a usd=5,tokens=300000"),
    ("stop", "Steer", "End a run now, with what there is.", "podium stop 3f2a"),
    ("approvals", "Steer", "List what agents ask and nobody has answered.", "podium approvals"),
    ("approve", "Steer", "Allow what an agent asks for.", "podium approve 5f0c"),
    ("deny", "Steer", "Refuse what an agent asks for.", 'podium deny 5f0c --why "Not on a Friday."'),
    ("answer", "Steer", "Answer a question of an agent's.", 'podium answer 6a0c "The red one."'),
    ("agents", "Agents", "List the agents there are, and where each comes from.", "podium agents"),
    ("check", "Agents", "Check agent files and how they fit together.", "podium check .podium/agents/lead.md"),
    ("graph", "Agents", "Draw the workflow that an agent's file implies.", "podium graph triage"),
    ("teams", "Agents", "List the teams there are, and where each comes from.", "podium teams"),
    ("team", "Agents", "Show, save, change, export or delete a team.", "podium team show pr-review"),
    ("trust", "Agents", "Decide what of a repository may start or change here.", "podium trust --list"),
    ("policy", "Set up", "Ask what the rules say about a command, and why.", "podium policy check -- git push"),
    ("models", "Set up", "List what can think here, and what agents think with.", "podium models"),
    ("config", "Set up", "Show the settings that hold here, and check their files.", "podium config show"),
    ("doctor", "Set up", "Say what Podium finds here, and what to do about it.", "podium doctor"),
)

NAMES = tuple(name for name, _, _, _ in COMMANDS)
EXAMPLES = {name: example for name, _, _, example in COMMANDS}


def build_help_text() -> str:
    """What `podium --help` says."""
    return f"""\
Podium runs teams of AI agents on your work, on one durable timeline.

Usage: podium [--debug] COMMAND [ARGUMENTS]

{_format_command_list()}
Options:
  --debug     Show where an error comes from (also PODIUM_DEBUG=1).
  --version   Show the version.
  -h, --help  Show this text; after a command, what that command takes.

First steps: podium demo, then podium doctor."""


def build_version_text() -> str:
    """What `podium --version` says."""
    return f"podium {__version__}"


def answer_help_or_version(arguments: list[str]) -> str | None:
    """The answer to a question about Podium as a whole; None for everything else."""
    match arguments:
        case [] | ["--help" | "-h" | "help"]:
            return build_help_text()
        case ["--version"]:
            return build_version_text()
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
