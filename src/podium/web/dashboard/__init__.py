"""The dashboard: a web page that needs no build step. Its files are in `static`."""
