"""The programs that are measured: Podium, and the bare parts that are its physical limit."""
