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
from aes_rl.report.page import Content, PlainTable, TableOf, markdown, page
from aes_rl.report.reference import read_reference
from aes_rl.report.wording import counted

_console = Console() if Console().is_terminal else Console(width=110)  # the table is wider than the default for logs


@dataclass(frozen=True)
class Report:
    """Write tables, figures and a page for all runs below one directory or several, finished or not."""

    directories: tyro.conf.Positional[tuple[Path, ...]]
    """Directories of studies or single runs. Runs of different directories are kept apart and can be compared."""
    output: Path | None = None
    """Output directory; by default report/ in the directory, or report/ here if several are given."""
    title: str | None = None
    """Title of the page; by default the names of the directories."""
    window: int | None = None
    """Number of evaluations in the trailing mean that smooths curves and measures; by default a fifth of those of the
    shortest run, at most 10."""
    reference: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FILE")] = ()
    """Published curves to add to the figures: CSV files named TASK-vN_AGENT.csv with a column env_step."""
    tuned_seed: int = paper.TUNED_SEED
    """The seed that AES was tuned on; a second table leaves it out."""
    reference_label: str = "published"
    """Name of the published curves in the legend."""


def report(argv: list[str]) -> None:
    """Write the report, and print the table and the path of the page."""
    write_report(tyro.cli(Report, prog="aes-rl report", args=argv))


def write_report(args: Report) -> Path:
    """Write the report and return the path of its page."""
    if args.window is not None:
        checks.count("window", args.window)
    if not args.directories:
        raise UserError("no directory given; name the directories of studies or runs, such as aes-rl report runs/demo")
    if find_spec("matplotlib") is None:
        raise UserError("the report needs matplotlib; pip install 'aes-rl[report]'")
    results = load(*args.directories)
    references = [read_reference(path, args.reference_label) for path in args.reference]
    output = _output(args)
    window = args.window or _window(results)
    rows = analysis.rows(results, window, args.tuned_seed)
    _tell_short(results, window)
    made, untouched = tables.lines(rows), tables.lines(rows, without_tuned_seed=True)
    judged = verdicts.verdicts(results, window)
    together = verdicts.together(results, window)
    from aes_rl.report.sections import sections  # matplotlib is slow to import

    drawn = sections(results, judged, window, references, output / "figures")
    smoothing = _smoothing(window)
    shown = [TableOf("The paper's measures, all seeds", made, f"{smoothing} {_MEASURES}", has_paper=True)]
    if untouched:
        shown.append(TableOf("Without the seed that AES was tuned on", untouched, _UNTOUCHED, has_paper=False))
    comparisons = []
    if judged:
        title = "Lower gradient variance, higher score?"
        comparisons.append(PlainTable(title, verdicts.HEAD, verdicts.in_cells(judged), _JUDGED, grouped=2))
    if together:
        lines = verdicts.together_in_cells(together)
        comparisons.append(
            PlainTable("All tasks together, in pairs", verdicts.TOGETHER_HEAD, lines, _TOGETHER, grouped=1)
        )
    content = Content(_title(args), smoothing, drawn, shown, comparisons)
    path = output / "index.html"
    for name, text in {
        "measures.csv": tables.as_csv(rows),
        "measures.md": tables.as_markdown(made),
        "measures.tex": tables.as_latex(made),
        "verdicts.csv": verdicts.as_csv(judged),
        "together.csv": verdicts.together_as_csv(together),
        "report.md": markdown(results, content),
        path.name: page(results, content),
    }.items():
        write_whole(output / name, text)
    for problem in results.problems:
        _console.print(f"note: {problem}", markup=False, highlight=False)
    _console.print(_terminal(made))
    _console.print(_IN_LINES, highlight=False)
    _console.print(f"{smoothing} --window changes the number.", highlight=False)
    _console.print(f"the page is {path}", markup=False)
    return path


def _output(args: Report) -> Path:
    """Create the output directory and its figures directory. A link inside a run directory is not followed."""
    if args.output is None:
        output = (args.directories[0] if len(args.directories) == 1 else Path()) / "report"
        require_directory(output)
    else:
        output = args.output
        output.mkdir(parents=True, exist_ok=True)
    require_directory(output / "figures")
    return output


def _title(args: Report) -> str:
    names = [directory.resolve().name for directory in args.directories]
    if args.title is None and len(names) > 1:
        return one_line(f"{', '.join(names[:-1])} and {names[-1]}")
    return one_line(args.title or f"Study {names[0]}")


def _window(results: Results) -> int:
    fewest = min(len(curve.steps) for curve in results.curves)
    return min(10, max(1, fewest // 5))


def _smoothing(window: int) -> str:
    if window == 1:
        return "Final scores and measures are of single evaluations."
    return f"Final scores and measures are of means of {window} evaluations."


def _tell_short(results: Results, window: int) -> None:
    """Tell of runs with fewer evaluations than a score is to be the mean of."""
    fewest = min(len(curve.steps) for curve in results.curves)
    if fewest < window:
        results.note(
            f"final scores are means of the last {counted(window, 'evaluation')}, and some runs have {fewest}; use a "
            "smaller --window"
        )


_MEASURES = (
    "Max score: largest over the last 60 % of the steps. Learning speed: max score ÷ the step it was reached at; for "
    "negative scores slower learning gives a higher value, so none is marked as best. Stability: final ÷ max, for "
    "negative scores max ÷ final. Robustness: standard deviation over seeds (ddof 1), mean over the last 20 % of the "
    "steps; – for one seed. With one evaluation there is no speed, stability or maximum. The paper's agents may have "
    "had other settings than these."
)
_IN_LINES = """learning speed: max score per environment step until it was reached
stability: final score ÷ max score; 1 if nothing was lost at the end
max score: largest mean return in the last 60 % of the run
robustness: standard deviation over seeds in the last 20 % of the run; less is better
final: mean return at the end of the run"""
"""What the columns mean, in a line each for the terminal; the page has the definitions."""
_JUDGED = (
    "Each sampler against uniform replay over the seeds that both have. Captured fraction: share of the removable "
    "gradient variance that the sampler removed, mean over the second half of training (lowest to highest seed); by "
    "network: of each network's own gradient. Gradient variance: of all networks together. Higher final score, higher "
    "mean return during training: probability that a run of the sampler scores higher than one of uniform replay (95 % "
    "bootstrap interval), and the p-value of a permutation test; above 0.05 there is no significant "
    "difference. The p-values are not corrected for the number of comparisons: of twenty, one is below 0.05 by chance."
)
_TOGETHER = (
    "Probability that a run of the sampler scores higher than one of the other on the same task, mean over the tasks, "
    "by final score and by mean return during training, with the p-value of a permutation test within tasks. The "
    "p-values are not corrected for the number of comparisons."
)
_UNTOUCHED = "The paper tuned AES on one seed and reported all five; these are the measures over the others."


def _terminal(made: list[tables.Line]) -> Table:
    table = Table("", *tables.COLUMNS.values())
    for before, line in zip([None, *made], made, strict=False):
        if before is None or (before.task, before.agent) != (line.task, line.agent):
            table.add_section()
            table.add_row(Text.assemble((f"{line.task} {line.agent.upper()}", "bold"), f", {line.seeds_in_words}"))
        cells = [f"[bold green]{cell.text}[/]" if cell.is_best else cell.text for cell in line.cells]
        source = f" (from {line.source})" if line.source and not line.sampler.endswith(f"({line.source})") else ""
        table.add_row(Text(f"  {line.sampler}{source}"), *cells)
    return table
