"""Tables and numbers of the results pages, as Markdown. Templates call these functions by name."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from aes_rl import paper
from aes_rl.report.figures import short
from aes_rl.report.load import load
from aes_rl.report.statistics import Interval
from aes_rl.report.tables import markdown_row
from scripts.results_pages import data

HALF_END = {"InvertedPendulum": 150_000, "InvertedDoublePendulum": 150_000}
"""The middle of the shorter runs; 500,000 for the others."""
NAMES = {"uniform": "uniform", "prioritized": "prioritized", "adaptive": "AES", "predictive": "predictive"}


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join([markdown_row(head), markdown_row("---" for _ in head), *map(markdown_row, lines)])


def fraction(value: float) -> str:
    """A captured fraction or a probability."""
    return "–" if math.isnan(value) else f"{value:.2f}".replace("-", "−")


def with_ends(interval: Interval) -> str:
    """A fraction with the ends of its interval."""
    return f"{fraction(interval.value)} ({fraction(interval.low)} to {fraction(interval.high)})"


def score(value: float) -> str:
    """A return: without decimals unless it is small."""
    return f"{value:,.{2 if abs(value) < 20 else 0}f}".replace("-", "−")


def p_value(value: float) -> str:
    """A p-value with two digits, with three below 0.1."""
    return f"{value:.2f}" if value >= 0.095 else f"{value:.3f}" if value >= 0.001 else "< 0.001"


def cell(agent: str, task: str) -> str:
    """A cell of the grid."""
    return f"{agent.upper()}, {task}"


def sure(is_true: bool) -> str:
    """Stops the rendering of a page whose words are no longer true."""
    if not is_true:
        raise SystemExit("a statement of the template is not true of the data; see the traceback with --debug")
    return ""


# What was run


def cells_done() -> int:
    """Complete cells of the grid."""
    return len(data.CELLS)


def missing_cells() -> str:
    """Cells of the paper's grid that are not complete."""
    absent = [(agent, task) for agent in ("sac", "ddpg") for task in paper.TASKS if (agent, task) not in data.CELLS]
    return "; ".join(
        f"{agent.upper()} on {', '.join(task for own, task in absent if own == agent)}" for agent in ("sac", "ddpg")
    )


def setup_table() -> str:
    """The horizon of each cell, here and in the paper."""
    lines = []
    for agent, task in data.CELLS:
        horizon, steps = paper.horizon(task, agent), int(str(data.config(agent, task)["env_steps"]))
        here = short(steps) if steps == horizon else f"**{short(steps)}**"
        lines.append([cell(agent, task), here, short(horizon)])
    return table(["cell", "steps here", "steps in the paper"], lines)


def trained_in_float32() -> list[str]:
    """The cells that were not trained with TF32."""
    return [cell(agent, task) for agent, task in data.CELLS if not data.config(agent, task)["tf32"]]


# Gradient variance


def captured_table() -> str:
    """Captured fraction in the second half of training, of all networks and of the actor."""
    lines = []
    for agent, task in data.CELLS:
        own = [data.verdicts()[agent, task, sampler] for sampler in data.SAMPLERS]
        texts = [f"{fraction(one['captured'])} ({fraction(one['captured_actor'])})" for one in own]
        lines.append([cell(agent, task), *texts])
    return table(["cell", *(NAMES[sampler] for sampler in data.SAMPLERS)], lines)


def captured(agent: str, task: str, sampler: str, name: str = "captured") -> str:
    """One number of the table of verdicts."""
    return fraction(data.verdicts()[agent, task, sampler][name])


def all_lower(agent: str, sampler: str) -> bool:
    """Whether a sampler lowers the variance on every seed of every cell of an agent."""
    return all(data.verdicts()[one]["captured_low"] > 0 for one in data.verdicts() if one[::2] == (agent, sampler))


def captured_range(agent: str) -> str:
    """Lowest and highest captured fraction of a sampler in a cell of an agent."""
    own = [one["captured"] for (name, *_), one in data.verdicts().items() if name == agent]
    return f"{fraction(min(own))} to {fraction(max(own))}"


def below_zero(agent: str, sampler: str) -> str:
    """How many readings of a sampler are below zero, in all cells of an agent and all of training, as a clause."""
    values = [
        value
        for own, task in data.CELLS
        if own == agent
        for points in data.readings(data.grid(), agent, task, sampler).values()
        for _, value in points
        if value == value
    ]
    below = [value for value in values if value < 0]
    lowest = f" (lowest {min(below):.1f})".replace("-", "−") if below else ""
    return f"{len(below):,} of {len(values):,} readings are below zero{lowest}"


