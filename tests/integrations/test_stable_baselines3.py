"""Stable-Baselines3's own training step under attachment, against losses weighted by hand."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import DDPG, PPO, SAC, TD3
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from aes_rl import Adaptive, FullInformation, Predictive, Prioritized, Uniform
from aes_rl.errors import UserError
from aes_rl.gradients import exact
from aes_rl.integrations.selection import Selection
from aes_rl.integrations.stable_baselines3 import SelectiveDictReplayBuffer, SelectiveReplayBuffer, attach
from tests.integrations.copies import copied

ALGORITHMS = {"SAC": SAC, "TD3": TD3, "DDPG": DDPG}
SAMPLERS = {
    "uniform": Uniform(),
    "prioritized": Prioritized(weight_exponent_end=None),
    "adaptive": Adaptive(nu=1.0, floor=0.3),
    "predictive": Predictive(refresh_every=5),
}
BATCH = 32


def make(algorithm, sampler, env="Pendulum-v1", buffer=SelectiveReplayBuffer, **options):
    own = {"sampler": SAMPLERS[sampler]} if buffer in (SelectiveReplayBuffer, SelectiveDictReplayBuffer) else {}
    policy = "MultiInputPolicy" if buffer is SelectiveDictReplayBuffer else "MlpPolicy"
    return ALGORITHMS[algorithm](
        policy,
        env,
        buffer_size=options.pop("buffer_size", 300),
        learning_starts=options.pop("learning_starts", 100),
        batch_size=BATCH,
        policy_kwargs={"net_arch": [16, 16]},
        replay_buffer_class=buffer,
        replay_buffer_kwargs=own,
        seed=0,
        device="cpu",
        **options,
    )


def trained(algorithm, sampler, steps=160, **options):
    """A model whose masses differ by now, so that the weights do."""
    model = make(algorithm, sampler, **options)
    attachment = attach(model)
    model.learn(steps)
    return model, attachment


class Watch:
    """What one call of `train` did: its batch, weights, and the gradients that its optimisers took."""

    def __init__(self, model):
        self.gradients = {}
        sample = model.replay_buffer.sample

        def remember(*arguments, **options):
            self.batch = sample(*arguments, **options)
            pending = model.replay_buffer.selection.pending
            self.weights = pending.weights.clone()
            self.pending = pending
            return self.batch

        model.replay_buffer.sample = remember
        for name in ("critic", "actor"):
            network = getattr(model, name)
            network.optimizer.register_step_pre_hook(
                lambda *_, name=name, network=network: self.gradients.update(
                    {name: [p.grad.clone() for p in network.parameters()]}
                )
            )


def weighted_by_hand(model, policy, batch, weights):
    """The losses of one update with explicit weights; `policy` is a copy from before it, and is updated."""
    actor, critic, column = policy.actor, policy.critic, weights.unsqueeze(1)
    found = {}
    if isinstance(model, SAC):
        actions, log = actor.action_log_prob(batch.observations)
        log = log.reshape(-1, 1)
        temperature = float(model.log_ent_coef.detach().exp())
        found["temperature"] = -(column * (log + model.target_entropy)).mean().item()
        with torch.no_grad():
            following, next_log = actor.action_log_prob(batch.next_observations)
            value = torch.cat(policy.critic_target(batch.next_observations, following), dim=1).min(1, keepdim=True)[0]
            value = value - temperature * next_log.reshape(-1, 1)
    else:
        with torch.no_grad():
            noise = batch.actions.clone().normal_(0, model.target_policy_noise)
            noise = noise.clamp(-model.target_noise_clip, model.target_noise_clip)
            following = (policy.actor_target(batch.next_observations) + noise).clamp(-1, 1)
            value = torch.cat(policy.critic_target(batch.next_observations, following), dim=1).min(1, keepdim=True)[0]
    target = batch.rewards + (1 - batch.dones) * model.gamma * value
    half = 0.5 if isinstance(model, SAC) else 1.0
    estimates = critic(batch.observations, batch.actions)
    loss = half * sum((column * (estimate - target).square()).mean() for estimate in estimates)
    critic.optimizer.zero_grad()
    loss.backward()
    found["critic"] = [p.grad.clone() for p in critic.parameters()]
    found["error"] = torch.stack([(estimate - target).abs() for estimate in estimates]).mean(dim=0).squeeze(1).detach()
    found["critic_norm"] = exact.squared_norms(
        lambda p, o, a, y: half * sum((q - y).square().squeeze() for q in _q(critic, p, o, a)),
        dict(critic.named_parameters()), batch.observations, batch.actions, target,
    )  # fmt: skip
    critic.optimizer.step()
    if isinstance(model, SAC):
        values = torch.cat(critic(batch.observations, actions), dim=1).min(1, keepdim=True)[0]
        terms = temperature * log - values
    else:
        terms = -critic.q1_forward(batch.observations, actor(batch.observations))
    parameters = list(actor.parameters())
    single = [torch.autograd.grad(term, parameters, retain_graph=True) for term in terms.squeeze(1)]
    found["actor_norm"] = torch.stack([sum(part.square().sum() for part in own) for own in single])
    found["actor"] = torch.autograd.grad((column * terms).mean(), parameters)
    return found


def _q(critic, parameters, observation, action):
    return torch.func.functional_call(critic, parameters, (observation.unsqueeze(0), action.unsqueeze(0)))


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_gradients_are_those_of_weighted_losses(algorithm, sampler) -> None:
    options = {"policy_delay": 1} if algorithm == "TD3" else {}
    model, attachment = trained(algorithm, sampler, **options)
    policy = copy_of(model)
    before = None if algorithm != "SAC" else model.log_ent_coef.detach().clone()
    watch = Watch(model)
    torch.manual_seed(5)
    model.train(1, BATCH)
    found = watch.gradients
    if algorithm == "SAC":
        found["temperature"] = model.log_ent_coef.grad.item()
        model.log_ent_coef.data.copy_(before)
    torch.manual_seed(5)
    expected = weighted_by_hand(model, policy, watch.batch, watch.weights)
    for name in ("critic", "actor"):
        for own, other in zip(found[name], expected[name], strict=True):
            assert (own - other).norm() <= 1e-6 * other.norm() + 1e-12, name
    if algorithm == "SAC":
        assert found["temperature"] == pytest.approx(expected["temperature"], rel=1e-5)
    model.replay_buffer.selection.settle()
    if sampler in ("adaptive", "predictive"):
        torch.testing.assert_close(watch.pending.gradient_norm["critic"], expected["critic_norm"], rtol=1e-4, atol=1e-7)
        torch.testing.assert_close(watch.pending.gradient_norm["actor"], expected["actor_norm"], rtol=1e-3, atol=1e-9)
        assert set(watch.pending.gradient_norm) == {"actor", "critic"}
    if sampler == "prioritized":
        torch.testing.assert_close(
            torch.stack(watch.pending.td_errors).mean(dim=0), expected["error"], rtol=1e-4, atol=1e-6
        )
    if sampler in ("adaptive", "prioritized"):
        assert watch.weights.std() > 1e-3
    attachment.detach()


def copy_of(model):
    """The policy with its optimisers, without our hooks: they belong to the original's modules."""
    policy = copied(model.policy)
    for network in (policy.actor, policy.critic):
        network.__dict__.pop("action_log_prob", None)
        for module in network.modules():
            module._forward_hooks.clear()
            module._forward_pre_hooks.clear()
        network.optimizer._optimizer_step_pre_hooks.clear()
    return policy


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_detached_the_library_is_itself(algorithm) -> None:
    """Parameter for parameter, on the same batches: a model attached and detached again, and one that never was."""
    models = []
    for is_attached in (True, False):
        model = make(algorithm, "uniform")
        if is_attached:
            attach(model).detach()
        model.learn(150)
        models.append(model)
    for own, other in zip(models[0].policy.parameters(), models[1].policy.parameters(), strict=True):
        assert torch.equal(own, other)


