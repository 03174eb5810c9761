"""Updates on the CPU as matrix products and compiled loops, without autograd; the agents beside are the reference."""
