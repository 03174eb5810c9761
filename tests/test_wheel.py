"""Catches a wheel that is too large, that lacks data files, or that carries more than the package."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
LARGEST_WHEEL = 3_000_000
"""Bytes."""


def test_the_wheel_is_small_and_complete(tmp_path) -> None:
    code = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size < LARGEST_WHEEL
    packed = {Path(name) for name in zipfile.ZipFile(wheel).namelist()}
    assert {path.parts[0].partition("-")[0] for path in packed} == {"aes_rl"}
    sources = {path.relative_to(ROOT / "src") for path in (ROOT / "src" / "aes_rl").rglob("*") if path.is_file()}
    assert {path for path in sources if path.parent.name != "__pycache__"} <= packed
