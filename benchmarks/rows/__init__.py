"""The rows of the table, one file each. A row measures one thing and gives the lines that tell of it."""

from . import append, fan_out, growth, one_call, resume, start_up

ROWS = {
    "one_call": one_call,
    "fan_out": fan_out,
    "append": append,
    "resume": resume,
    "start_up": start_up,
    "growth": growth,
}