def worth(agent: str, task: str, sampler: str) -> str:
    """The uniform batch size with the same mean variance, from the harmonic mean over readings in the second half."""
    middle = HALF_END.get(task, 500_000)
    own = data.metric(agent, task, "effective_batch_size")
    values = [value for (name, _, step), value in own.items() if name == sampler and step > middle and value > 0]
    return f"{1 / np.mean(1 / np.array(values)):,.0f}"


def batch(agent: str) -> str:
    """The batch size of an agent in the grid."""
    task = next(task for own, task in data.CELLS if own == agent)
    options = data.config(agent, task)[agent]
    assert isinstance(options, dict)
    return str(options["batch_size"])


def slots_table(slots: Sequence[int], only: Sequence[tuple[str, str]] = data.CELLS[:2] + data.CELLS[-2:]) -> str:
    """Captured fraction by the number of live slots: mean over seeds, lowest and highest seed."""
    lines = []
    short = {own: load(data.RESULTS / "ten-thousand-slots" / f"{own[1].lower()}-{own[0]}") for own in only}
    for agent, task in only:
        for count in slots:
            source = short[agent, task] if count == 10_000 else data.grid()
            texts = []
            for sampler in data.SAMPLERS:
                values = data.at(data.readings(source, agent, task, sampler), count)
                ends = f" ({fraction(values.min())} to {fraction(values.max())})"
                texts.append(fraction(values.mean()) + ends)
            lines.append([cell(agent, task), f"{count:,}", *texts])
    return table(["cell", "live slots", *(NAMES[sampler] for sampler in data.SAMPLERS)], lines)


def captured_at(agent: str, task: str, sampler: str, step: int, network: str = "") -> str:
    """Mean captured fraction over seeds at a step."""
    return fraction(data.at(data.readings(data.grid(), agent, task, sampler, network), step).mean())


def networks_table(steps: Sequence[int]) -> str:
    """Captured fraction of the critics' and of the actor's gradient at some steps."""
    lines = []
    for agent, task in (("sac", "HalfCheetah"), ("sac", "Hopper"), ("ddpg", "HalfCheetah"), ("ddpg", "Hopper")):
        for sampler in data.SAMPLERS:
            texts = [
                " / ".join(captured_at(agent, task, sampler, step, network) for step in steps)
                for network in ("critic", "actor")
            ]
            lines.append([cell(agent, task), NAMES[sampler], *texts])
    return table(["cell", "sampler", "critics", "actor"], lines)


def is_noisier(task: str) -> bool:
    """Whether every sampler makes the actor's gradient noisier on a task, with every agent."""
    own = [one for (_, name, _), one in data.verdicts().items() if name == task]
    return all(one["captured_actor"] < 0 for one in own)


def oracle_ratio(agent: str, task: str) -> str:
    """Range over steps of the oracle's cost relative to uniform replay's, mean over seeds, for uniform replay."""
    by_step: dict[int, list[float]] = {}
    for (sampler, _, step), value in data.metric(agent, task, "oracle_ratio").items():
        if sampler == "uniform":
            by_step.setdefault(step, []).append(value)
    means = [float(np.mean(values)) for values in by_step.values()]
    return f"{min(means):.2f} to {max(means):.2f}"


# Scores


def improvement(agent: str, sampler: str, other: str, kind: str) -> str:
    """Probability of improvement over all tasks of an agent, with its p-value; kind is final or training."""
    one = data.together()[agent, sampler, other]
    return f"{fraction(one[f'{kind}_improvement'])} (p {p_value(one[f'{kind}_p'])})"


def together_table() -> str:
    """AES and predictive selection against uniform and prioritized replay, all tasks of an agent."""
    lines = []
    for agent in ("sac", "ddpg"):
        for sampler, other in (
            ("adaptive", "uniform"),
            ("adaptive", "prioritized"),
            ("predictive", "uniform"),
            ("predictive", "adaptive"),
        ):
            tasks = data.together()[agent, sampler, other]["tasks"]
            numbers = [improvement(agent, sampler, other, kind) for kind in ("training", "final")]
            name = f"{agent.upper()}, {tasks:.0f} tasks: {NAMES[sampler]} over {NAMES[other]}"
            lines.append([name, *numbers])
    return table(["comparison", "by mean return during training", "by final score"], lines)


def significant_cells(level: float = 0.05) -> str:
    """How many of the comparisons by cell are significant, and where."""
    found = [
        (key, kind)
        for key, one in data.verdicts().items()
        for kind in ("final", "training")
        if one[f"{kind}_p"] <= level
    ]
    where = sorted({cell(agent, task) for (agent, task, _), _ in found})
    return f"{len(found)} of {2 * len(data.verdicts())}" + (f" (all in {' and '.join(where)})" if where else "")


