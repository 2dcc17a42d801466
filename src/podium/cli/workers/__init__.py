"""The commands of `podium workers`, and what several commands need of workers."""
