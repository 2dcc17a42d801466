"""The names of tools that patterns define. Agent files can list them in the same way as tools of the toolset."""

DELEGATING_TOOLS = ("delegate_task", "check_workers", "get_worker_result", "cancel_worker")
"""Tools for starting workers and following them."""
STEP_TOOLS = ("handoff_step", "raise_blocker")
"""Tools for the owner of a plan step."""
VOTING_TOOLS = ("propose_decision", "cast_ballot")
"""Tools for proposing a decision and voting on it."""
DECISION_TOOLS = (*VOTING_TOOLS, "list_decisions")
"""All tools for decisions."""
SEND_MESSAGE = "send_message"
"""The tool that sends a message to another member of the agent's team."""
LOAD_SKILL = "load_skill"
"""The tool that reads the files of a skill.

If skills are available, the tool is given by default to every agent that lists skills, and to every agent that lists no
tools and is not a router.
"""
UPDATE_MEMORY = "update_memory"
"""The tool that changes an agent's memory. An agent has this tool if its memory can be changed."""
