"""The wheel, installed where nothing of this checkout is in sight, has all that the package needs."""

import os
import pathlib
import subprocess
import sys
import venv
import zipfile

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parent.parent
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", folder]
    subprocess.run([*PIP, "wheel", *options, ROOT], check=True)
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def programs(wheel, tmp_path_factory):
    """The programs of an environment with the wheel; dependencies are those of the tests, but not their checkout."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    packages = [path for path in sys.path if path.endswith("-packages")]  # whose own .pth files are then not read
    (site / "dependencies.pth").write_text("\n".join(packages))
    target = ["--python", folder / "bin" / "python"]
    subprocess.run([*PIP, *target, "install", "--no-deps", "--no-index", "--no-compile", wheel], check=True)
    return folder / "bin"


def test_the_wheel_has_the_package_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    inside = {name for name in names if ".dist-info/" not in name}
    files = [path for path in (ROOT / "mder_jax").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert {"mder_jax/py.typed", "mder_jax/__init__.pyi"} <= inside
    assert inside == {path.relative_to(ROOT).as_posix() for path in files}


def test_installed_it_trains_and_predicts(programs, tmp_path):
    rows = np.random.default_rng(0).normal(size=(40, 4)).round(6).astype(str)
    (tmp_path / "t.csv").write_text("\n".join(["v,x,y,z", *map(",".join, rows)]))
    where = "import mder_jax, sys; print(mder_jax.__file__, *sys.path, sep='\\n')"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    options = {"cwd": tmp_path, "env": environment, "check": True, "capture_output": True, "text": True}
    found, *paths = subprocess.run([programs / "python", "-c", where], **options).stdout.splitlines()
    assert pathlib.Path(found).is_relative_to(programs.parent) and str(ROOT) not in paths
    small = ["--members", "2", "--hidden", "4", "--epochs", "2"]
    subprocess.run([programs / "mder", "train", "t.csv", "--targets", "y,z", "--out", "m.mder", *small], **options)
    subprocess.run([programs / "python", "-m", "mder_jax", "predict", "m.mder", "t.csv", "-o", "p.csv"], **options)
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 41
