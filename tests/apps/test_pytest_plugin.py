"""The pytest plugin: verdicts as test outcomes, and nothing at all where no run is named."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import analyses.hypotheses
from tests import planted
from tests.analyses.claim_texts import PATH, claim, write
from tests.planted_run import planted_lab

pytest_plugins = ["pytester"]

assert analyses.hypotheses  # loaded once here, or every session within a test would load it again

ROOT = Path(__file__).parents[2]
FEW = {"sequences": 16}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose last checkpoint is the planted circuit."""
    return planted_lab(tmp_path_factory.mktemp("runs") / "planted", planted.induction_model(n_ctx=24)).path


def session_of(pytester: pytest.Pytester, *arguments: object) -> pytest.RunResult:
    """As installed: the plugin by its entry point or, where that is not registered, by name."""
    return pytester.runpytest_inprocess(
        "-p", "no:cutaway", "-p", "apps.pytest_plugin", "-p", "no:cacheprovider", "-v", *map(str, arguments)
    )


def test_a_verdict_is_an_outcome(pytester: pytest.Pytester, run: Path):
    write(
        pytester.path / "claims/some.toml",
        claim(name="holds", **FEW),
        claim(name="fails", **FEW, effect="harm <= 0.05"),
        claim(name="should-fail", **FEW, effect="harm <= 0.05", expected="refuted"),
        claim(name="should-not-hold", **FEW, expected="refuted"),
        claim(name="nobody", **FEW, ablate="induction >= 0.4 and layer = 0"),
    )
    found = session_of(pytester, "claims", "--cutaway-run", run, "-rs")
    found.assert_outcomes(passed=2, failed=2, skipped=1)
    found.stdout.fnmatch_lines_random(
        [
            "*some.toml::holds?8? PASSED*",
            "*some.toml::should-fail?8? PASSED*",
            "fails is refuted at planted@8: with L1H2:mean ablated, the loss * nats; claimed was `harm <= 0.05` (p <=*",
            "should-not-hold is supported at planted@8: *",
            "*SKIPPED*nobody is undecided at planted@8: no head passes*",
        ]
    )
    found.stdout.fnmatch_lines(["*Holm over 5 claims*"])
    assert "Traceback" not in found.stdout.str()


def test_a_wrong_claim_fails_alone_and_in_one_sentence(pytester: pytest.Pytester, run: Path):
    write(pytester.path / "claims/right.toml", claim(name="holds", **FEW), claim(name="path", **FEW | PATH))
    write(pytester.path / "claims/wrong.toml", claim(name="no-head", **FEW, ablate="L1H9"))
    found = session_of(pytester, "claims", "--cutaway-run", run)
    found.assert_outcomes(passed=2, failed=1)
    found.stdout.fnmatch_lines(['*wrong.toml, claim "no-head": no L1H9: layer 1 has 4 heads*'])
    assert "Traceback" not in found.stdout.str()


def test_a_file_that_cannot_be_read_is_an_error_of_that_file(pytester: pytest.Pytester, run: Path):
    write(pytester.path / "claims/right.toml", claim(**FEW))
    (pytester.path / "claims/wrong.toml").write_text("[[claims]]\nname = 'x'\n")
    found = session_of(pytester, "claims", "--cutaway-run", run, "--continue-on-collection-errors")
    found.assert_outcomes(passed=1, errors=1)
    found.stdout.fnmatch_lines(['*has "claims", and claims files hold*Did you mean "claim"*'])


def test_each_checkpoint_is_a_test_of_its_own(pytester: pytest.Pytester, run: Path):
    write(pytester.path / "claims/some.toml", claim(name="holds", **FEW))
    found = session_of(pytester, "claims", "--cutaway-run", run, "--cutaway-step", "all")
    found.assert_outcomes(passed=1, skipped=1)
    found.stdout.fnmatch_lines(["*::holds?0? SKIPPED*", "*::holds?8? PASSED*"])


def test_only_claims_that_run_are_tested_together(pytester: pytest.Pytester, run: Path):
    file = write(pytester.path / "claims/some.toml", *[claim(name=name, **FEW) for name in ("one", "two", "three")])
    for chosen in (["claims", "-k", "one"], [f"{file}::one[8]"]):
        found = session_of(pytester, *chosen, "--cutaway-run", run)
        found.assert_outcomes(passed=1, deselected=2 if "-k" in chosen else 0)
    records = list(run.glob("claims/some/one/*.json"))
    assert len(records) == 1
    assert '"n_together": 1' in records[0].read_text()


def test_other_toml_files_are_left_alone(pytester: pytest.Pytester, run: Path):
    write(pytester.path / "claims.toml", claim(**FEW))
    (pytester.path / "pyproject.toml").write_text('[project]\nname = "x"\n')
    session_of(pytester, "--cutaway-run", run).assert_outcomes(passed=1)


def test_without_a_run_nothing_is_collected(pytester: pytest.Pytester):
    write(pytester.path / "claims/some.toml", claim())
    found = session_of(pytester, "claims")
    found.assert_outcomes()
    assert found.ret == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder for the path in which the plugin is installed as pyproject.toml declares it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = "".join(f"{name} = {where}\n" for name, where in project["entry-points"]["pytest11"].items())
    record = tmp_path / "site" / "cutaway-0.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: cutaway\nVersion: 0\n")
    (record / "entry_points.txt").write_text(f"[pytest11]\n{lines}")
    return record.parent


def in_a_process(folder: Path, *arguments: object, path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:jaxtyping", *map(str, arguments)]
    environment = {"PYTHONPATH": f"{path}:{ROOT}", "PATH": "", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_suite_of_others_never_notices(tmp_path: Path, installed: Path):
    """No torch, none of our packages but the plugin, no line of output."""
    write(tmp_path / "theirs/claims.toml", claim())
    (tmp_path / "theirs/test_theirs.py").write_text(
        "import sys\n"
        "def test_nothing_came_along(pytestconfig):\n"
        "    ours = {name.split('.')[0] for name in sys.modules} & {'torch', 'model', 'interp', 'analyses', 'typer'}\n"
        "    assert not ours\n"
        "    assert pytestconfig.pluginmanager.hasplugin('cutaway') is (pytestconfig.getoption('tbstyle') == 'short')\n"
    )
    without = in_a_process(tmp_path / "theirs", "-q", "-p", "no:cutaway", path=installed)
    beside = in_a_process(tmp_path / "theirs", "-q", "--tb=short", path=installed)
    assert without.returncode == beside.returncode == 0, without.stdout + beside.stdout + beside.stderr
    said = [[line.partition(" in ")[0] for line in each.stdout.splitlines()] for each in (without, beside)]
    assert said[0] == said[1]


@pytest.mark.slow
def test_once_installed_it_is_there_without_being_asked_for(tmp_path: Path, installed: Path, run: Path):
    write(tmp_path / "theirs/claims.toml", claim(**FEW))
    found = in_a_process(tmp_path / "theirs", "-v", "--cutaway-run", run, path=installed)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "claims.toml::carry[8] PASSED" in found.stdout
