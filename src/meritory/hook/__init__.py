"""The command that agent clients run at their events; standard library only."""
