"""Figure and tables of docs/speed.md, from benchmarks/results: python -m scripts.speed_figure."""

import json
from pathlib import Path

from aes_rl import paper
from scripts import markers, svg

ROOT = Path(__file__).parent.parent
PAGE, FIGURE = ROOT / "docs" / "speed.md", ROOT / "docs" / "figures" / "training-speed.svg"
BATCHES = (16, 64, 256)
_LEFT, _RIGHT, _TOP, _ROW = 24.0, 410.0, 56, 74
_COLOURS = {"predictive": svg.COLOURS["predictive"], "sb3": "#8a8a8a"}
_PRECISIONS = {"float32": "float32", "tf32": "TF32"}
_NAMES = {"predictive": "aes-rl, predictive selection", "sb3": "Stable-Baselines3"}


def steps_per_second(threads: int) -> dict[tuple[str, int], float]:
    """Environment steps per second by contestant and batch size."""
    rates = _result()["env_steps_per_s"]
    return {(name, size): rates[f"{name}, batch {size}, {threads} threads"] for name in _NAMES for size in BATCHES}


def table() -> list[str]:
    """Speed-ups by batch size: against Stable-Baselines3's default batch of 256, and against the same batch."""
    result = _result()
    rows = ["| our batch | over its default, 256 | over the same batch | its default, 2 threads |", "|---|---|---|---|"]
    for size in BATCHES:
        default = result[f"speedup_vs_sb3_default_batch_{size}"]
        same = result.get(f"speedup_vs_sb3_batch_{size}", default)
        two_threads = result[f"speedup_vs_sb3_default_batch_{size}_2_threads"]
        rows.append(f"| {size} | {default:.1f}× | {same:.1f}× | {two_threads:.1f}× |")
    return rows


def populations() -> list[str]:
    """Speed of whole populations on a GPU; of repeated measurements the last."""
    found = json.loads((ROOT / "benchmarks" / "results" / "populations.json").read_text())["populations"]
    of = {tuple(row[name] for name in ("task", "batch", "members", "precision")): row for row in found}
    rows = [
        "| task | batch | members | precision | population steps/s | agent-steps/s | environments alone |",
        "|---|---|---|---|---|---|---|",
    ]
    for (task, batch, members, precision), row in sorted(of.items()):
        speeds = f"{row['iterations_per_s']:,.0f} | {row['agent_steps_per_s']:,} | {row['environments_us']:,.0f} µs"
        rows.append(f"| {paper.name_of(task)} | {batch} | {members} | {_PRECISIONS[precision]} | {speeds} |")
    return rows


def figure() -> str:
    """Bars of environment steps per second with one thread."""
    rates = steps_per_second(1)
    height = _TOP + _ROW * len(BATCHES) + 8
    elements = [svg.text(_LEFT, 22, "Environment steps per second, one update each, one thread")]
    for number, size in enumerate(BATCHES):
        y = _TOP + _ROW * number
        elements.append(svg.text(_LEFT, y - 4, f"batch {size}", style='font-weight="600"'))
        for place, (name, label) in enumerate(_NAMES.items()):
            rate = rates[name, size]
            middle = y + 12 + 24 * place
            end = _LEFT + rate / max(rates.values()) * (_RIGHT - _LEFT)
            elements.append(svg.bar(_LEFT, middle, end, 18, _COLOURS[name]))
            elements.append(svg.text(end + 6, middle + 4.5, f"{rate:.0f}"))
            if number == len(BATCHES) - 1:
                elements.append(svg.text(end + 40, middle + 4.5, label, colour=_COLOURS[name]))
    return svg.page(480, height, "Training speed of aes-rl and Stable-Baselines3 by batch size", elements)


def with_tables(page: str) -> str:
    """The page with its tables made anew."""
    return markers.filled(markers.filled(page, "training-speed", table()), "populations", populations())


def _result() -> dict:
    return json.loads((ROOT / "benchmarks" / "results" / "train.json").read_text())


if __name__ == "__main__":
    FIGURE.write_text(figure())
    PAGE.write_text(with_tables(PAGE.read_text()))
