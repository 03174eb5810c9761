"""The laboratory: measurements of what selection does."""
