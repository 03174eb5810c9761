"""Copy a run into results/, small enough to commit: python scripts/publish.py RUN results/NAME."""

import csv
import gzip
import io
import shutil
import sys
from pathlib import Path


def main(run: Path, target: Path) -> None:
    """Configuration and manifest as they are, tables with five significant digits."""
    target.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "manifest.json"):
        if (run / name).exists():  # a run that was not finished has no manifest
            shutil.copyfile(run / name, target / name)
    (target / "evaluations.csv").write_text(_shortened(run / "evaluations.csv"))
    # No time in the archive: published twice, it is the same file.
    (target / "metrics.csv.gz").write_bytes(gzip.compress(_shortened(run / "metrics.csv").encode(), mtime=0))
    size = sum(path.stat().st_size for path in target.iterdir())
    print(f"{target}: {size / 1e3:.0f} kB")


def _shortened(table: Path) -> str:
    text = io.StringIO()
    with table.open(newline="") as file:
        csv.writer(text, lineterminator="\n").writerows([_short(value) for value in row] for row in csv.reader(file))
    return text.getvalue()


def _short(value: str) -> str:
    """A fraction with five significant digits; everything else as it is."""
    return f"{float(value):.5g}" if "." in value or "e-" in value else value


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
