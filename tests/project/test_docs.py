"""The examples run offline, and files that pages name exist. Blocks of pages run in `make dist` (`try_pages`)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from toolwire._transport.find_cli import VARIABLE, bundled_cli
from toolwire.testing import ClaudeEnvironment, ScriptedModel

ROOT = Path(__file__).parents[2]
NO_CONVERSATIONS = {"offline.py", "paid_api.py", *(each.name for each in (ROOT / "examples").glob("_*.py"))}
EXAMPLES = sorted(each for each in (ROOT / "examples").glob("*.py") if each.name not in NO_CONVERSATIONS)

pytestmark = pytest.mark.real


def run_program(program, tmp_path):
    """Run a program in an environment that has nothing but the address of the scripted model."""
    with ScriptedModel([]) as model, ClaudeEnvironment(model) as env:
        own = {VARIABLE: bundled_cli(), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            program,
            env={**env.env, **own},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        model.assert_finished()
    return done.stdout


def test_the_test_of_the_page_on_testing_runs_with_the_real_cli(tmp_path):
    """The page's test file has under 25 lines, and passes with the real CLI if only its fixture is replaced."""
    page = (ROOT / "docs" / "testing.md").read_text()
    (code,) = re.findall(r"```python\n# test_agent.py\n(.*?)```", page, re.DOTALL)
    assert len(code.strip().splitlines()) < 25
    file = tmp_path / "test_agent.py"
    file.write_text(code.replace("scripted_cli", "scripted_model"))
    program = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    assert "2 passed" in run_program(program, tmp_path)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_example_runs_offline(example, tmp_path):
    """Each example runs as it is, without a key or a network, and ends with an answer of Claude."""
    env = {"PATH": os.defpath, "HOME": str(tmp_path), VARIABLE: bundled_cli()}
    done = subprocess.run(
        [sys.executable, str(example)],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Claude: " in done.stdout
    assert "done in" in done.stdout


def test_every_promise_names_tests_that_exist():
    """The files that the page on reliability names exist, and so do the tests in them."""
    text = (ROOT / "docs" / "reliability.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 30
    for file, test in named:
        assert (ROOT / file).is_file(), file
        assert not test or f"def {test}(" in (ROOT / file).read_text(), f"{file}::{test}"


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_the_pages_for_contributors_name_modules_that_exist(page):
    """Files are named as `folder/file.py`, modules as `folder.module`: each of them is in the source."""
    text = (ROOT / page).read_text()
    source = ROOT / "src" / "toolwire"
    rooms = "|".join(sorted(each.name for each in source.iterdir() if each.is_dir()))
    files = re.findall(rf"`((?:{rooms})/[\w/]+\.py)`", text)
    modules = [name.replace(".", "/") for name in re.findall(rf"`((?:{rooms})(?:\.[a-z_]+)+)`", text)]
    assert len(files + modules) > 10
    for name in files:
        assert (source / name).is_file(), name
    for name in modules:
        assert (source / name).is_dir() or (source / f"{name}.py").is_file(), name
