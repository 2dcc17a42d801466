"""The option that says how much agents may do without asking."""

from __future__ import annotations

import click

from ...config.settings_document import MODES

permissions_option = click.option(
    "--permissions",
    "permission_mode",
    type=click.Choice(MODES),
    help="How much agents may do without asking; see the page on permissions.",
)
