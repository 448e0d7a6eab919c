"""`toolwire new`: the project works as written, and no file of the user is lost."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

import toolwire
from shared.programs import run_python
from toolwire._transport.find_cli import VARIABLE, bundled_cli
from toolwire.cli.main import app
from toolwire.cli.new import package_name, project_files
from toolwire.errors import UsageError
from toolwire.testing import ClaudeEnvironment, ScriptedModel, call, expect, say

FILES = [
    ".gitignore",
    "README.md",
    "agent.py",
    "my_tools.py",
    "pyproject.toml",
    "tests",
    "tests/test_my_tools.py",
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Make an empty folder the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def new(*arguments, code=0):
    """Run the command in this process."""
    done = CliRunner().invoke(app, ["new", *map(str, arguments)])
    assert done.exit_code == code, (done.stdout, done.stderr, done.exception)
    return done


def tree(folder):
    """Return all paths in a folder."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def python(*arguments, cwd):
    """Run a module with this Python and a nearly empty environment."""
    env = {
        "PATH": os.defpath,
        "HOME": str(cwd.parent),
        "NO_COLOR": "1",
        "COLUMNS": "200",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = run_python("-m", *arguments, env=env, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Create a project with the command, as a user does, and return its folder."""
    folder = tmp_path_factory.mktemp("with space")
    said = python("toolwire", "new", "my-tools", cwd=folder)
    assert "cd my-tools" in said
    return folder / "my-tools"


def test_the_files_of_a_project(project):
    """The project has these files and no others."""
    assert [path for path in tree(project) if "cache" not in path] == FILES
    settings = tomllib.loads((project / "pyproject.toml").read_text())
    assert settings["project"]["name"] == "my-tools"
    assert any(each.startswith("toolwire") for each in settings["project"]["dependencies"])


def test_its_tests_pass_without_a_warning(project):
    """They need neither a key nor a network."""
    said = python("pytest", "-q", "-p", "no:cacheprovider", cwd=project)
    assert "5 passed" in said
    assert "warning" not in said.lower()


def test_it_can_be_built_and_installed(project, tmp_path):
    """Its wheel has both modules, and nothing else."""
    python(
        *("pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "-w", tmp_path, "."),
        cwd=project,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as built:
        modules = [name for name in built.namelist() if ".dist-info/" not in name]
    assert modules == ["agent.py", "my_tools.py"]


@pytest.mark.parametrize("name", ["x", "my-tools", "a" * 40])
def test_its_code_is_clean(name, folder):
    """The linter and the formatter accept it, whatever the length of the project's name."""
    new(name)
    wanted = "E,W,F,I,UP,B,A,C4,SIM,RET,RUF,PT,PL,ARG,N"
    python("ruff", "check", "--no-cache", "--extend-select", wanted, ".", cwd=folder / name)
    python("ruff", "format", "--no-cache", "--check", ".", cwd=folder / name)


@pytest.mark.parametrize(
    ("command", "more", "shown"),
    [
        ("tools", [], "count_words"),
        ("call", [], '["tea"]'),
        ("check", ["--strict"], "OK: 3 tools"),
        pytest.param("run", ["--yes"], "turn", marks=pytest.mark.real),
        ("config", [], '"my_tools": {'),
    ],
)
def test_the_commands_of_its_readme(command, more, shown, project):
    """Each runs as it is written there, except that --install is left out and a scripted model is used."""
    line, *_ = re.findall(rf"`toolwire ({command} [^`]*)`", (project / "README.md").read_text())
    given = [word for word in shlex.split(line) if word != "--install"]
    assert shown in python("toolwire", *given, *more, cwd=project)


@pytest.mark.real
def test_its_agent_talks_to_claude(project):
    """The real CLI calls the tools of the project; the model is scripted."""
    script = [call("mcp__my_tools__find", word="tea"), expect('["tea"]', then=say("One note, on tea."))]
    with ScriptedModel(script) as model, ClaudeEnvironment(model) as env:
        variables = {**env.env, VARIABLE: bundled_cli(), "PYTHONDONTWRITEBYTECODE": "1"}
        done = run_python("agent.py", "Which notes mention tea?", env=variables, cwd=project)
        assert done.returncode == 0, done.stdout + done.stderr
        model.assert_finished()
    assert done.stdout == "One note, on tea.\n"


def test_its_agent_reports_a_missing_cli(project):
    """One line and an exit code, no traceback."""
    env = {"PATH": os.defpath, VARIABLE: str(project / "gone"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = run_python("agent.py", env=env, cwd=project)
    assert done.returncode == 1
    assert "Claude Code not found" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("given", ["my-tools", "My Tools", "deep/er/my.tools", "my_tools/"])
def test_a_name_may_be_a_path_and_becomes_a_module_name(given, folder):
    """Missing folders are created; the next commands are shown."""
    done = new(given)
    assert tree(folder / given) == FILES
    assert "Next, with no network and no key:" in done.stdout
    assert "toolwire tools my_tools.py" in done.stdout


def test_this_folder_may_become_the_project(folder, monkeypatch):
    """It may be empty or contain a new repository."""
    here = folder / "my-tools"
    (here / ".git").mkdir(parents=True)
    monkeypatch.chdir(here)
    assert "cd " not in new(".").stdout
    assert tree(here) == sorted([".git", *FILES])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "needs a name"),
        ("  ", "needs a name"),
        ("123", "begin with a digit"),
        ("2fast", "begin with a digit"),
        ("!!!", "no letter"),
        ("店", "no letter"),
        ("class", "keyword of Python"),
        ("email", "standard library"),
        ("JSON", "standard library"),
        ("agent", "a new project contains"),
        ("toolwire", "a new project contains"),
        ("pydantic", "installed package"),
        ("x" * 41, "the limit is 40"),
    ],
)
def test_an_unusable_name_is_refused(name, said, folder):
    """With the reason and another name to try; nothing is created."""
    done = new(name, code=2)
    assert said in done.stderr
    assert "toolwire new " in done.stderr
    assert done.stdout == ""
    assert tree(folder) == []


def test_the_suggested_name_works():
    """It is accepted when the user types it as suggested."""
    for name in ("123", "class", "email", "agent", "x" * 41, "", "café-2"):
        try:
            package_name(name)
        except UsageError as error:
            package_name(str(error).rpartition("toolwire new ")[2].rstrip("`"))
    assert package_name("Café-2") == "cafe_2"


def test_a_folder_that_is_not_empty_is_refused(folder):
    """Its files are left unchanged."""
    (folder / "my-tools").mkdir()
    (folder / "my-tools" / "mine.txt").write_text("mine")
    assert "--force" in new("my-tools", code=2).stderr
    assert tree(folder) == ["my-tools", "my-tools/mine.txt"]


def test_force_adds_what_is_missing_and_keeps_the_rest(folder):
    """The output says which files were kept."""
    here = folder / "my-tools"
    here.mkdir()
    (here / "README.md").write_text("mine")
    (here / "mine.txt").write_text("mine")
    done = new("my-tools", "--force")
    assert (here / "README.md").read_text() == "mine"
    assert tree(here) == sorted([*FILES, "mine.txt"])
    assert [line.split()[0] for line in done.stdout.splitlines() if "kept" in line] == ["README.md"]


def test_a_file_of_that_name_is_refused(folder):
    """This holds with and without --force."""
    (folder / "my-tools").write_text("mine")
    for more in ([], ["--force"]):
        assert "not a folder" in new("my-tools", *more, code=2).stderr


def test_a_write_that_fails_leaves_nothing_behind(folder):
    """Here a file is in the place of a folder; the files that were written before it are removed."""
    here = folder / "my-tools"
    here.mkdir()
    (here / "tests").write_text("mine")
    done = new("my-tools", "--force", code=1)
    assert "cannot write" in done.stderr
    assert tree(here) == ["tests"]


def test_created_folders_are_removed_too(folder, monkeypatch):
    """When the disk is full half way, all folders that the command created are removed."""
    written = []
    real = Path.open

    def full(self, *arguments, **more):
        written.extend([self.name] if "my-tools" in self.parts else [])
        if len(written) == 4:
            raise OSError(28, "No space left on device", str(self))
        return real(self, *arguments, **more)

    monkeypatch.setattr(Path, "open", full)
    done = new("deep/er/my-tools", code=1)
    assert "No space left on device" in done.stderr
    assert len(written) == 4
    assert tree(folder) == []


def test_no_placeholder_is_left():
    """Neither the name nor the text of any file has one."""
    for path, text in project_files("my_tools").items():
        assert "{{" not in path + text
        assert text.endswith("\n")


def test_the_templates_are_found_in_a_zip_file(folder):
    """So the command works inside a zipped application."""
    package = Path(toolwire.__file__).parent
    with zipfile.ZipFile(folder / "toolwire.zip", "w") as archive:
        for path in package.rglob("*"):
            if "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(package.parent))
    program = "import sys; sys.path.insert(0, 'toolwire.zip'); from toolwire.cli import new; "
    program += "assert 'toolwire.zip' in new.__file__; print(sorted(new.project_files('shop')))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True
    )
    assert "shop.py" in done.stdout
