"""Errors that are nobody's bug: the command line shows their message alone, and everything else with its traceback."""


class UserError(ValueError):
    """What was typed, or what a file says, cannot be used; the message names the value, the limit and the fix."""


class RunError(RuntimeError):
    """A run cannot go on for a reason outside this program: an environment failed, a process died, a disk is full."""
