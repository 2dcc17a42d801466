"""Implement `podium demo --local`, which uses a real model on this machine."""
