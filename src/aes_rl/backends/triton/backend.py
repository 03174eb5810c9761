"""The backend for NVIDIA GPUs: single kernels instead of dozens of tensor operations."""

from collections.abc import Callable, Sequence
from importlib import import_module

from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aes_rl.backends.backend import Forms, Result
from aes_rl.backends.distribution import Overwrite
from aes_rl.backends.torch.backend import AbstractTensorBackend
from aes_rl.backends.torch.distribution import TorchDistribution
from aes_rl.backends.triton import kernels
from aes_rl.backends.triton.tree import TritonTree
from aes_rl.types import Counter


class TritonBackend(AbstractTensorBackend):
    """Tensor operations, with Triton kernels where one replaces many operations."""

    name = "triton"

    @override
    def form(self, forms: Forms[Result]) -> Callable[..., Result]:
        if not forms.kernels:
            return forms.tensors
        module, _, function = forms.kernels.partition(":")
        launch: Callable[..., Result] = getattr(import_module(module), function)
        return launch

    @override
    def uniform(self, keys: Int[Tensor, "P"], counter: Counter, count: int) -> Float[Tensor, "P {count}"]:
        return kernels.uniform_numbers(keys, counter, count)

    @override
    def write_rows(self, rows: Float[Tensor, "P N D"], slots: Int[Tensor, "P 1"], packed: Float[Tensor, "P D"]) -> None:
        kernels.write_rows(rows, slots, packed)

    @override
    def read_rows(self, rows: Float[Tensor, "P N D"], slots: Int[Tensor, "P B"]) -> Float[Tensor, "P B D"]:
        return kernels.read_rows(rows, slots)

    @override
    def distribution(
        self, floors: Sequence[float], overwrites: Sequence[Overwrite], capacity: int
    ) -> TorchDistribution:
        tree = TritonTree(len(floors), capacity, self.device)
        return TorchDistribution(floors, overwrites, tree, self.device, kernels.placed)
