"""Whole studies: tasks × agents × samplers × seeds, on this machine or on a Ray cluster, interrupted at will."""
