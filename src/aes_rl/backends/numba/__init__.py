"""Loops compiled by Numba for the CPU."""
