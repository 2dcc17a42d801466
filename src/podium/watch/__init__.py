"""Watching a repository for new issues, and having agents work on them."""
