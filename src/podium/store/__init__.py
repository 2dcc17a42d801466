"""Stores: where timelines are kept."""