def test_weights_of_one_change_nothing() -> None:
    """Attached with uniform draws, and not attached at all: the same parameters."""
    models = []
    for is_attached in (True, False):
        model = make("SAC", "uniform")
        if is_attached:
            attach(model)
        model.learn(150)
        models.append(model)
    for own, other in zip(models[0].policy.parameters(), models[1].policy.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("sampler", ["adaptive", "prioritized"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_saved_and_loaded_it_goes_on_with_the_same_draws(algorithm, sampler, tmp_path) -> None:
    """The buffer is overwritten at random by then."""
    model, _ = trained(algorithm, sampler, steps=400)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    again = ALGORITHMS[algorithm].load(tmp_path / "model", env=gym.make("Pendulum-v1"), device="cpu")
    again.load_replay_buffer(tmp_path / "buffer")
    attach(again)
    draws = []
    for one in (model, again):
        watch = Watch(one)
        torch.manual_seed(1)
        one._setup_learn(10, None)
        slots = []
        for _ in range(5):
            one.train(1, BATCH)
            slots.append(watch.pending.draw.slots[0].tolist())
        draws.append((slots, [p.detach().clone() for p in one.policy.parameters()]))
    assert draws[0][0] == draws[1][0]
    for own, other in zip(draws[0][1], draws[1][1], strict=True):
        torch.testing.assert_close(own, other)


@pytest.mark.parametrize("environments", [1, 3])
def test_a_buffer_holds_what_its_host_was_shown(environments) -> None:
    """Uniform with several environments against the library's own buffer: the same rows at the same places."""
    spaces = gym.make("Pendulum-v1").observation_space, gym.make("Pendulum-v1").action_space
    own = SelectiveReplayBuffer(12, *spaces, device="cpu", n_envs=environments, sampler=Uniform(), seed=0)
    host = ReplayBuffer(12, *spaces, device="cpu", n_envs=environments)
    generator = np.random.default_rng(0)
    for step in range(17):
        row = [generator.normal(size=(environments, size)).astype(np.float32) for size in (3, 3, 1)]
        reward, done = generator.normal(size=environments), generator.random(environments) < 0.3
        infos = [{"TimeLimit.truncated": bool(step % 4 == 0)}] * environments
        for buffer in (own, host):
            buffer.add(row[0], row[1], row[2], reward, done, infos)
    for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
        assert np.array_equal(getattr(own, name), getattr(host, name)), name
    assert (own.pos, own.full, own.size()) == (host.pos, host.full, host.size())


class Split(gym.ObservationWrapper):
    """Pendulum with a Dict observation."""

    def __init__(self, env):
        super().__init__(env)
        space = env.observation_space
        parts = {"angle": space.low[:2], "speed": space.low[2:]}
        self.observation_space = gym.spaces.Dict({k: gym.spaces.Box(v, -v, dtype=np.float32) for k, v in parts.items()})

    def observation(self, observation):
        return {"angle": observation[:2], "speed": observation[2:]}


def test_dict_observations_several_environments_and_normalisation() -> None:
    env = VecNormalize(DummyVecEnv([lambda: Split(gym.make("Pendulum-v1")) for _ in range(2)]), norm_obs=True)
    model, _ = trained("SAC", "adaptive", env=env, buffer=SelectiveDictReplayBuffer, steps=300)
    selection = model.replay_buffer.selection
    probabilities = selection.sampler.probabilities()[0]
    assert len(selection) == 300
    assert probabilities.std() > 0
    batch = model.replay_buffer.sample(64, env=env)
    model.replay_buffer.discard()
    assert batch.observations["angle"].abs().max() <= env.clip_obs
    raw = model.replay_buffer.sample(64)
    model.replay_buffer.discard()
    assert not torch.equal(batch.observations["speed"], raw.observations["speed"])


@pytest.mark.parametrize(
    ("environments", "size", "is_fine"), [(4, 7, False), (4, 8, True), (2, 2, False), (3, 6, True), (1, 1, True)]
)
def test_a_buffer_too_small_for_its_environments_is_refused_at_once(environments, size, is_fine) -> None:
    """It failed at the first step that was stored; the host rounds the size down to whole rows."""
    env = DummyVecEnv([lambda: gym.make("Pendulum-v1") for _ in range(environments)])
    if not is_fine:
        line = f"buffer_size is {size} for {environments} environments; .* at least {2 * environments}"
        with pytest.raises(UserError, match=line):
            make("SAC", "uniform", env=env, buffer_size=size)
        return
    make("SAC", "uniform", env=env, buffer_size=size, learning_starts=8).learn(24)


def test_observations_of_another_kind_than_the_buffer_are_named() -> None:
    """The host fails inside NumPy, where nothing tells of the other class."""

    class Mine(SelectiveReplayBuffer):
        """A class of one's own is not exchanged for another one."""

    options = {"buffer_size": 100, "replay_buffer_kwargs": {"sampler": Uniform()}, "device": "cpu"}
    env = DummyVecEnv([lambda: Split(gym.make("Pendulum-v1"))])
    with pytest.raises(UserError, match=r"is a Dict, which a Mine .* replay_buffer_class=SelectiveReplayBuffer"):
        SAC("MultiInputPolicy", env, replay_buffer_class=Mine, **options)
    with pytest.raises(UserError, match=r"is a Box, .* replay_buffer_class=SelectiveReplayBuffer"):
        SAC("MlpPolicy", "Pendulum-v1", replay_buffer_class=SelectiveDictReplayBuffer, **options)


def test_a_model_that_was_not_attached_says_so() -> None:
    model = make("SAC", "adaptive")
    with pytest.raises(RuntimeError, match="got no feedback on the last batch: attach it"):
        model.learn(110)


@pytest.mark.parametrize(
    ("make_model", "error", "line"),
    [
        (lambda: PPO("MlpPolicy", "Pendulum-v1", device="cpu"), TypeError, "PPO cannot be attached"),
        (lambda: make("SAC", "uniform", buffer=ReplayBuffer), TypeError, "replay_buffer_class=SelectiveReplayBuffer"),
        (lambda: make("SAC", "adaptive", use_sde=True), UserError, "use_sde is on"),
        (lambda: make("SAC", "adaptive", n_steps=3), UserError, "n_steps is 3 in the model .* replay_buffer_kwargs="),
        (lambda: make("SAC", "adaptive", optimize_memory_usage=True), UserError, "optimize_memory_usage"),
    ],
)
@pytest.mark.filterwarnings("ignore:`n_steps=3` is ignored")
def test_what_is_not_supported_is_refused(make_model, error, line) -> None:
    with pytest.raises(error, match=line):
        attach(make_model())


def test_hindsight_is_refused() -> None:
    model = make("SAC", "uniform", buffer=ReplayBuffer)
    model.replay_buffer = HerReplayBuffer.__new__(HerReplayBuffer)
    with pytest.raises(TypeError, match="hindsight replay"):
        attach(model)
    with pytest.raises(UserError, match="hindsight replay"):
        SelectiveDictReplayBuffer(300, model.observation_space, model.action_space, sampler=Uniform(), n_sampled_goal=4)


def test_a_buffer_of_another_kind_loaded_later_is_named(tmp_path) -> None:
    plain = make("SAC", "uniform", buffer=ReplayBuffer)
    plain.save_replay_buffer(tmp_path / "buffer")
    model, _ = trained("SAC", "adaptive")
    model.load_replay_buffer(tmp_path / "buffer")
    with pytest.raises(TypeError, match="the model's replay buffer is a ReplayBuffer"):
        model.learn(140, reset_num_timesteps=False)


def test_a_class_of_ones_own_is_attached_unless_it_trains_otherwise() -> None:
    class Mine(SAC):
        """With something of its own."""

    class Other(SAC):
        def train(self, gradient_steps: int, batch_size: int = 64) -> None:
            super().train(gradient_steps, batch_size)

    options = {"replay_buffer_class": SelectiveReplayBuffer, "replay_buffer_kwargs": {"sampler": Adaptive()}}
    attach(Mine("MlpPolicy", "Pendulum-v1", device="cpu", **options))
    with pytest.raises(TypeError, match="Other cannot be attached"):
        attach(Other("MlpPolicy", "Pendulum-v1", device="cpu", **options))


@pytest.mark.parametrize(
    ("sampler", "line"),
    [(Adaptive(networks=("actr",)), "the networks are named actor and critic"), (FullInformation(), "all slots")],
)
def test_a_sampler_that_would_learn_nothing_is_refused(sampler, line) -> None:
    with pytest.raises(ValueError, match=line):
        Selection(sampler, 100, 0)


def test_separate_draws_are_refused() -> None:
    with pytest.raises(UserError, match="networks='balanced'"):
        Selection(Predictive(networks="separate"), 100, 0)


@pytest.mark.parametrize("networks", [("actor",), ("critic",), ("actor", "critic"), "balanced"])
def test_a_delayed_actor_and_a_chosen_network(networks) -> None:
    """TD3 trains its actor every other update; a batch without the chosen norm is an update without a report."""
    model = make("TD3", "adaptive")
    model.replay_buffer.selection.__init__(Adaptive(nu=1.0, networks=networks), 300, 0)
    attach(model)
    model.learn(140)
    selection = model.replay_buffer.selection
    selection.settle()
    assert selection.updates == selection.draws == 40
    assert selection.sampler.probabilities().std() > 0


def test_attaching_twice_is_refused() -> None:
    model = make("SAC", "adaptive")
    attachment = attach(model)
    with pytest.raises(ValueError, match="the critic is already attached"):
        attach(model)
    attachment.detach()
    attach(model)


def test_an_emptied_buffer_knows_nothing() -> None:
    model, _ = trained("SAC", "adaptive")
    model.replay_buffer.reset()
    assert model.replay_buffer.size() == len(model.replay_buffer.selection) == 0
