"""The random numbers: the same on both backends, and good enough for what they are used for."""

import pytest
import torch

from aes_rl import backends
from aes_rl.streams import GOLDEN, Stream, Streams, scale_to_integers
from aes_rl.types import as_tensor

ENGINES = ["numba", "torch"]


def streams(seeds, backend="numba"):
    return Streams(seeds, backends.choose(backend, "cpu"))


def numbers(seeds, stream=Stream.DRAW, counter=0, count=1000, backend="numba"):
    made = streams(seeds, backend)
    clock = backends.choose(backend, "cpu").counter() + counter
    return as_tensor(made.uniform(stream, clock, count))


@pytest.mark.parametrize("counter", [0, 1, 2**31, 2**62])
def test_engines_agree_bitwise(counter) -> None:
    one = numbers([0, 7, 2**63], counter=counter, backend="numba")
    other = numbers([0, 7, 2**63], counter=counter, backend="torch")
    assert torch.equal(one, other)


def test_the_bits_are_splitmix64() -> None:
    """Against a plain-integer version: a change here would change every recorded run."""

    def mix(x):
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
        return x ^ (x >> 31)

    seed, counter = 20, 5
    key = mix((mix((seed + GOLDEN) % 2**64) ^ Stream.PLACE) + GOLDEN & (2**64 - 1))
    state = mix((key + counter * GOLDEN) % 2**64)
    expected = [(2 * (mix((state + (k + 1) * GOLDEN) % 2**64) >> 12) + 1) / 2**53 for k in range(4)]
    assert numbers([seed], Stream.PLACE, counter, 4).tolist() == [expected]


def test_numbers_are_uniform() -> None:
    """Kolmogorov–Smirnov at a false-alarm rate of one in a million, and pairs by χ² on a 16 × 16 grid."""
    values = numbers([3], count=200_000)[0].sort().values
    steps = torch.arange(1, values.numel() + 1, dtype=torch.float64) / values.numel()
    distance = (values - steps).abs().max() * values.numel() ** 0.5
    assert 2 * torch.exp(-2 * distance**2) > 1e-6
    unsorted = numbers([3], count=200_000)[0]
    cells = (unsorted[:-1] * 16).long() * 16 + (unsorted[1:] * 16).long()
    counts = torch.bincount(cells, minlength=256).double()
    statistic = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert torch.special.gammaincc(torch.tensor(255 / 2).double(), statistic / 2) > 1e-6


@pytest.mark.parametrize(
    "other", [{"seeds": [5]}, {"stream": Stream.PLACE}, {"counter": 1}], ids=["seed", "stream", "counter"]
)
def test_neighbours_are_uncorrelated(other) -> None:
    """Neighbouring seeds, streams and counters share nothing: correlation within 5 standard errors."""
    base = {"seeds": [4], "stream": Stream.DRAW, "counter": 0}
    one, two = (numbers(**arguments, count=100_000)[0] - 0.5 for arguments in (base, base | other))
    correlation = (one * two).mean() * 12
    assert abs(correlation) < 5 / 100_000**0.5


def test_numbers_of_successive_counters_are_uniform_too() -> None:
    """One number a counter, as `place` takes them, must be as good as many numbers of one counter."""
    made = streams([9])
    values = torch.cat([as_tensor(made.uniform(Stream.PLACE, counter, 1))[0] for counter in range(20_000)])
    counts = torch.bincount((values * 64).long(), minlength=64).double()
    statistic = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert torch.special.gammaincc(torch.tensor(63 / 2).double(), statistic / 2) > 1e-6


@pytest.mark.parametrize("backend", ENGINES)
def test_a_member_sees_the_same_alone_and_among_others(backend) -> None:
    together = numbers([1, 2, 3], backend=backend)
    assert torch.equal(numbers([2], backend=backend)[0], together[1])


@pytest.mark.parametrize("backend", ENGINES)
def test_normal_numbers_have_the_moments_of_the_normal_distribution(backend) -> None:
    clock = backends.choose(backend, "cpu").counter()
    values = streams([1], backend).normal(Stream.DRAW, clock, 200_000)[0].double()
    assert values.isfinite().all()
    expected = [0.0, 1.0, 0.0, 3.0]
    spreads = [1.0, 2.0**0.5, 15.0**0.5, 96.0**0.5]
    for power, (mean, spread) in enumerate(zip(expected, spreads, strict=True), start=1):
        assert abs(values.pow(power).mean() - mean) < 5 * spread / values.numel() ** 0.5


@pytest.mark.parametrize("high", [1, 2, 7, 1000])
def test_integers_are_uniform_below_their_bound(high) -> None:
    values = streams([1]).integers(Stream.DRAW, 0, 50_000, high)[0]
    counts = torch.bincount(values, minlength=high).double()
    assert counts.numel() == high
    if high > 1:
        statistic = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
        assert torch.special.gammaincc(torch.tensor((high - 1) / 2).double(), statistic / 2) > 1e-6


def test_the_largest_uniform_stays_below_every_bound() -> None:
    """(1 − 2⁻⁵³) · 513 rounds to 513 in float64."""
    largest = torch.tensor([(2**53 - 1) / 2**53], dtype=torch.float64)
    for high in (1, 513, 2**20 + 1):
        assert scale_to_integers(largest, high) == high - 1
