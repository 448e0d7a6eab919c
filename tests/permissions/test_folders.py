"""`inside`: no spelling of a path outside the folder gets through."""

import asyncio
import os
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire.permissions import ToolPermissionContext
from toolwire.permissions.policies import FILE_TOOLS, inside


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Create a folder with links out of it and within it, and something secret beside it; return the folder."""
    root = tmp_path_factory.mktemp("world")
    folder = root / "project"
    (folder / "deep" / "deeper").mkdir(parents=True)
    (root / "secret").mkdir()
    (root / "secret" / "key").write_text("k")
    (root / "project-evil").mkdir()
    (folder / "a.txt").write_text("a")
    (folder / "out").symlink_to(root / "secret")
    (folder / "up").symlink_to("..")
    (folder / "in").symlink_to("deep/deeper")
    (folder / "loop").symlink_to("loop")
    return folder


def verdict(policy, name, context=None, **given):
    decision = asyncio.run(policy.decide(name, given, context or ToolPermissionContext()))
    return "none" if decision is None else decision.result.behavior


def read(world, path, **more):
    return verdict(inside(world, cwd=world, allow=True, **more), "Read", file_path=path)


@pytest.mark.parametrize(
    "path", ["a.txt", "./a.txt", "new/file.txt", "deep/../a.txt", "in/x", "$x.txt", "[id].ts"]
)
def test_inside(world, path):
    """Relative and absolute, there or not, through links that stay within."""
    assert read(world, path) == "allow"
    assert read(world, str(world / path)) == "allow"
    assert verdict(inside(world, cwd=world), "Read", file_path=path) == "none"


OUTSIDE = [
    *(
        "/etc/passwd",
        "..",
        "../secret/key",
        "deep/../../secret/key",
        "out/key",
        "up/secret/key",
        "up",
        "~/x",
        "~root/x",
    ),
    *(
        "~",
        " /etc/passwd",
        "/etc/passwd ",
        "\t/etc/passwd",
        "$HOME/x",
        "${HOME}/x",
        "file:///etc/passwd",
        "a\0b",
        "",
    ),
    *(
        "  ",
        "in/../../secret/key",
        "..\\secret",
        "//etc/passwd",
        "/proc/self/root/etc/passwd",
        "loop/../../secret/key",
    ),
    *(
        "FILE:/etc/passwd",
        "out",
        "out/new",
        "\u00a0/etc/passwd",
        "\ufeff/etc/passwd",
        "\ufeff \ufeff~/x",
        "\ufeff",
    ),
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_outside(world, path, monkeypatch):
    """Paths that lead up, away, through links, to home folders; with variables, blanks, URLs."""
    monkeypatch.setenv("HOME", "/home/somebody")
    assert read(world, path) == "deny"


def test_neighbours_and_case(world):
    """A folder whose name only begins the same is another; so is one in other letters."""
    assert read(world, f"{world}-evil/x") == "deny"
    assert read(world, str(world).upper()) == "deny"
    assert read(world, f"{world.parent}/secret/key") == "deny"
    two = inside(world, world.parent / "secret", allow=True)
    assert verdict(two, "Read", file_path=f"{world}/out/key") == "allow"


OF_A_PROCESS = [
    *(
        "/proc/self",
        "/proc/self/root/etc/passwd",
        "/proc/self/cwd/a.txt",
        "/proc/self/environ",
        "/proc/thread-self/cwd",
    ),
    *(
        "/proc/1/root/etc/passwd",
        pytest.param(
            f"/proc/{os.getpid()}/cwd/a.txt", id="/proc/OWN/cwd/a.txt"
        ),  # an id that all workers agree on
        "/proc/self/task/1/cwd",
        "/proc/self/fd/0",
    ),
    *(
        "/dev/fd/0",
        "/dev/fd",
        "/dev/stdin",
        "/dev/stdout",
        "//proc/self/cwd/a.txt",
        "/proc//self/./cwd/a.txt",
    ),
    *(
        "/dev/../proc/self/cwd/a.txt",
        "/proc/self/../self/cwd",
        "/proc/mounts",
        "/proc/net/tcp",
        "magic/a.txt",
        "magic",
    ),
    *("hop/a.txt", "deep/../magic/a.txt", "descriptors/0", "magic/../a.txt", " /proc/self/cwd/a.txt"),
]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
@pytest.mark.parametrize("path", OF_A_PROCESS)
def test_the_files_of_a_process(world, path, monkeypatch):
    """They are not the same to the CLI as to this process, so they are refused, even inside, and even with `/`."""
    monkeypatch.chdir(world)
    for link, target in (("magic", "/proc/self/cwd"), ("hop", "magic/."), ("descriptors", "/dev/fd")):
        if not (world / link).is_symlink():
            (world / link).symlink_to(target)
    everything = inside("/", cwd=world, allow=True)
    assert verdict(everything, "Read", file_path=str(world / "a.txt")) == "allow"
    for policy in (everything, inside(world, cwd=world, allow=True)):
        assert verdict(policy, "Read", file_path=path) == "deny"
        assert verdict(policy, "Grep", path=path) == "deny"
        assert verdict(policy, "Glob", pattern=f"{path.strip()}/*") == "deny"
    assert verdict(everything, "Read", file_path="/proc/version") == "allow"
    assert verdict(everything, "Read", file_path="/dev/null") == "allow"


def test_every_file_tool(world):
    """Each file tool has its path argument; without it, searches use the working directory, others are refused."""
    policy, away = inside(world, cwd=world, allow=True), inside(world, cwd=world.parent, allow=True)
    for name, fields in FILE_TOOLS.items():
        field = fields[0].rstrip("?")
        more = {"pattern": "*"} if name == "Glob" else {}
        assert verdict(policy, name, **{field: str(world / "a.txt")}, **more) == "allow"
        assert verdict(policy, name, **{field: "/etc"}, **more) == "deny"
        assert verdict(policy, name, **{field: 7}, **more) == "deny"
        assert verdict(policy, name, **more) == ("allow" if "?" in fields[0] else "deny")
        assert verdict(away, name, **more) == "deny"
    assert verdict(policy, "Bash", command="cat /etc/passwd") == "none"


def test_the_folder_of_a_hook_is_its_working_directory(world):
    """What the hook says about the working directory counts where none was given."""
    context = ToolPermissionContext(raw={"cwd": str(world)})
    assert verdict(inside(world, allow=True), "Read", context, file_path="a.txt") == "allow"
    assert verdict(inside(world, allow=True), "Read", file_path="a.txt") == "deny"


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("**/*.py", "allow"),
        ("deep/*", "allow"),
        ("/etc/*", "deny"),
        ("../*", "deny"),
        ("{a,../b}", "deny"),
        ("{/etc,x}/*", "deny"),
        ("~/*", "deny"),
        ("out/*", "deny"),
        ("deep/{..,x}/../..", "deny"),
        ("\\../x", "deny"),
        ("**/*.{ts,tsx}", "allow"),
        ("deep/[id]/*.@(js|css)", "allow"),
        (".github/*", "allow"),
        ("deep*/*.?", "allow"),
        ("*.*", "allow"),
        (".{.,x}/secret.txt", "deny"),
        ("{.,x}{.,y}/secret.txt", "deny"),
        ("{{.,x},y}./secret.txt", "deny"),
        ("deep/.{.,}/.{.,}/*", "deny"),
        ("?(.)./x", "deny"),
        ("..?(x)/x", "deny"),
        ("*/../../x", "deny"),
        ("{a,..}/x", "deny"),
        ("@(..)/x", "deny"),
        (".[.]/x", "deny"),
        (".?/x", "deny"),
        (".*/x", "deny"),
        ("\ufeff../x", "deny"),
        ("\ufeff/etc/*", "deny"),
        ("ou*/key", "deny"),
        ("**/out/key", "deny"),
        ("{deep,out}/*", "deny"),
        ("{a,b}" * 12, "deny"),
        ("nope*/x/*", "allow"),
        ("[!a]ut/key", "deny"),
        ("o{a..z}t/key", "deny"),
        (".[].]/x", "deny"),
        ("{[,.}{.,]}/x", "deny"),
        ("deep/(group)/*.tsx", "allow"),
        (None, "deny"),
    ],
)
def test_glob_patterns(world, pattern, said):
    """A pattern is checked like a path."""
    assert verdict(inside(world, cwd=world, allow=True), "Glob", pattern=pattern) == said


def test_tools_of_ones_own(world):
    """Any tool with path arguments can be named, nested and in lists."""
    policy = inside(world, cwd=world, tools={"mcp__fs__*": ("paths", "to.path?")}, allow=True)
    assert verdict(policy, "mcp__fs__copy", paths=["a.txt"], to={"path": "b"}) == "allow"
    assert verdict(policy, "mcp__fs__copy", paths=["a.txt", "/etc/x"], to={"path": "b"}) == "deny"
    assert verdict(policy, "mcp__fs__copy", paths=["a.txt"], to={"path": "/b"}) == "deny"
    assert verdict(policy, "mcp__fs__copy", paths=["a.txt"]) == "allow"


def test_the_reason_names_the_folder(world):
    """The model reads where it may go, and which path was wrong; a long one is cut."""
    decision = asyncio.run(inside(world).decide("Read", {"file_path": "/etc/x"}, ToolPermissionContext()))
    assert decision.reason == f"Read may only use files inside {world}: '/etc/x' is outside."
    long = asyncio.run(
        inside(world).decide("Read", {"file_path": "/" + "x" * 9_000}, ToolPermissionContext())
    )
    assert len(long.reason) < 600


PARTS = [
    "..",
    ".",
    "deep",
    "deeper",
    "out",
    "up",
    "in",
    "loop",
    "secret",
    "key",
    "project",
    "a.txt",
    "",
    "~",
    "nope",
    " ",
]


@given(
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=9),
    st.sampled_from(["", "/", "./", " ", "{root}/", "{root}/project/", "{root}/project/../", "~/", "//"]),
)
@settings(max_examples=500, deadline=None)
def test_paths_that_pass_are_inside(world, parts, start):
    """Random paths: those that pass lead into the folder, whether `..` is resolved by the kernel or textually."""
    path = start.replace("{root}", str(world.parent)) + "/".join(parts)
    if read(world, path) != "allow":
        return
    whole = f"{world}/{path}" if not path.startswith("/") else path
    trimmed = path.strip() if path.strip().startswith("/") else f"{world}/{path.strip()}"
    for target in {whole, os.path.normpath(whole), trimmed}:
        assert Path(os.path.realpath(target)).is_relative_to(world)


@given(
    st.text(alphabet=string.printable + "äé\u00a0", max_size=30),
    st.sampled_from(["/etc/passwd", "../secret/key", "out/key"]),
)
@settings(max_examples=300, deadline=None)
def test_a_forbidden_path_stays_forbidden(world, noise, path):
    """Detours before a forbidden path do not help."""
    name = noise.replace("/", "").replace("\0", "").strip(". \t\n\r\x0b\x0c\u00a0") or "x"
    detours = [f"deep/../{path}", f"./{path}", f"{name}/../{path}", f"deep/{name}/../../{path}", f"  {path}"]
    for detour in detours:
        if path.startswith("/"):
            assert read(world, f"{path}/{name}/..") == "deny"
        else:
            assert read(world, detour) == "deny"
