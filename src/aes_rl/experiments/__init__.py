"""The laboratory's experiments as commands: `aes-rl lab`."""
