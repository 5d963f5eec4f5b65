"""What a user installs is whole: the wheel holds the packages with their data, and gives the command."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DATA = (".js", ".css", ".html", ".toml", "py.typed")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    # Built from what git knows, so that files lying about cannot make the wheel whole.
    source = tmp_path_factory.mktemp("source")
    listed = _run("git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", out, source)
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_every_module_and_all_package_data(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    files = [file for package in ("model", "interp", "analyses", "apps") for file in (ROOT / package).rglob("*")]
    needed = {file.relative_to(ROOT).as_posix() for file in files if file.name.endswith((".py", *DATA))}
    assert needed - held == set()
    assert {name.split("/")[0] for name in held if ".dist-info" not in name} == {"model", "interp", "analyses", "apps"}


def test_the_wheel_gives_the_command_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """Dependencies are lent by this environment (tests/test_imports: they are declared); what is ours is the wheel."""
    environment = tmp_path / "venv"
    _run(sys.executable, "-m", "venv", environment)
    python = environment / "bin/python"
    _run(python, "-m", "pip", "install", "--quiet", "--no-deps", wheel)
    lent = _run(sys.executable, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    site = Path(_run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "lent.pth").write_text(f"{lent}\n")  # after the environment's own folder, and without its .pth files
    where = _run(python, "-c", "import model, analyses; print(model.__file__, analyses.__file__)", cwd=tmp_path)
    assert all(path.startswith(str(site)) for path in where.split())
    command = environment / "bin/cutaway"
    assert _run(command, "--version", cwd=tmp_path).strip() == "cutaway 0.1.0"
    assert "attention-patterns" in _run(command, "studies", cwd=tmp_path)
    _run(command, "train", "tiny", "--set", "train.steps=1", "--device", "cpu", cwd=tmp_path)
    assert (tmp_path / "runs/tiny/checkpoints").is_dir()


def _run(*command: object, cwd: Path | None = None) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
