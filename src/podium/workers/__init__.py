"""Run agents as workers, each in its own process and usually its own checkout, and connect them to a commander."""
