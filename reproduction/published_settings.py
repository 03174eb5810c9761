"""The settings of the published runs as options of the agents here, and how other settings differ from them.

python reproduction/published_settings.py AGENT    prints them as options of aes-rl train
"""

import json
import sys
from dataclasses import asdict
from typing import Any

import numpy as np

from aes_rl.agents import DDPG, SAC
from aes_rl.training import Training

DEFAULTS: dict[str, SAC | DDPG] = {
    "sac": SAC(warm_up_steps=SAC.longest_warm_up),
    "ddpg": DDPG(warm_up_steps=DDPG.longest_warm_up),
}
"""Of this version, for a million steps."""
PUBLISHED: dict[str, SAC | DDPG] = {
    "sac": SAC(
        critic_first=True,
        learning_rate=1e-3,
        entropy_tuning=False,
        initial_entropy_coefficient=0.2,
        squashing_epsilon=float(np.finfo(np.float32).eps),
        warm_up_steps=10_000,
    ),
    "ddpg": DDPG(
        hidden=(256, 256),
        critic_action_layer=0,
        critic_first=True,
        actor_learning_rate=1e-3,
        critic_weight_decay=0.0,
        target_rate=0.005,
        noise_pull=1.0,
        noise_scale=0.1,
        last_layer_bound=0.0625,
        batch_size=256,
        warm_up_steps=25_000,
    ),
}
"""By agent."""
UNCOUNTED = {"sac": 10_000, "ddpg": 25_000}
"""Random steps before the first update: the published curves do not count them, ours do."""
MODULES = {
    "": "",
    "mujoco2": ", MuJoCo 2.0 model",
    "time_limits": ", no discount at time limits",
}
"""How tasks of the modules here differ from Gymnasium's."""
WORDS = {
    "critic_action_layer": {0: "action beside the observation", 1: "action after the critic's first layer"},
    "critic_first": {
        True: "critic updated before the actor",
        False: "critic and actor updated together",
    },
    "critic_weight_decay": {0.0: "no weight decay"},
    "entropy_tuning": {False: "fixed entropy coefficient"},
    "squashing_epsilon": {0.0: "no squashing epsilon"},
}
"""Values of options that are described in words."""
NAMES = {
    "hidden": "hidden layers",
    "initial_entropy_coefficient": "entropy coefficient",
    "actor_learning_rate": "actor's learning rate",
    "last_layer_bound": "bound of the last layer",
}


def differences(agent: str) -> str:
    """How the published settings differ from the defaults, as text."""
    return _listed(_changes(_options(PUBLISHED[agent]), DEFAULTS[agent]))


def as_options(agent: str) -> str:
    """The published settings of an agent as command-line options."""
    argv = ["--agent", agent]
    for name, value in _changes(_options(PUBLISHED[agent]), type(PUBLISHED[agent])()).items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            argv.append(f"--{agent}.{option}" if value else f"--{agent}.no-{option}")
        else:
            argv += [f"--{agent}.{option}", *map(str, value if isinstance(value, list) else [value])]
    return " ".join(argv)


def described(config: dict[str, Any]) -> str:
    """Settings by their differences from the defaults or the published settings, whichever are fewer, and the task."""
    module, _, task = str(config["task"]).rpartition(":")
    version = task.rpartition("-")[2]
    older = "" if version == "v5" or module == "mujoco2" else f", task {version}"
    return _options_described(config) + older + MODULES.get(module, f", task of {module}")


def _options_described(config: dict[str, Any]) -> str:
    agent = str(config["agent"])
    # Configurations of older runs lack newer options.
    options = _options(DEFAULTS[agent]) | {"warm_up_steps": None} | config[agent]
    if options["warm_up_steps"] is None:
        options["warm_up_steps"] = Training(agent=config["agent"], env_steps=config["env_steps"]).warm_up_steps
    default, published = _changes(options, DEFAULTS[agent]), _changes(options, PUBLISHED[agent])
    if not published:
        return "published settings"
    if len(published) < len(default):
        return f"published settings, but {_listed(published)}"
    return f"our defaults, but {_listed(default)}" if default else "our defaults"


def _changes(options: dict[str, Any], base: SAC | DDPG) -> dict[str, Any]:
    before = _options(base)
    return {name: value for name, value in options.items() if value != before[name]}


def _options(agent: SAC | DDPG) -> dict[str, Any]:
    """As in a configuration file."""
    options: dict[str, Any] = json.loads(json.dumps(asdict(agent)))
    return options


def _listed(changes: dict[str, Any]) -> str:
    return ", ".join(_text(name, value) for name, value in changes.items())


def _text(name: str, value: Any) -> str:
    if not isinstance(value, list) and value in WORDS.get(name, {}):
        return WORDS[name][value]
    if name == "warm_up_steps":
        return f"{value:,} random steps"
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    elif isinstance(value, bool):
        value = ("off", "on")[value]
    elif isinstance(value, float):
        value = f"{value:.3g}"
    return f"{NAMES.get(name, name.replace('_', ' '))} {value}"


if __name__ == "__main__":
    match sys.argv[1:]:
        case [agent] if agent in PUBLISHED:
            print(as_options(agent))
        case _:
            raise SystemExit(__doc__)
