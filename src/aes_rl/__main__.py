"""`python -m aes_rl` is the command `aes-rl`."""

from aes_rl.cli import main

if __name__ == "__main__":
    main()
