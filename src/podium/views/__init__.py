"""Compute views of a run from its timeline. The command line and the web share these views."""
