"""The rows of the table, one file each. A row measures one thing and returns the lines that report it."""

from . import (
    append,
    collaboration,
    dashboard,
    discussion,
    fan_out,
    growth,
    one_call,
    permission,
    policy,
    resume,
    sandbox,
    start_up,
    streaming,
    team,
    tool_loop,
    worker,
)

ROWS = {
    "one_call": one_call,
    "tool_loop": tool_loop,
    "team": team,
    "fan_out": fan_out,
    "streaming": streaming,
    "append": append,
    "resume": resume,
    "start_up": start_up,
    "sandbox": sandbox,
    "policy": policy,
    "worker": worker,
    "permission": permission,
    "growth": growth,
    "discussion": discussion,
    "collaboration": collaboration,
    "dashboard": dashboard,
}
