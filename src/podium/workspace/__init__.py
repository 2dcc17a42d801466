"""Where agents work: git, and the checkouts that it makes."""
