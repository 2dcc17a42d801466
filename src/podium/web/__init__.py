"""The HTTP API and the dashboard, served by `podium serve`."""
