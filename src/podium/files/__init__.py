"""The files of agents, teams, squads, skills and instructions, and settings files and their trust."""
