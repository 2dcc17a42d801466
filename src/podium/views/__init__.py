"""Views of a run that are computed from its timeline, shared by the command line and the web."""
