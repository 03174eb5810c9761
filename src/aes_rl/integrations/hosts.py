"""Check that a host library is installed in a tested version."""

from importlib.metadata import PackageNotFoundError, version


def require(package: str, first: str, before: str, extra: str) -> None:
    """Raise an ImportError with the install command if the host is missing or its version is out of range."""
    install = f"pip install 'aes-rl[{extra}]'"
    try:
        found = version(package)
    except PackageNotFoundError:
        raise ImportError(f"{package} is not installed; {install}") from None
    if not _numbers(first) <= _numbers(found) < _numbers(before):
        raise ImportError(f"{package} {found} is installed; this needs at least {first} and below {before}: {install}")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
