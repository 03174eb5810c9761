"""Errors that are not bugs of this program: the command line prints their message without a traceback."""


class UserError(ValueError):
    """An argument or the content of a file cannot be used; the message names the value, the limit and the fix."""


class RunError(RuntimeError):
    """A run cannot continue for a reason outside this program: an environment failed, a process died, a full disk."""
