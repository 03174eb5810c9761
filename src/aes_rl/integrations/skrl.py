"""Samplers for skrl: a memory, and `attach` for SAC, TD3 and DDPG.

    memory = SelectiveMemory(memory_size=100_000, num_envs=env.num_envs, device=env.device)
    agent = SAC(models=models, memory=memory, …)
    attach(agent)

The memory's tensors stay on its device; the sampler runs on the CPU. The agent's update is not changed.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from aes_rl.errors import UserError
from aes_rl.integrations.hooked import AbstractHookedAttachment
from aes_rl.integrations.hosts import require
from aes_rl.integrations.selection import Array as Slots
from aes_rl.integrations.selection import Selection, slots_of
from aes_rl.integrations.watched import Watched
from aes_rl.samplers.predictive import Predictive
from aes_rl.samplers.rule import SamplerConfig

require("skrl", "2.1", "3", "skrl")
from skrl.agents.torch import Agent  # noqa: E402
from skrl.agents.torch.ddpg import DDPG  # noqa: E402
from skrl.agents.torch.sac import SAC  # noqa: E402
from skrl.agents.torch.td3 import TD3  # noqa: E402
from skrl.memories.torch import Memory  # noqa: E402

__all__ = ["Attachment", "SelectiveMemory", "attach"]

Inputs = dict[str, Tensor]
_ERROR_FACTORS = {SAC: 1.0, TD3: 0.5, DDPG: 0.5}
"""The loss per critic is ½δ² in SAC and δ² in TD3 and DDPG."""


class SelectiveMemory(Memory):
    """skrl's memory with a sampler that chooses which slots are drawn and overwritten.

    The slot of a transition is row · num_envs + environment.
    """

    def __init__(
        self,
        *,
        memory_size: int,
        num_envs: int = 1,
        device: str | torch.device | None = None,
        sampler: SamplerConfig | str = Predictive(),  # noqa: B008 (frozen)
        seed: int | None = None,
        total_updates: int | None = None,
    ):
        """Create an empty memory.

        Args:
            memory_size: Number of rows, each with one transition of every environment.
            num_envs: Number of environments.
            device: Device of the tensors.
            sampler: A configuration such as `Adaptive()`, or a sampler's name such as "adaptive".
            seed: Seed of the draws. By default it follows from torch's generator, which skrl's `set_seed` seeds.
            total_updates: Number of updates of the run, for annealed samplers.
        """
        super().__init__(memory_size=memory_size, num_envs=num_envs, device=device)
        self.memory_index: int = 0
        if num_envs > 1 and memory_size == 1:
            raise UserError(
                f"memory_size is 1 for {num_envs} environments; one step must not overwrite the whole memory: use 2 or "
                "more"
            )
        seed = int(torch.randint(2**31, ())) if seed is None else seed
        self.selection = Selection(sampler, memory_size * num_envs, seed, total_updates)

    @override
    def add_samples(self, **tensors: Tensor) -> None:
        """Store one step of all environments."""
        if not tensors:
            raise UserError("no tensors were given; name those to store, such as observations=…")
        known = {name: values for name, values in tensors.items() if name in self.tensors and values is not None}
        for name, values in known.items():
            rows = 1 if values.dim() == 1 else len(values)
            if rows != self.num_envs:
                raise UserError(
                    f"{name} has {rows} rows for {self.num_envs} environments; add one step of all environments at once"
                )
        slots = torch.from_numpy(self.selection.place(self.num_envs)).to(self.device)
        for name, values in known.items():
            view = self.tensors_view[name]
            view[slots] = values.reshape(self.num_envs, *view.shape[1:]).to(view)
        self.memory_index += 1  # the host's own counters
        if self.memory_index == self.memory_size:
            self.filled, self.memory_index = True, 0

    @override
    def sample(
        self, names: list[str], *, batch_size: int, mini_batches: int = 1, sequence_length: int = 1
    ) -> list[list[Tensor]]:
        """Draw a batch. Its importance weights are applied by `attach`, not here."""
        if mini_batches != 1 or sequence_length != 1:
            raise UserError(
                f"mini_batches is {mini_batches} and sequence_length {sequence_length}; a batch is drawn as a whole, "
                "and slots are overwritten one by one: use 1 and 1, and agents without recurrent models"
            )
        pending = self.selection.draw(batch_size)
        self.sampling_indexes = torch.from_numpy(slots_of(pending)).to(self.device)
        found: list[list[Tensor]] = self.sample_by_index(names, indexes=self.sampling_indexes)
        return found

    def discard(self) -> None:
        """Drop a batch that was not drawn for training."""
        self.selection.discard()

    @override
    def reset(self) -> None:
        """Remove all transitions and reset the sampler."""
        super().reset()
        self.selection = self.selection.emptied()

    def state_dict(self) -> dict[str, Any]:
        """The transitions and the sampler, for `torch.save`."""
        tensors = {name: tensor.clone() for name, tensor in self.tensors.items()}
        counters = {"memory_index": self.memory_index, "filled": self.filled}
        return {"tensors": tensors, "selection": self.selection.state_dict(), **counters}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved memory. The next draws are those that the saved one would have made."""
        if set(state["tensors"]) != set(self.tensors):
            raise UserError(
                f"the saved memory holds {sorted(state['tensors'])} and this one {sorted(self.tensors)}; make the "
                "agent, which creates the tensors, before loading"
            )
        self.selection.load_state_dict(state["selection"])
        for name, values in state["tensors"].items():
            self.set_tensor_by_name(name, values)
        self.memory_index, self.filled = state["memory_index"], state["filled"]


