"""Run the `podium` command with `python -m podium`."""

import sys

from .cli import main

sys.exit(main())
