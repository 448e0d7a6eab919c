"""The tests mirror the folders of the source, and share helpers through `tests/shared` only."""

import ast
from pathlib import Path

import toolwire

SOURCE = Path(toolwire.__file__).parent
TESTS = Path(__file__).parents[1]
SUITES = {
    *(
        "browser",
        "clients",
        "conformance",
        "differential",
        "batch_faults",
        "faults",
        "flows",
        "fuzz",
        "mutants",
        "real",
        "tracing",
        "typing",
        "work",
    ),
    *("project", "shared"),
}
"""Folders that cut across the tree, are about the project, or hold helpers."""


def rooms():
    """Return the folders of the source, without the leading underscore of private ones."""
    found = {each.parent.relative_to(SOURCE).as_posix() for each in SOURCE.rglob("*.py")}
    return {each.removeprefix("_") for each in found}


def test_every_folder_of_tests_is_one_of_the_source_or_a_suite():
    """The tests of a module are in the folder of the same name."""
    files = [each.relative_to(TESTS) for each in TESTS.rglob("test_*.py")]
    mirrored = {each.parent.as_posix() for each in files if each.parts[0] not in SUITES}
    assert len(mirrored) > 20
    assert mirrored - rooms() == set()


def test_no_test_file_imports_another():
    """Helpers of several test files are in `tests/shared`, or beside the suite that needs them."""
    names = {each.stem for each in TESTS.rglob("test_*.py")}
    for file in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                parts = (node.module or "").split(".")
                assert parts[0] in {"toolwire", "benchmarks"} or parts[-1] not in names, (
                    f"{file}:{node.lineno}"
                )