def significant_together(level: float = 0.05) -> str:
    """How many of the comparisons over all tasks are significant, and with which agents."""
    found = [
        (agent, kind)
        for (agent, *_), one in data.together().items()
        for kind in ("final", "training")
        if one[f"{kind}_p"] <= level
    ]
    agents = sorted({agent.upper() for agent, _ in found})
    return f"{len(found)} of {2 * len(data.together())}" + (f" (all with {' and '.join(agents)})" if agents else "")


def differs(sampler: str, level: float = 0.05) -> bool:
    """Whether a sampler differs significantly from uniform replay in some cell."""
    own = [one for (_, _, name), one in data.verdicts().items() if name == sampler]
    return any(one[f"{kind}_p"] <= level for one in own for kind in ("final", "training"))


def leading_tasks(agent: str, sampler: str, count: int) -> list[str]:
    """The tasks with the highest probabilities of improvement by mean return during training."""
    own = {task: one for (name, task, rule), one in data.verdicts().items() if (name, rule) == (agent, sampler)}
    return sorted(sorted(own, key=lambda task: -own[task]["training_improvement"])[:count])


def cells_table() -> str:
    """Final scores by cell, with p-values against uniform replay."""
    lines = []
    for agent, task in data.CELLS:
        own = [data.verdicts()[agent, task, sampler] for sampler in data.SAMPLERS]
        texts = [f"{score(one['final'])} (p {p_value(one['final_p'])}; {p_value(one['training_p'])})" for one in own]
        lines.append([cell(agent, task), score(own[0]["uniform_final"]), *texts])
    return table(["cell", "uniform", *(NAMES[sampler] for sampler in data.SAMPLERS)], lines)


def failed_members(agent: str, task: str, score_below: float) -> str:
    """How many members of a cell end below a score, by the mean of their last ten evaluations."""
    own = [curve for curve in data.grid().curves if (paper.name_of(curve.task), curve.agent) == (task, agent)]
    failed = [curve for curve in own if curve.scores[-10:].mean() < score_below]
    return f"{len(failed)} of {len(own)}"


def spread_of_samplers(agent: str, task: str) -> str:
    """The largest difference between the final scores of a seed under two samplers."""
    return score(max(max(ends) - min(ends) for ends in _ends_by_seed(agent, task)))


def spread_of_seeds(agent: str, task: str) -> str:
    """The difference between the best and the worst seed by its final score, mean over samplers."""
    means = [float(np.mean(ends)) for ends in _ends_by_seed(agent, task)]
    return score(max(means) - min(means))


def _ends_by_seed(agent: str, task: str) -> list[list[float]]:
    by_seed: dict[int, list[float]] = {}
    for curve in data.grid().curves:
        if (paper.name_of(curve.task), curve.agent) == (task, agent):
            by_seed.setdefault(curve.seed, []).append(float(curve.scores[-10:].mean()))
    return list(by_seed.values())


# Repeated runs


REPEATED = (
    ("grid/walker2d-sac", "unfinished/walker2d-sac-980k"),
    ("grid/walker2d-sac", "unfinished/walker2d-sac-250k"),
    ("settings/sac-walker2d-v4-published", "unfinished/sac-walker2d-v4-published"),
)
"""Runs of the same configuration and seeds that are both committed."""


def samplers_that_repeat() -> list[str]:
    """Samplers without a differing evaluation in any of the repeated runs."""
    lines = repeats_table().splitlines()[2:]
    cells = [[part.strip() for part in line.split("|")] for line in lines]
    return sorted({line[2] for line in cells} - {line[2] for line in cells if line[4] != "–"})


def repeats_table() -> str:
    """How many evaluations of repeated runs are equal, by sampler."""
    lines = []
    for names in REPEATED:
        first, second = ({curve.member: curve for curve in load(data.RESULTS / name).curves} for name in names)
        for sampler in dict.fromkeys(member[2] for member in first):
            shared = [member for member in first if member in second and member[2] == sampler]
            same, total, steps = 0, 0, []
            for member in shared:
                one, other = first[member], second[member]
                last = min(one.steps[-1], other.steps[-1])
                ours, theirs = one.scores[one.steps <= last], other.scores[other.steps <= last]
                same += int((ours == theirs).sum())
                total += len(ours)
                steps += one.steps[one.steps <= last][ours != theirs].tolist()
            if shared:
                differs = f"{min(steps):,}" if steps else "–"
                lines.append(
                    [f"`{names[0]}` and `{Path(names[1]).name}`", NAMES[sampler], f"{same:,} of {total:,}", differs]
                )
    return table(["runs", "sampler", "equal evaluations", "first difference at step"], lines)
