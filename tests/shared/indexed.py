"""A config folder of the CLI with an index of its own, for the tests of the index and of the search."""

import os
import uuid

import pytest

from shared.transcripts import Writer
from toolwire import sessions
from toolwire.sessions.index import find_index_folder


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Return a config folder for the CLI, whose index is in the test's folder too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "config"


def write(config, number=1, *prompts, key="-work", title=None):
    """Write a session with an answer to each prompt, and return its path."""
    writer = Writer(str(uuid.UUID(int=number)))
    place = None
    for prompt in prompts or (f"prompt {number}",):
        place = writer.answer(writer.ask(place, prompt), f"answer to {prompt}")
    if title:
        writer.note(type="custom-title", customTitle=title)
    path = writer.write(config, key)
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return path


def find(config, query, **more):
    """Search, and return the prompts and answers that are found."""
    return [
        hit.snippet.replace("**", "") for hit in sessions.search_sessions(query, config_dir=config, **more)
    ]


def index_file(config):
    """Return the index file."""
    [path] = find_index_folder(config).glob("index-*.db")
    return path
