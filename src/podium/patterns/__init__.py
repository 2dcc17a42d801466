"""Patterns: small functions over operations."""
