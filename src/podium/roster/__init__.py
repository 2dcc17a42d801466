"""The public name `podium.roster.squad`. The files of agents, teams and squads are read in `files`."""
