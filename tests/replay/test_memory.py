"""The memory behind slots on the CPU."""

import pytest
import torch

from aes_rl.backends.numba.tree import zeros


@pytest.mark.parametrize("slots", [1, 100, 600_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.uint8])
def test_zeros_start_on_a_cache_line_and_can_be_written(slots: int, dtype: torch.dtype) -> None:
    memory = zeros((2, slots), dtype)
    assert memory.data_ptr() % 64 == 0
    assert memory.is_contiguous()
    assert memory.shape == (2, slots)
    assert memory.dtype == dtype
    assert not memory.any()
    memory += 1
    assert int(memory.sum()) == 2 * slots
