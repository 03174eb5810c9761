"""Whether a host library is there, in a version that was tested."""

from importlib.metadata import PackageNotFoundError, version


def require(package: str, first: str, before: str, extra: str) -> None:
    """Raise, with what to install, where the host is missing or of another version."""
    install = f"pip install 'aes-rl[{extra}]'"
    try:
        found = version(package)
    except PackageNotFoundError:
        raise ImportError(f"{package} is not installed; {install}") from None
    if not _numbers(first) <= _numbers(found) < _numbers(before):
        raise ImportError(f"{package} {found} is installed; this needs at least {first} and below {before}: {install}")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
