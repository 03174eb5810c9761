"""Training of a network: parameters and gradients in contiguous blocks of memory, optimiser and target network."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.adam import adam

from aes_rl.backends import has_kernels
from aes_rl.gradients.perceptron import Perceptron


class Learner:
    """The parameters and gradients of a network, each in one block of memory that the optimiser updates at once."""

    def __init__(self, network: nn.Module):
        self.network = network
        parameters = list(network.parameters())
        self.block = block_of(parameters)
        self.block.grad = torch.zeros_like(self.block)
        for parameter, gradient in zip(parameters, _views(self.block.grad, parameters), strict=True):
            parameter.grad = gradient

    def __deepcopy__(self, memo: dict[int, object]) -> "Learner":
        raise TypeError("an agent cannot be deep-copied; create another one and load this one's state_dict into it")

    def tap(self, *shape: int) -> Float[Tensor, "K B"]:
        """A leaf tensor for a pass to be trained, for all K copies of the network. Its values are not used."""
        return torch.empty(shape, dtype=self.block.dtype, device=self.block.device, requires_grad=True)


def differentiate(loss: Float[Tensor, "P"], tap: Float[Tensor, "K B"]) -> Float[Tensor, "K B"] | None:
    """Write the parameter gradients of the tapped pass; return its per-sample norms, if they were requested."""
    (norms,) = torch.autograd.grad(loss, [tap], torch.ones_like(loss), allow_unused=True)
    return norms


def block_of(parameters: Sequence[Tensor]) -> Float[Tensor, "size"]:
    """Move parameters into one block of memory and return it."""
    block = torch.zeros(sum(map(_padded, parameters)), dtype=parameters[0].dtype, device=parameters[0].device)
    for parameter, view in zip(parameters, _views(block, parameters), strict=True):
        parameter.data = view.copy_(parameter)
    return block


def _views(block: Float[Tensor, "size"], parameters: Sequence[Tensor]) -> list[Tensor]:
    parts = torch.split(block, [_padded(parameter) for parameter in parameters])
    return [part[: len(own.flatten())].view_as(own) for part, own in zip(parts, parameters, strict=True)]


def _padded(parameter: Tensor) -> int:
    """Elements reserved for a parameter: a multiple of 64, because matrix kernels need aligned memory."""
    return -(-parameter.numel() // 64) * 64


class Adam:
    """Adam for blocks of parameters, and the updates of their target networks. Its state is part of checkpoints.

    On the CPU it is torch's fused Adam. On NVIDIA GPUs it is one kernel per block, which also updates the target.
    """

    def __init__(
        self,
        blocks: list[Tensor],
        learning_rate: float,
        weight_decay: float = 0.0,
        targets: Mapping[int, Tensor] | None = None,
        target_rate: float = 0.0,
    ):
        """`targets` maps block numbers to their target blocks, which move towards them by `target_rate` per step."""
        self._blocks = blocks
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self._targets, self.target_rate = dict(targets or {}), target_rate
        self._means = [torch.zeros_like(block) for block in blocks]
        self._squares = [torch.zeros_like(block) for block in blocks]
        self._steps = [torch.zeros((), dtype=torch.float32, device=block.device) for block in blocks]

    @torch.no_grad()
    def step(self, numbers: Sequence[int] | None = None) -> None:
        """One Adam step for the blocks with the given numbers, or for all; then update their targets."""
        chosen = range(len(self._blocks)) if numbers is None else numbers
        if has_kernels(self._blocks[0]):
            self._step_by_kernels(chosen)
            return
        blocks = [self._blocks[number] for number in chosen]
        adam(
            blocks,
            [block.grad for block in blocks if block.grad is not None],
            [self._means[number] for number in chosen],
            [self._squares[number] for number in chosen],
            [],
            [self._steps[number] for number in chosen],
            fused=True,
            capturable=self._blocks[0].is_cuda,
            lr=self.learning_rate,
            weight_decay=self.weight_decay,
            beta1=0.9,
            beta2=0.999,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )
        for number in chosen:
            if number in self._targets:
                self._targets[number].lerp_(self._blocks[number], self.target_rate)

    def _step_by_kernels(self, chosen: Sequence[int]) -> None:
        from aes_rl.backends.triton.networks import adam_

        torch._foreach_add_([self._steps[number] for number in chosen], 1)
        for number in chosen:
            adam_(
                self._blocks[number],
                self._means[number],
                self._squares[number],
                self._steps[number],
                self.learning_rate,
                self.weight_decay,
                self._targets.get(number),
                self.target_rate,
            )

    def blocks(self) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]]:
        """For every block: parameters, gradient, mean and mean square of gradients, number of steps, and target."""
        for number, block in enumerate(self._blocks):
            assert block.grad is not None
            moments = self._means[number], self._squares[number], self._steps[number]
            yield block, block.grad, *moments, self._targets.get(number)

    def metric(self, number: int, network: Perceptron) -> list[tuple[Tensor, Tensor]]:
        """1/(√v̂ + ε)² per parameter, layer by layer: in this metric, a gradient's norm is that of its Adam step.

        Before the first step there is no v̂, and the factors are 1.
        """
        corrected = self._squares[number] / (1 - 0.999 ** self._steps[number]).clamp(min=1e-12)
        scale = (corrected.sqrt() + 1e-8).reciprocal().square().where(self._steps[number] > 0, 1.0)
        weights_and_biases = _views(scale, list(network.parameters()))
        return list(zip(weights_and_biases[::2], weights_and_biases[1::2], strict=True))

    def state_dict(self) -> dict[str, Tensor]:
        """Moments and step counts, by block number."""
        parts = {"mean": self._means, "square": self._squares, "step": self._steps}
        return {f"{name}.{number}": part for name, own in parts.items() for number, part in enumerate(own)}


def copy_of(network: nn.Module, twin: nn.Module) -> Float[Tensor, "size"]:
    """Copy the parameters to `twin`, a target network; return its block."""
    twin.load_state_dict(network.state_dict())
    return block_of(list(twin.parameters()))
