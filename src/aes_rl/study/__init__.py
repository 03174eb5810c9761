"""Studies: tasks × agents × samplers × seeds, on this machine or on a Ray cluster, resumed after any interruption."""
