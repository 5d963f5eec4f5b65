"""Apps: the command, the demo and the dashboard. They show answers and compute none."""
