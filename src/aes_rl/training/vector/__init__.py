"""Vectorised environments: one per member, stepped in worker processes through shared memory, saved and restored."""
