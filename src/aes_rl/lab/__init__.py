"""The laboratory: how much gradient variance samplers remove, and whether the paper's theory holds."""
