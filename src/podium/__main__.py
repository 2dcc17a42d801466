"""`python -m podium` is `podium`."""

import sys

from .cli import main

sys.exit(main())
