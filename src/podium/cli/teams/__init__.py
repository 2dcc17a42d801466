"""The commands for teams: their definitions, plans and decisions."""
