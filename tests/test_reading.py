"""How much a reader has to open to follow one training step: what was reached stays reached."""

import importlib.util
from pathlib import Path

PATH = Path(__file__).parents[1] / "scripts" / "trace.py"
MOST_FILES, MOST_LINES, MOST_CHANGES = 28, 4134, 122
"""Reached on 19 November 2026; the goal is in scripts/trace.py, the reasons in docs/decisions/compiled.md.

Two of the files, with 426 lines, step the environments; before, that was in Gymnasium's files, which are not counted.
Three more hold what samplers share: the contract of a rule with its defaults, the forms of the signal, and the two
forecasts of predictive selection. Four lines came since: options that count insertions, the last update's metrics."""


def test_one_step_enters_no_more_files_than_before() -> None:
    spec = importlib.util.spec_from_file_location("trace_script", PATH)
    assert spec is not None
    assert spec.loader is not None
    trace = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(trace)
    files, functions, changes = trace.step_through()
    assert len(functions) > 50, "the step was not followed"
    assert len(files) <= MOST_FILES
    assert sum(map(trace.lines_of, files)) <= MOST_LINES
    assert changes <= MOST_CHANGES
