"""Counts and samplers in words."""

_SAMPLERS = {
    "uniform": "uniform",
    "prioritized": "prioritized (PER)",
    "adaptive": "adaptive (AES)",
    "naive": "naive AES",
    "full-information": "full information",
    "last-value": "last value",
}
_OPTIONS = {
    "nu": "ν",
    "floor": "κ",
    "retention": "ϱ",
    "forget_every": "M",
    "forget-every": "M",
}
"""Options that the paper has a letter for."""


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural unless it is one: 1 seed, 1,200 runs."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def sampler_in_words(name: str) -> str:
    """A sampler for a legend: `adaptive:nu=auto` is adaptive (AES), ν auto. A name it does not know is kept."""
    method, colon, options = name.partition(":")
    if colon and method not in _SAMPLERS and method != "predictive":
        return name
    parts = [option.partition("=") for option in options.split(",") if option]
    words = [f"{_OPTIONS.get(option, option.replace('_', ' '))} {value}".strip() for option, _, value in parts]
    return ", ".join([_SAMPLERS.get(method, method), *words])
