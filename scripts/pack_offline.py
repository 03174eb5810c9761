"""Packs what training needs beside torch and NumPy, for a machine without a network.

`python -m scripts.pack_offline DIR` writes DIR/compiler.tar.xz (LLVM, of which Numba needs all, 36 MiB) and
DIR/rest.tar.xz (10 MiB). On the other machine unpack both into one folder and put it, with `src`, on PYTHONPATH:

    mkdir /opt/packages && for part in compiler rest; do xz -dc $part.tar.xz | tar xf - -C /opt/packages; done
    PYTHONPATH=src:/opt/packages python -m aes_rl train …

Rendering is left out: no Pillow, an empty imageio. Needs pip, and strip of binutils if it is there. Takes minutes.
"""

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGES = (
    "mujoco==3.17.0 gymnasium cloudpickle farama-notifications glfw absl-py etils importlib_resources zipp pyopengl "
    "tyro rich filelock docstring_parser shtab typeguard typing_extensions markdown-it-py mdurl pygments "
    "safetensors jaxtyping wadler-lindig psutil threadpoolctl numba llvmlite pytest pluggy iniconfig packaging"
)
"""Requirements of pip, in one text."""
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux2014_x86_64", "any")
NOT_NEEDED = ("mujoco/experimental", "mujoco/include", "numba/tests", "numba/cuda/tests")
COMPILER = "llvmlite"


def main() -> None:
    """Download, reduce and pack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where the two archives are written")
    parser.add_argument("--python", default="3.12", help="version of the other machine's Python")
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        wheels, packages = Path(temporary) / "wheels", Path(temporary) / "packages"
        download(wheels, arguments.python)
        for wheel in wheels.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(packages)
        for name in NOT_NEEDED:
            shutil.rmtree(packages / name, ignore_errors=True)
        (packages / "imageio").mkdir()
        (packages / "imageio" / "__init__.py").touch()
        strip(packages)
        compiler = sorted(packages.glob(f"{COMPILER}*"))
        pack(arguments.directory / "compiler.tar.xz", compiler)
        pack(arguments.directory / "rest.tar.xz", [path for path in packages.iterdir() if path not in compiler])


def download(target: Path, python: str) -> None:
    """Fetch the wheels of the other machine's Python."""
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--python-version", python, *platforms]
    subprocess.run([sys.executable, "-m", "pip", "download", *options, "--dest", target, *PACKAGES.split()], check=True)


def strip(packages: Path) -> None:
    """Remove the symbols of shared libraries, a tenth of their size."""
    if shutil.which("strip"):
        for library in packages.rglob("*.so*"):
            subprocess.run(["strip", "--strip-unneeded", library], check=False, stderr=subprocess.DEVNULL)


def pack(archive: Path, paths: list[Path]) -> None:
    """Write an archive of some files and folders."""
    with tarfile.open(archive, "w:xz") as file:
        for path in paths:
            file.add(path, path.name)
    print(f"{archive}: {archive.stat().st_size / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
