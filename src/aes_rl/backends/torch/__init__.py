"""Tensor operations on any device: the twin that compiled loops and kernels are tested against."""
