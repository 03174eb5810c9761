"""The figures of a report with their captions, in sections."""

from pathlib import Path

from aes_rl.report import analysis
from aes_rl.report import comparison_figures as comparison
from aes_rl.report import training_figures as training
from aes_rl.report.figures import save
from aes_rl.report.load import Results
from aes_rl.report.page import Picture, Section, picture
from aes_rl.report.reference import Reference
from aes_rl.report.verdicts import Verdict
from aes_rl.report.wording import counted


def sections(
    results: Results, judged: list[Verdict], window: int, references: list[Reference], directory: Path
) -> list[Section]:
    """Draw and save all figures."""
    made = []
    for agent in dict.fromkeys(curve.agent for curve in results.curves):
        made.append(
            Section(f"During training, {agent.upper()}", _training(results, agent, window, references, directory))
        )
    made += [
        Section(f"All tasks together, {whole.agent.upper()}", _aggregate(whole, directory))
        for whole in analysis.aggregates(results, window)
    ]
    against = comparison.captured_against_score(judged)
    if against is not None:
        path = save(against, directory, "captured_against_score")
        caption = (
            "One marker per sampler and task: the share of the removable gradient variance that the sampler removed "
            "in the second half of training, and the probability that a run of it scores higher than one of uniform "
            "replay."
        )
        alt = "Captured fraction against probability of improvement"
        made.append(Section("Variance against score", [picture(path, caption, alt)]))
    return made


def _training(results: Results, agent: str, window: int, references: list[Reference], directory: Path) -> list[Picture]:
    name = agent.upper()
    drawn = training.learning_curves(results, agent, window, references)
    shown = [
        picture(
            save(drawn, directory, f"curves_{agent}"),
            _curves_caption(results, agent, window),
            f"Learning curves, {name}",
        )
    ]
    captured = training.captured_fractions(results, agent)
    seeds = _over_seeds(len({run[3] for run in results.captured if run[1] == agent}))
    if captured is not None:
        figure, outliers = captured
        caption = (
            f"Share of the removable gradient variance that each sampler removes: {seeds}. 0 is uniform replay, 1 the "
            "best distribution; below 0 a sampler adds variance."
        )
        if outliers.below:
            share = f"{outliers.below:,} of {counted(outliers.readings, 'reading')} of single seeds"
            caption += f" Not drawn: {share} below the axes, down to {outliers.lowest:.1f}.".replace("-", "−")
        path = save(figure, directory, f"captured_{agent}")
        shown.append(picture(path, caption, f"Captured fraction during training, {name}"))
    variances = training.gradient_variances(results, agent)
    if variances is not None:
        seeds = _over_seeds(len({run[3] for run in results.variance if run[1] == agent}))
        caption = (
            f"Variance of the mean gradient of a batch: {seeds}. Each sampler trains its own agent, and gradients of "
            "these agents differ in size, so the lines do not show which sampler removes more variance."
        )
        shown.append(
            picture(
                save(variances, directory, f"variance_{agent}"), caption, f"Gradient variance during training, {name}"
            )
        )
    return shown


def _curves_caption(results: Results, agent: str, window: int) -> str:
    own = [curve for curve in results.curves if curve.agent == agent]
    is_single = max(len(curve.steps) for curve in own) == 1
    caption = "Mean over seeds of single evaluations."
    if window > 1 and not is_single:
        width = 2 * (window // 2) + 1
        caption = f"Mean over seeds, smoothed by a centred mean over {width} evaluations, over fewer near both ends."
    if max(len(results.seeds_of(curve.key)) for curve in own) > 1:
        caption += f" {'Bars' if is_single else 'Bands'}: ± standard deviation over seeds."
    return caption


def _over_seeds(count: int) -> str:
    return "one seed" if count == 1 else "median and quartiles over seeds"


def _aggregate(whole: analysis.Aggregate, directory: Path) -> list[Picture]:
    name = whole.agent.upper()
    interval = "intervals are 95 % stratified bootstrap" if len(whole.seeds) > 1 else "one seed gives no interval"
    caption = (
        f"{counted(len(whole.tasks), 'task')}, {counted(len(whole.seeds), 'seed')} each. 0 is the mean first "
        f"evaluation on a task, 1 the mean final score of {whole.baseline}; {interval}."
    )
    scores = save(comparison.aggregate_scores(whole), directory, f"aggregate_{whole.agent}")
    profiles = save(comparison.profiles(whole), directory, f"profiles_{whole.agent}")
    return [
        picture(scores, caption, f"Final scores over all tasks, {name}"),
        picture(
            profiles,
            "Left: share of runs with a final score above τ. Right: scores during training, from the first evaluation "
            "of every task on, smoothed as the learning curves.",
            f"Performance profile and sample efficiency, {name}",
        ),
    ]
