"""The package's page on an index: with the repository's address its links lead there, without it there are none."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
ADDRESS = "https://code.example/owner/toolwire"
_spec = importlib.util.spec_from_file_location("package_page", ROOT / "scripts" / "package_page.py")
page = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(page)


def targets(markdown):
    """Return the targets of the links and pictures of a page, as a reader of the rendered page finds them."""
    return re.findall(r'(?:href|src)="([^"]+)"', MarkdownIt("commonmark").enable("table").render(markdown))


def test_every_link_of_readme_leads_to_a_file_of_the_version():
    """Links and pictures lead to files that exist, also those with an anchor."""
    text = page.make_absolute((ROOT / "README.md").read_text(), ADDRESS, "1.2.3")
    found = targets(text)
    assert len(found) > 30
    for each in found:
        kind = "raw" if each.endswith((".svg", ".png")) else "blob"
        assert each.startswith(f"{ADDRESS}/{kind}/v1.2.3/"), each
        assert (ROOT / each.removeprefix(f"{ADDRESS}/{kind}/v1.2.3/").partition("#")[0]).is_file(), each


def test_only_links_are_changed():
    """Text, code and absolute links stay unchanged."""
    text = "`x[0](y)` [site](https://example.com) [here](#there) [page](docs/a.md#b) ![x](docs/i.svg)"
    assert page.make_absolute(text, ADDRESS, "1") == (
        "`x[0](y)` [site](https://example.com) [here](#there) "
        f"[page]({ADDRESS}/blob/v1/docs/a.md#b) ![x]({ADDRESS}/raw/v1/docs/i.svg)"
    )


@pytest.mark.parametrize("given", ["", "  ", ADDRESS, f"{ADDRESS}/", f"{ADDRESS}.git"])
def test_an_address_is_read(given):
    """An address may also be written as it is copied from a browser, or from git."""
    assert page.read_address(given) == (ADDRESS if given.strip() else "")


@pytest.mark.parametrize(
    "given",
    ["toolwire", "git@code.example:owner/toolwire", "http://code.example/a/b", "https://code.example"],
)
def test_what_is_no_address_is_refused(given):
    """The error shows the value and a valid form."""
    with pytest.raises(ValueError, match=re.escape(repr(given)) + ".*https://github.com/OWNER/toolwire"):
        page.read_address(given)


def build(source, kind, out, address=""):
    """Build a distribution as pip does, and return its metadata."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", out],
        cwd=source, env={"PROJECT_URL": address, "PATH": ""}, check=True, capture_output=True,
    )  # fmt: skip
    (made,) = out.iterdir()
    if kind == "sdist":
        with tarfile.open(made) as archive:
            archive.extractall(out, filter="data")
        (unpacked,) = (each for each in out.iterdir() if each.is_dir())
        return message_from_string((unpacked / "PKG-INFO").read_text("utf-8"))
    with zipfile.ZipFile(made) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode())


@pytest.fixture
def source(tmp_path):
    """Return a folder with the files that a build reads, without most of the code."""
    shutil.copytree(ROOT / "scripts", tmp_path / "source" / "scripts")
    for name in (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "src/toolwire/_version.py",
        "src/toolwire/__init__.py",
    ):
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "source" / name)
    return tmp_path / "source"


@pytest.mark.process
def test_without_an_address_there_are_no_links(source, tmp_path):
    """The metadata has no links, and shows README unchanged."""
    metadata = build(source, "wheel", tmp_path / "out")
    assert metadata.get_all("Project-URL") is None
    assert metadata.get_payload() == (ROOT / "README.md").read_text()


@pytest.mark.process
def test_a_wheel_of_an_sdist_has_the_links_of_the_sdist(source, tmp_path):
    """A wheel that is built from an sdist needs no address: it is in the sdist."""
    first = build(source, "sdist", tmp_path / "first", ADDRESS)
    (unpacked,) = (each for each in (tmp_path / "first").iterdir() if each.is_dir())
    second = build(unpacked, "wheel", tmp_path / "second")
    for metadata in (first, second):
        links = dict(each.split(", ") for each in metadata.get_all("Project-URL"))
        assert links.keys() == {"Source", "Documentation", "Changelog", "Issues"}
        assert links["Source"] == ADDRESS
        assert all(each.startswith(ADDRESS) for each in targets(metadata.get_payload()))
