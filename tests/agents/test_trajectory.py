"""The policy gradient of the theory (S12) against gradients written out by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from aes_rl import Adaptive, FullInformation, Uniform
from aes_rl.agents.trajectory import Items, Trajectory, TrajectoryAgent
from aes_rl.cli import main
from aes_rl.lab.trajectory import Collector, run

BASE = Trajectory(hidden=(4,), horizon=6, batch_size=3, learning_rate=1e-3)
TASKS = {"CartPole-v1": BASE, "Pendulum-v1": replace(BASE, discount=0.9)}


def collected(task, config, count=5, moved=True):
    """An agent, and items of the policy it had before its parameters moved."""
    collector = Collector(task, config, seed=3)
    agent = TrajectoryAgent(config, collector.observation_size, collector.action_size, collector.is_discrete, seed=1)
    items = [item for _ in range(count) for item in collector.collect(agent)[0]]
    if moved:
        generator = torch.Generator().manual_seed(7)
        for parameter in agent.parameters.values():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return agent, Items(*(torch.cat(parts) for parts in zip(*items, strict=True)))


def chances_by_hand(agent, observation):
    names = list(agent.parameters)
    hidden = torch.tanh(observation @ agent.parameters[names[0]].T + agent.parameters[names[1]])
    head = hidden @ agent.parameters[names[2]].T + agent.parameters[names[3]]
    if agent.is_discrete:
        floor = agent.config.policy_floor
        return (1 - floor * agent.action_size) * torch.softmax(head, dim=-1) + floor
    return head


def log_by_hand(agent, observation, action):
    head = chances_by_hand(agent, observation)
    if agent.is_discrete:
        return head[int(action.argmax())].log()
    return torch.distributions.Normal(head, agent.config.standard_deviation).log_prob(action).sum()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("items", ["trajectories", "pairs"])
@pytest.mark.parametrize(("clip", "scale"), [(None, 1.0), (1.05, 1.0), (None, 0.5)])
def test_gradients_are_those_of_autograd(task, items, clip, scale) -> None:
    config = replace(TASKS[task], items=items, ratio_clip=clip, ratio_scale=scale, has_baseline=True)
    agent, stored = collected(task, config)
    found = agent.gradients(stored, baseline=2.0)
    assert len(found) == (5 if items == "trajectories" else int(stored.step_mask.sum()))
    for number in range(len(found)):
        leaves = {name: parameter.clone().requires_grad_() for name, parameter in agent.parameters.items()}
        twin = TrajectoryAgent.__new__(TrajectoryAgent)
        twin.__dict__ |= {**agent.__dict__, "parameters": leaves}
        total, ratio = torch.zeros((), dtype=torch.float64), 1.0
        for step in range(int(stored.step_mask[number].sum())):
            log = log_by_hand(twin, stored.observation[number, step], stored.action[number, step])
            total = total + log
            one = math.exp(scale * (log.item() - stored.log_behaviour[number, step].item()))
            ratio *= one if clip is None else min(one, clip)
        expected = torch.autograd.grad(total * ratio * (stored.discounted_return[number] - 2.0), list(leaves.values()))
        torch.testing.assert_close(found[number], torch.cat([part.flatten() for part in expected]))


@pytest.mark.parametrize("task", TASKS)
def test_ratios_are_one_on_policy(task) -> None:
    agent, stored = collected(task, TASKS[task], moved=False)
    torch.testing.assert_close(agent.ratios(stored), torch.ones(5, dtype=torch.float64))
    moved, stored = collected(task, TASKS[task])
    assert (moved.ratios(stored) - 1).abs().max() > 1e-3


def test_discrete_actions_keep_their_floor() -> None:
    agent, stored = collected("CartPole-v1", replace(BASE, policy_floor=0.2))
    agent.parameters[next(iter(agent.parameters))] *= 100
    assert chances_by_hand(agent, stored.observation).min() >= 0.2
    assert stored.log_behaviour.exp().min() >= 0.2 - 1e-12


def test_returns_are_discounted_from_the_items_first_step() -> None:
    config = replace(BASE, discount=0.5, horizon=4)
    _, whole = collected("CartPole-v1", config, count=1)
    _, pairs = collected("CartPole-v1", replace(config, items="pairs"), count=1)
    assert whole.discounted_return.tolist() == [
        1 + 0.5 + 0.25 + 0.125
    ]  # CartPole pays one a step, and four steps never end it
    assert pairs.discounted_return.tolist() == [1.875, 1.75, 1.5, 1.0]


def test_an_update_is_unbiased(monkeypatch) -> None:
    """With a large batch the step is the mean of all gradients, whatever was drawn, within its sampling error."""
    steps, means = [], []
    ascend, gradients = TrajectoryAgent.ascend, TrajectoryAgent.gradients

    def see_all(self, items, baseline=0.0):
        means.append(gradients(self, items, baseline).mean(dim=0))
        return gradients(self, items, baseline)

    monkeypatch.setattr(TrajectoryAgent, "gradients", see_all)
    monkeypatch.setattr(TrajectoryAgent, "ascend", lambda self, step: (steps.append(step), ascend(self, step)))
    config = replace(BASE, batch_size=100_000)
    list(run(config, "CartPole-v1", Adaptive(nu=1.0, floor=0.1), capacity=8, updates=4, is_static=True))
    for step, mean in zip(steps[1:], means[1:], strict=True):
        assert (step - mean).norm() < 0.1 * mean.norm()


@pytest.mark.parametrize("sampler", [Uniform(), Adaptive(nu="auto", forget_every=5), FullInformation(nu=100.0)])
def test_looks_are_consistent(sampler) -> None:
    looks = list(run(BASE, "CartPole-v1", sampler, capacity=10, updates=20))
    for look in looks:
        assert look.least_cost <= look.cost * (1 + 1e-12)
        captured = (look.uniform_cost - look.cost) / (look.uniform_cost - look.least_cost)
        assert look.captured_fraction == pytest.approx(captured)
    assert np.isfinite([look.cost for look in looks]).all()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"policy_floor": 0.5}, "must stay below 1/2"),
        ({"ratio_scale": 1.5}, "ratio_scale"),
        ({"horizon": 0}, "horizon"),
    ],
)
def test_bad_options_are_named(options, line) -> None:
    with pytest.raises(ValueError, match=line):
        collected("CartPole-v1", replace(BASE, **options))


def test_the_command_writes_figure_numbers_and_page(tmp_path, capsys) -> None:
    words = ["--capacity", "6", "--updates", "12", "--seeds", "0", "--agent.horizon", "5", "--agent.hidden", "4"]
    main(["lab", "trajectory", str(tmp_path), *words])
    assert "static, full information" in capsys.readouterr().out
    assert {"trajectory.csv", "trajectory.svg", "index.html"} <= {path.name for path in tmp_path.iterdir()}
