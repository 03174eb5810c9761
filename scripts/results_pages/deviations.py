"""Numbers of the page on deviations from published runs, from results/significance_tests.csv and the runs."""

import sys
from itertools import combinations

from scripts.results_pages import data, tables

sys.path.append(str(data.ROOT / "reproduction"))
import compare_with_published as published

_FIRST_STEPS = (0, 10_000, 20_000, 25_000)
"""Where the first interval of a comparison starts: after the random steps of the published runs."""
_END = (900_000, 1_000_000)
PUBLISHED_SETTINGS = (
    ("SAC, HalfCheetah (to 650,000)", "settings/sac-halfcheetah-published", (0, 500_000), (500_000, 650_000)),
    ("SAC, Hopper, MuJoCo 2.0 model", "settings/sac-hopper-mujoco2-published", (0, 500_000), (500_000, 1_000_000)),
    ("SAC, Walker2d, MuJoCo 2.0 model", "settings/sac-walker2d-mujoco2-published", (0, 500_000), (500_000, 1_000_000)),
    ("SAC, Reacher-v4", "settings/sac-reacher-v4-published", (0, 500_000), (500_000, 1_000_000)),
    (
        "SAC, InvertedDoublePendulum (from 100,000)",
        "settings/sac-inverteddoublependulum-published",
        (100_000, 300_000),
        (200_000, 300_000),
    ),
    ("SAC, InvertedPendulum (to 30,000)", "settings/sac-invertedpendulum-published-cpu", (0, 30_000), None),
    ("DDPG, HalfCheetah", "settings/ddpg-halfcheetah-published-action-first", (0, 500_000), (500_000, 1_000_000)),
    ("DDPG, Hopper, MuJoCo 2.0 model", "settings/ddpg-hopper-mujoco2-published", (0, 500_000), (500_000, 1_000_000)),
)
"""Each cell with the settings of the published runs: the folder, and the intervals of its first and second half."""


def _row(first: str, start: int, stop: int, second: str = "published") -> dict[str, str]:
    starts = _FIRST_STEPS if start == 0 else (start,)
    found = [key for key in data.tests() if key[:2] == (first, second) and key[3] == stop and key[2] in starts]
    if len(found) != 1:
        raise SystemExit(f"{len(found)} tests of {first} and {second} from {start} to {stop}; one is needed")
    return data.tests()[found[0]]


def ours(first: str, start: int = _END[0], stop: int = _END[1], second: str = "published") -> str:
    """Mean score of the first side over some steps."""
    return tables.score(float(_row(first, start, stop, second)["mean"]))


def theirs(first: str, start: int = _END[0], stop: int = _END[1], second: str = "published") -> str:
    """Mean score of the second side over some steps."""
    return tables.score(float(_row(first, start, stop, second)["other_mean"]))


def p(first: str, start: int = _END[0], stop: int = _END[1], second: str = "published") -> str:
    """p-value of a comparison."""
    return tables.p_value(float(_row(first, start, stop, second)["p"]))


def inside(first: str, start: int = _END[0], stop: int = _END[1], second: str = "published") -> str:
    """How many seeds of the first side are in the range of the second."""
    row = _row(first, start, stop, second)
    return f"{row['inside']} of {row['seeds']}"


def higher(first: str, start: int, stop: int, second: str = "published") -> str:
    """Probability that a run of the first side scores higher, with its p-value; for several cells, by its name."""
    row = _row(first, start, stop, second)
    return f"{float(row['higher']):.2f} (p {tables.p_value(float(row['p']))})"


def both(first: str, start: int = _END[0], stop: int = _END[1], second: str = "published") -> str:
    """Both means and the p-value."""
    numbers = ours(first, start, stop, second), theirs(first, start, stop, second)
    return f"{numbers[0]} against {numbers[1]}, p {p(first, start, stop, second)}"


def spans_inside(folder: str) -> str:
    """In how many intervals of 100,000 steps, from 100,000 on, the mean of our seeds is in the published range."""
    path = data.RESULTS / folder
    ((task, agent),) = published.uniform_curves(path)
    count, total = published.spans_inside(published.summary(), task, agent, path)
    return f"{count} of {total}" if total else "–"


def published_settings_table() -> str:
    """Every cell with the settings of the published runs."""
    lines = []
    for name, folder, first, second in PUBLISHED_SETTINGS:
        halves = [both(folder, *interval) if interval else "–" for interval in (first, second)]
        lines.append([name, *halves, spans_inside(folder)])
    return tables.table(["cell", "first half", "second half", "means inside"], lines)


def significant_halves() -> str:
    """How many halves with the published settings differ significantly, Reacher left out."""
    rows = [
        _row(folder, *interval)
        for name, folder, *intervals in PUBLISHED_SETTINGS
        if "Reacher" not in name
        for interval in intervals
        if interval
    ]
    return f"{sum(float(row['p']) <= published.LEVEL for row in rows)} of {len(rows)}"


def published_settings_agree() -> bool:
    """Whether no cell with the published settings differs over the last 100,000 steps, or as far as it ran."""
    ends = {"settings/sac-halfcheetah-published": (550_000, 650_000)}
    for name, folder, first, second in PUBLISHED_SETTINGS:
        interval = ends.get(folder, first if second is None else second if "Double" in name else _END)
        if float(_row(folder, *interval)["p"]) <= published.LEVEL:
            return False
    return True


def default_cells_that_differ() -> str:
    """In how many cells the grid's uniform replay differs over its last 100,000 steps."""
    rows = [_row(*_grid_end(agent, task)) for agent, task in data.CELLS]
    return f"{sum(float(row['p']) <= published.LEVEL for row in rows)} of {len(rows)}"


def defaults_table(causes: dict[str, str]) -> str:
    """The grid's uniform replay beside the published runs, with what explains the difference."""
    lines = []
    for agent, task in data.CELLS:
        end = _grid_end(agent, task)
        name = tables.cell(agent, task)
        link = f"[{name}](#{causes[name].split('|')[1]})"
        lines.append([link, ours(*end), theirs(*end), p(*end), causes[name].split("|")[0]])
    return tables.table(["cell", "here", "published", "p", "explained by"], lines)


def _grid_end(agent: str, task: str) -> tuple[str, int, int]:
    is_short = task in tables.HALF_END
    return f"grid/{task.lower()}-{agent}", *((200_000, 300_000) if is_short else _END)


def outside_by_chance(count: int, total: int, least: int) -> str:
    """How often at least so many of `count` seeds are outside the range of `total` others, if nothing differs."""
    ways = happened = 0
    for places in combinations(range(count + total), count):
        others = [place for place in range(count + total) if place not in places]
        ways += 1
        happened += sum(place < others[0] or place > others[-1] for place in places) >= least
    return f"{100 * happened / ways:.0f} %"


def at(folders: list[str], step: int) -> str:
    """Lowest and highest single evaluation at a step, of all seeds in some folders."""
    scores = [
        float(value)
        for folder in folders
        for curves in published.uniform_curves(data.RESULTS / folder).values()
        for value in published.scores_of(curves, step, 0)
    ]
    ends = tables.score(min(scores)), tables.score(max(scores))
    return ends[0] if len(scores) == 1 else f"{ends[0]} to {ends[1]}"
