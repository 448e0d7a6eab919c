"""Where the CLI is looked for, in which order, and the error when it is nowhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import toolwire
from toolwire import ClaudeAgentOptions, CLIConnectionError, CLINotFoundError
from toolwire._transport.find_cli import VARIABLE, bundled_cli, find_cli

HOME_PLACES = (
    ".local/bin",
    ".claude/local",
    ".npm-global/bin",
    "node_modules/.bin",
    ".yarn/bin",
    ".bun/bin",
)
SYSTEM_PLACES = ("/usr/local/bin", "/opt/homebrew/bin")
BARE_SYSTEM = not any(os.path.lexists(f"{place}/claude") for place in SYSTEM_PLACES)
needs_bare_system = pytest.mark.skipif(not BARE_SYSTEM, reason="this machine has a claude in a system folder")
not_on_windows = pytest.mark.skipif(sys.platform == "win32", reason="names and permissions of POSIX")

pytestmark = not_on_windows


@pytest.fixture(autouse=True)
def empty_machine(tmp_path, monkeypatch):
    """Give each test a home without anything in it, and a PATH of one empty folder."""
    home, path, work = tmp_path / "home", tmp_path / "path", tmp_path / "here"
    for folder in (home, path, work):
        folder.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(work)


def put(place, mode=0o755):
    """Create an executable file, with the folders above it, and return its path."""
    place = Path(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("#!/bin/sh\n")
    place.chmod(mode)
    return str(place)


def in_a_bare_python(code):
    """Run code in a Python that has toolwire and no installed package, in this test's environment."""
    source = str(Path(toolwire.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": source}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class TestNamed:
    @pytest.mark.parametrize("kind", [str, Path])
    def test_by_option(self, tmp_path, kind):
        """The option names it, as text or as a path."""
        cli = put(tmp_path / "mine" / "my-claude")
        assert find_cli(kind(cli)) == cli

    def test_by_variable(self, tmp_path, monkeypatch):
        """The environment variable names it."""
        cli = put(tmp_path / "mine" / "my-claude")
        monkeypatch.setenv(VARIABLE, cli)
        assert find_cli() == cli

    def test_an_empty_variable_names_nothing(self, tmp_path, monkeypatch):
        """An empty value counts as none."""
        monkeypatch.setenv(VARIABLE, "")
        assert find_cli() != ""

    @pytest.mark.parametrize("by", ["option", "variable"])
    def test_a_tilde_is_the_home(self, tmp_path, monkeypatch, by):
        """`~` is expanded in both."""
        cli = put(tmp_path / "home" / "bin" / "claude")
        monkeypatch.setenv(VARIABLE, "~/bin/claude" if by == "variable" else "")
        assert find_cli("~/bin/claude" if by == "option" else None) == cli

    @pytest.mark.parametrize("by", ["option", "variable"])
    def test_a_bare_name_is_looked_up_on_the_path(self, tmp_path, monkeypatch, by):
        """A name without a folder is a command."""
        cli = put(tmp_path / "path" / "claude-next")
        monkeypatch.setenv(VARIABLE, "claude-next" if by == "variable" else "")
        assert find_cli("claude-next" if by == "option" else None) == cli

    @pytest.mark.parametrize("given", ["bin/claude", "./bin/claude", "../here/bin/claude"])
    def test_a_relative_path_is_made_absolute(self, given):
        """The CLI starts in another folder (`cwd`), where the same relative path is another file."""
        cli = put(Path.cwd() / "bin" / "claude")
        found = find_cli(given)
        assert Path(found).is_absolute()
        assert Path(found).samefile(cli)

    def test_a_command_in_a_relative_folder_of_the_path(self, monkeypatch):
        """Whether it is found there or not, the result does not depend on the working directory."""
        put(Path.cwd() / "bin" / "claude-next")
        monkeypatch.setenv("PATH", "bin")
        try:
            found = find_cli("claude-next")
        except CLINotFoundError:
            return
        assert Path(found).is_absolute()

    @pytest.mark.parametrize("what", ["gone/claude", "gone", "folder/"])
    def test_an_option_that_names_nothing_is_an_error(self, tmp_path, what):
        """The error says which path and by what it was named; nothing else is tried."""
        (tmp_path / "folder").mkdir()
        put(tmp_path / "path" / "claude")
        given = what if what == "gone" else str(tmp_path / what)
        with pytest.raises(CLINotFoundError, match="option cli_path") as caught:
            find_cli(given)
        assert given in str(caught.value)

    def test_a_variable_that_names_nothing_is_an_error(self, tmp_path, monkeypatch):
        """A wrong variable is never replaced by another CLI."""
        put(tmp_path / "path" / "claude")
        monkeypatch.setenv(VARIABLE, str(tmp_path / "gone"))
        with pytest.raises(CLINotFoundError, match=f"given by the environment variable {VARIABLE}.*gone"):
            find_cli()

    def test_the_option_goes_before_the_variable(self, tmp_path, monkeypatch):
        """The option wins, even if it names nothing."""
        mine = put(tmp_path / "mine")
        monkeypatch.setenv(VARIABLE, put(tmp_path / "other"))
        assert find_cli(mine) == mine
        with pytest.raises(CLINotFoundError, match="option cli_path"):
            find_cli(tmp_path / "gone")

    def test_the_variable_goes_before_the_path(self, tmp_path, monkeypatch):
        """The named CLI wins over one that is merely found."""
        put(tmp_path / "path" / "claude")
        monkeypatch.setenv(VARIABLE, put(tmp_path / "mine"))
        assert find_cli() == str(tmp_path / "mine")

    def test_another_environment_may_be_given(self, tmp_path):
        """PATH and variable are read from the mapping given."""
        on_path = put(tmp_path / "elsewhere" / "claude")
        named = put(tmp_path / "named")
        env = {"PATH": str(tmp_path / "elsewhere")}
        assert find_cli(env=env) == on_path
        assert find_cli(env={**env, VARIABLE: named}) == named


class TestPath:
    def test_the_first_on_the_path(self, tmp_path, monkeypatch):
        """Folders are searched in order, and missing ones are skipped."""
        folders = [tmp_path / name for name in ("missing", "one", "two")]
        monkeypatch.setenv("PATH", os.pathsep.join(map(str, folders)))
        put(folders[2] / "claude")
        cli = put(folders[1] / "claude")
        assert find_cli() == cli

    def test_what_cannot_be_executed_is_passed_over(self, tmp_path, monkeypatch):
        """A plain file, a folder and a dangling link of that name are no commands."""
        folders = [tmp_path / name for name in ("plain", "folder", "link", "good")]
        put(folders[0] / "claude", 0o644)
        (folders[1] / "claude").mkdir(parents=True)
        folders[2].mkdir()
        (folders[2] / "claude").symlink_to(tmp_path / "gone")
        cli = put(folders[3] / "claude")
        monkeypatch.setenv("PATH", os.pathsep.join(map(str, folders)))
        assert find_cli() == cli

    @pytest.mark.parametrize("path", ["", ".", "bin", ":", f".{os.pathsep}bin{os.pathsep}"])
    def test_the_working_directory_is_never_searched(self, tmp_path, monkeypatch, path):
        """A `claude` in the project's folder may come from anyone."""
        for place in ("claude", "bin/claude"):
            put(Path.cwd() / place)
        cli = put(tmp_path / "home" / ".local" / "bin" / "claude")
        monkeypatch.setenv("PATH", path)
        assert find_cli() == cli

    def test_no_path_at_all(self, tmp_path, monkeypatch):
        """A missing PATH is an empty one."""
        monkeypatch.delenv("PATH")
        put(Path.cwd() / "claude")
        cli = put(tmp_path / "home" / ".local" / "bin" / "claude")
        assert find_cli() == cli

    def test_the_path_goes_before_the_usual_places(self, tmp_path):
        """PATH is what the user chose."""
        put(tmp_path / "home" / ".local" / "bin" / "claude")
        cli = put(tmp_path / "path" / "claude")
        assert find_cli() == cli


class TestUsualPlaces:
    @needs_bare_system
    def test_each_place_in_its_order(self, tmp_path):
        """Every usual place of the home is searched, the first one wins."""
        home = tmp_path / "home"
        for place in HOME_PLACES:
            put(home / place / "claude")
        for place in HOME_PLACES:
            assert find_cli() == str(home / place / "claude")
            (home / place / "claude").unlink()

    def test_folders_and_dangling_links_are_passed_over(self, tmp_path):
        """Only a file is a CLI."""
        home = tmp_path / "home"
        (home / ".local" / "bin" / "claude").mkdir(parents=True)
        (home / ".claude" / "local").mkdir(parents=True)
        (home / ".claude" / "local" / "claude").symlink_to("gone")
        cli = put(home / ".npm-global" / "bin" / "claude")
        assert find_cli() == cli

    def test_a_link_to_the_real_one(self, tmp_path):
        """The native installer leaves a link there."""
        put(tmp_path / "home" / ".local" / "share" / "claude" / "versions" / "1")
        link = tmp_path / "home" / ".local" / "bin" / "claude"
        link.parent.mkdir(parents=True)
        link.symlink_to("../share/claude/versions/1")
        assert find_cli() == str(link)

    @needs_bare_system
    def test_a_home_that_is_not_known(self, monkeypatch):
        """No HOME is no crash: the account's own home is searched."""
        monkeypatch.delenv("HOME")
        if bundled_cli() is None:
            pytest.skip("claude-agent-sdk carries no binary here")
        assert Path(find_cli()).is_file()


class TestBundled:
    def test_the_binary_of_the_official_package_comes_last(self, tmp_path):
        """It is found when nothing else is, and not before."""
        bundled = bundled_cli()
        if bundled is None:
            pytest.skip("claude-agent-sdk carries no binary here")
        assert os.access(bundled, os.X_OK)
        if BARE_SYSTEM:
            assert find_cli() == bundled
        cli = put(tmp_path / "home" / ".bun" / "bin" / "claude")
        if BARE_SYSTEM:
            assert find_cli() == cli

    @pytest.mark.process
    def test_without_the_package_there_is_none(self):
        """A missing package is no error."""
        assert (
            in_a_bare_python("from toolwire._transport.find_cli import bundled_cli; print(bundled_cli())")
            == "None\n"
        )

    @pytest.mark.process
    def test_the_package_is_not_imported_for_the_question(self, tmp_path):
        """Finding the binary does not run the package's code."""
        package = tmp_path / "packages" / "claude_agent_sdk"
        put(package / "_bundled" / "claude")
        (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
        code = f"""
import sys
sys.path.insert(0, {str(package.parent)!r})
from toolwire._transport.find_cli import bundled_cli
print(bundled_cli())
assert "claude_agent_sdk" not in sys.modules
"""
        assert in_a_bare_python(code).strip() == str(package / "_bundled" / "claude")

    @pytest.mark.process
    def test_a_stub_in_place_of_the_package_is_no_crash(self):
        """Tests put bare modules of that name into sys.modules."""
        code = """
import sys, types
from toolwire._transport.find_cli import bundled_cli
sys.modules["claude_agent_sdk"] = types.ModuleType("claude_agent_sdk")
print(bundled_cli())
"""
        assert in_a_bare_python(code) == "None\n"


NOWHERE = """
from toolwire import CLINotFoundError
from toolwire._transport.find_cli import find_cli
try:
    find_cli()
except CLINotFoundError as error:
    print(error)
"""


class TestNowhere:
    @pytest.mark.process
    @needs_bare_system
    def test_the_error_names_every_place_in_order_and_what_to_do(self):
        """The error lists where it was looked for, how to install the CLI, and how to name it."""
        text = in_a_bare_python(NOWHERE)
        places = [
            "PATH",
            "~/.local/bin",
            "~/.claude/local",
            "~/.npm-global/bin",
            "/usr/local/bin",
            "/opt/homebrew/bin",
            "~/node_modules/.bin",
            "~/.yarn/bin",
            "~/.bun/bin",
            "claude-agent-sdk",
        ]
        positions = [text.index(f"- {place}" if place != places[-1] else place) for place in places]
        assert positions == sorted(positions)
        for advice in ("npm install -g @anthropic-ai/claude-code", "pip install", "cli_path", VARIABLE):
            assert advice in text

    def test_the_error_is_a_connection_error(self, tmp_path):
        """Code that catches the official class catches this one."""
        with pytest.raises(CLIConnectionError):
            find_cli(tmp_path / "gone")


@pytest.mark.process
@pytest.mark.anyio
async def test_a_relative_cli_path_starts_the_file_that_was_checked(tmp_path):
    """With `cwd` set, a file of the same relative name in that folder is not run in its place."""
    marker = tmp_path / "the wrong one ran"
    right = Path(put(Path.cwd() / "bin" / "claude"))
    right.write_text("#!/bin/sh\necho right >&2\nexit 3\n")
    project = tmp_path / "project"
    wrong = Path(put(project / "bin" / "claude"))
    wrong.write_text(f"#!/bin/sh\ntouch '{marker}'\nexit 4\n")
    options = ClaudeAgentOptions(cli_path="bin/claude", cwd=project, env={"PATH": os.defpath})
    with pytest.raises(toolwire.ProcessError) as caught:
        await toolwire.run("hello", options=options)
    assert not marker.exists()
    assert (caught.value.exit_code, caught.value.stderr) == (3, "right")