class Attachment(AbstractHookedAttachment):
    """An agent of skrl with weighted losses."""

    def __init__(self, agent: Agent, error_factor: float):
        self._agent, self._factor = agent, error_factor
        self._log_probability: Tensor | None = None
        super().__init__(agent, measure_every=None)

    @override
    def install(self) -> None:
        agent = self._agent
        for name, model in self._models():
            factor = 0.0 if name == "actor" else self._factor
            # A parameter of the model itself is the logarithm of a standard deviation: a few numbers, left out.
            watched = Watched(name, model, [], self.needs, factor, skips=(type(model),))
            vars(model)["act"] = partial(self._act, watched, model.act)
            self._undo += [watched.remove, partial(vars(model).pop, "act")]
        if isinstance(agent, SAC) and agent.cfg.learn_entropy:
            self._undo.append(agent.entropy_optimizer.register_step_pre_hook(self._weigh_entropy).remove)

    def _models(self) -> Iterator[tuple[str, nn.Module]]:
        agent = self._agent
        yield "actor", agent.policy
        for critic in (agent.critic,) if isinstance(agent, DDPG) else (agent.critic_1, agent.critic_2):
            yield "critic", critic

    @override
    def selection_of_buffer(self) -> Selection:
        selection: Selection = self._agent.memory.selection
        return selection

    @override
    def device(self) -> torch.device:
        return torch.device(self._agent.device)

    @override
    def differentiate(self, slots: Slots) -> None:
        raise UserError("the captured fraction is not measured in skrl, whose update changes its preprocessors")

    def _act(self, watched: Watched, original: Any, inputs: Inputs, *, role: str = "") -> tuple[Tensor, dict[str, Any]]:
        """Weight the rows of what a model returns, if it is called in its own loss."""
        taken = inputs.get("taken_actions")
        is_of_actor_loss = taken is not None and taken.requires_grad
        is_own = not is_of_actor_loss and (watched.name != "actor" or self._trains_actor())
        pending = self.pending(len(inputs["observations"]), watched) if is_own else None
        if pending is None:
            return original(inputs, role=role)  # type: ignore[no-any-return]
        self.open(watched, pending)
        try:
            values, outputs = original(inputs, role=role)
            log = outputs.get("log_prob")
            if log is not None:
                self._log_probability = log.detach().reshape(-1)
                outputs["log_prob"] = watched.weighted(log)
            return watched.weighted(values), outputs
        finally:
            watched.close()

    def _trains_actor(self) -> bool:
        agent = self._agent
        return not isinstance(agent, TD3) or agent._update_counter % agent.cfg.policy_delay == 0

    def _weigh_entropy(self, *arguments: object) -> None:
        del arguments
        pending, log = self.current(), self._log_probability
        if pending is not None and log is not None:
            agent, self._log_probability = self._agent, None
            surplus = log + agent._target_entropy
            agent.log_entropy_coefficient.grad = -(pending.weights * surplus).mean().reshape(1)


def attach(agent: Agent) -> Attachment:
    """Weight the losses of SAC, TD3 or DDPG and give the sampler the gradient norms and TD errors of every batch.

    `metrics` of the result returns how the selection goes.
    """
    kinds = [kind for kind in _ERROR_FACTORS if isinstance(agent, kind) and type(agent).update is kind.update]
    if not kinds:
        raise TypeError(
            f"{type(agent).__name__} cannot be attached; supported are SAC, TD3, DDPG, and subclasses that do not "
            "override update()"
        )
    if not isinstance(agent.memory, SelectiveMemory):
        raise TypeError(f"the agent's memory is a {type(agent.memory).__name__}; make the agent with a SelectiveMemory")
    if agent.cfg.mixed_precision:
        raise UserError(
            "mixed_precision is on, which scales the losses by a changing factor; use mixed_precision=False"
        )
    return Attachment(agent, _ERROR_FACTORS[kinds[0]])
