"""Engines: one outside thing that thinks, each."""
