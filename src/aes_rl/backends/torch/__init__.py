"""Tensor operations on any device: the reference that compiled loops and kernels are tested against."""
