"""The command `aes-rl report`."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from aes_rl import checks, paper
from aes_rl.errors import UserError
from aes_rl.files import require_directory, write_whole
from aes_rl.report import analysis, tables, verdicts
from aes_rl.report.escaping import one_line
from aes_rl.report.load import Results, load
from aes_rl.report.page import Picture, PlainTable, Section, TableOf, markdown, page, picture
from aes_rl.report.reference import Reference, read_reference

_console = Console() if Console().is_terminal else Console(width=110)  # the table is wider than the default for logs


@dataclass(frozen=True)
class Report:
    """Write tables, figures and a page for all runs below a directory, finished or not."""

    directory: tyro.conf.Positional[Path]
    """Directory of a study, or of a single run."""
    output: Path | None = None
    """Output directory; by default report/ in that directory."""
    title: str | None = None
    """Title of the page; by default the name of the directory."""
    window: int = 10
    """Number of evaluations in the trailing mean that smooths curves and measures."""
    reference: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FILE")] = ()
    """Published curves to add to the figures: CSV files named TASK-vN_AGENT.csv with a column env_step."""
    tuned_seed: int = paper.TUNED_SEED
    """The seed that AES was tuned on; a second table leaves it out."""
    reference_label: str = "published"
    """Name of the published curves in the legend."""


def report(argv: list[str]) -> None:
    """Write the report, and print the table and the path of the page."""
    args = tyro.cli(Report, prog="aes-rl report", args=argv)
    write_report(args)


def write_report(args: Report) -> Path:
    """Write the report and return the path of its page."""
    checks.count("window", args.window)
    if find_spec("matplotlib") is None:
        raise UserError("the report needs matplotlib; pip install 'aes-rl[report]'")
    results = load(args.directory)
    references = [read_reference(path, args.reference_label) for path in args.reference]
    output = _output(args)
    rows = analysis.rows(results, args.window, args.tuned_seed)
    fewest = min(len(curve.steps) for curve in results.curves)
    if fewest < args.window:
        results.add_problem(
            f"scores are means of the last {args.window} evaluations and some runs have {fewest}; a smaller --window "
            "averages over fewer evaluations"
        )
    made, untouched = tables.lines(rows), tables.lines(rows, is_untouched=True)
    judged = verdicts.verdicts(results, args.window)
    pooled = verdicts.pooled_comparisons(results, args.window)
    sections = _sections(results, judged, args.window, references, output / "figures")
    write_whole(output / "measures.csv", tables.as_csv(rows))
    write_whole(output / "measures.md", tables.as_markdown(made))
    write_whole(output / "measures.tex", tables.as_latex(made))
    smoothing = f"Scores are means of the last {args.window} evaluations. {_MEASURES}"
    shown = [TableOf("The paper's measures, all seeds", made, smoothing, has_paper=True)]
    if untouched:
        shown.append(TableOf("Without the seed that AES was tuned on", untouched, _UNTOUCHED, has_paper=False))
    write_whole(output / "verdicts.csv", verdicts.as_csv(judged))
    comparisons = []
    if judged:
        lines = verdicts.in_cells(judged)
        comparisons.append(PlainTable("Less variance, higher score?", verdicts.HEAD, lines, _JUDGED))
    write_whole(output / "together.csv", verdicts.pooled_as_csv(pooled))
    if pooled:
        lines = verdicts.pooled_in_cells(pooled)
        comparisons.append(PlainTable("Pairs of samplers over all tasks", verdicts.POOLED_HEAD, lines, _POOLED))
    title = one_line(args.title or f"Study {args.directory.resolve().name}")
    path = output / "index.html"
    write_whole(path, page(title, results, args.window, sections, shown, comparisons))
    write_whole(output / "report.md", markdown(title, results.problems, sections, shown, comparisons))
    for problem in results.problems:
        _console.print(f"note: {problem}", markup=False, highlight=False)
    _console.print(_terminal(made))
    _console.print(f"scores are means of the last {args.window} evaluations (--window)")
    _console.print(f"the page is {path}", markup=False)
    return path


def _output(args: Report) -> Path:
    """Create the output directory and its figures directory. A link inside a run directory is not followed."""
    if args.output is None:
        output = args.directory / "report"
        require_directory(output)
    else:
        output = args.output
        output.mkdir(parents=True, exist_ok=True)
    require_directory(output / "figures")
    return output


_MEASURES = (
    "Max score: largest over the last 60 % of the steps. Learning speed: max score ÷ the step at which it was reached;"
    " for negative scores it rewards slow learning, so no best value is marked. Stability: final ÷ max, for negative "
    "scores max ÷ final. Robustness: standard deviation across seeds (ddof 1), mean over the last 20 % of the steps."
)
_JUDGED = (
    "Each sampler against uniform replay, over the seeds that both have. Captured: fraction of the removable gradient "
    "variance that the sampler removed, mean over the second half of training (lowest to highest seed); by network: "
    "the same for each network's gradient. Higher final score, higher mean return during training: probability that a "
    "run of the sampler beats one of uniform replay, by the mean of the last evaluations and by the mean of all "
    "evaluations (95 % bootstrap interval), and the p-value of a permutation test; above 0.05 the difference is not "
    "significant. The p-values are not corrected for the number of comparisons: of twenty, one is below 0.05 by "
    "chance."
)
_POOLED = (
    "Probability that a run of the sampler beats one of the other on the same task, mean over the tasks, by the mean "
    "of the last evaluations and by the mean of all evaluations, and the p-value of a test that permutes the labels "
    "within each task. The p-values are not corrected for the number of comparisons."
)
_UNTOUCHED = "The paper tuned AES on one seed and reported all five; these are the measures over the others."


def _sections(
    results: Results, judged: list[verdicts.Verdict], window: int, references: list[Reference], directory: Path
) -> list[Section]:
    from aes_rl.report import figures

    sections = []
    for agent in dict.fromkeys(curve.agent for curve in results.curves):
        drawn = figures.learning_curves(results, agent, window, references)
        caption = f"{agent.upper()}: mean ± standard deviation over seeds."
        shown: list[Picture] = [picture(figures.save(drawn, directory, f"curves_{agent}"), caption)]
        captured = figures.captured_fractions(results, agent)
        if captured is not None:
            path = figures.save(captured, directory, f"captured_{agent}")
            caption = (
                "Share of the removable gradient variance that each sampler removes: median and range of the seeds."
            )
            shown.append(picture(path, caption))
        variances = figures.gradient_variances(results, agent)
        if variances is not None:
            path = figures.save(variances, directory, f"variance_{agent}")
            caption = (
                "Variance of a batch's mean gradient: median and range of the seeds. Every sampler trains an agent of "
                "its own, whose gradients differ in size, so the lines do not show which sampler removes more."
            )
            shown.append(picture(path, caption))
        sections.append(Section(f"Learning curves, {agent.upper()}", shown))
    for whole in analysis.aggregates(results, window):
        scores = figures.save(figures.aggregate_scores(whole), directory, f"aggregate_{whole.agent}")
        profiles = figures.save(figures.profiles(whole), directory, f"profiles_{whole.agent}")
        caption = (
            f"{_counted(len(whole.tasks), 'task')}, {_counted(len(whole.seeds), 'seed')} each. 0 is the mean first "
            "evaluation on a task and 1 uniform replay's mean final score; intervals are 95 % stratified bootstrap."
        )
        shown = [picture(scores, caption), picture(profiles, "Performance profile, and sample efficiency.")]
        sections.append(Section(f"All tasks together, {whole.agent.upper()}", shown))
    against = figures.captured_against_score(judged)
    if against is not None:
        path = figures.save(against, directory, "captured_against_score")
        caption = (
            "Every sampler on every task, SAC filled, DDPG hollow: the share of the removable variance that it "
            "removed, and the probability that a run of it has a higher score than one of uniform replay."
        )
        sections.append(Section("Variance against score", [picture(path, caption)]))
    return sections


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _terminal(made: list[tables.Line]) -> Table:
    table = Table("", *tables.COLUMNS.values())
    for before, line in zip([None, *made], made, strict=False):
        if before is None or (before.task, before.agent) != (line.task, line.agent):
            table.add_section()
            table.add_row(
                Text.assemble((f"{line.task} {line.agent.upper()}", "bold"), f", {_counted(line.seeds, 'seed')}")
            )
        cells = [f"[bold green]{cell.text}[/]" if cell.is_best else cell.text for cell in line.cells]
        table.add_row(Text(f"  {line.sampler}"), *cells)
    return table
