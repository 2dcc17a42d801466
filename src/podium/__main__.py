"""Run the `podium` command with `python -m podium`."""

import sys

from .cli import run_program

sys.exit(run_program())
