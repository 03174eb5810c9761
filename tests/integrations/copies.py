"""Copies of attached networks, which the attachment forbids: their hooks must be removed before they are used."""

import copy

from aes_rl.integrations.watched import Mark


def copied(module):
    """A deep copy with the hooks of the original."""
    hooks = [hook for part in module.modules() for hook in part._forward_hooks.values()]
    return copy.deepcopy(module, {id(hook): None for hook in hooks if isinstance(hook, Mark)})
