"""The dashboard: a page without a build step. Its files are in `static`."""
