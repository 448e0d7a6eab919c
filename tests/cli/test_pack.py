"""`toolwire pack`: what a bundle contains, and what it never contains."""

import json
import tomllib
import zipfile

import pytest
from typer.testing import CliRunner

from toolwire.cli.main import app

APP = '''
import helper
from toolwire import ToolServer

shop = ToolServer("shop", version="2.3.4")

@shop.tool
def find(word: str) -> str:
    """Find a thing."""
    return helper.WORD
'''


@pytest.fixture
def pack(tmp_path, monkeypatch):
    """Return a function that runs the command in a folder with a server, a module of it, and unrelated files."""
    (tmp_path / "shop_app.py").write_text(APP)
    (tmp_path / "helper.py").write_text("WORD = 'tea'")
    (tmp_path / "other.py").write_text("raise SystemExit")
    (tmp_path / ".env").write_text("SHOP_KEY=sesame")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "prices.csv").write_text("tea,1")
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["requests>=2", "toolwire>=0.1"]')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOP_KEY", "sesame")
    monkeypatch.setenv("AGENT_PAYMENT_TOKEN", "sesame")
    return lambda *words: CliRunner().invoke(app, ["pack", *words])


def read(path):
    with zipfile.ZipFile(path) as bundle:
        return {name: bundle.read(name) for name in bundle.namelist()}


def test_a_bundle_has_the_target_its_neighbours_and_toolwire(pack, tmp_path):
    """The bundle has no other files; its manifest starts the server from any folder that it is unpacked to."""
    done = pack("shop_app.py:shop", "--env", "SHOP_KEY", "--with", "rich>=13", "--file", "data")
    assert done.exit_code == 0, done.output
    contents = read(tmp_path / "shop.mcpb")
    own = [name for name in contents if not name.startswith("server/toolwire/")]
    assert sorted(own) == [
        *("app/data/prices.csv", "app/helper.py", "app/shop_app.py"),
        *("manifest.json", "pyproject.toml"),
    ]
    assert "server/toolwire/cli/templates/server.py.txt" in contents
    assert not any(name.endswith((".pyc", ".pyi")) for name in contents)
    manifest = json.loads(contents["manifest.json"])
    assert (manifest["name"], manifest["version"]) == ("shop", "2.3.4")
    assert manifest["tools"] == [{"name": "find", "description": "Find a thing."}]
    config = manifest["server"]["mcp_config"]
    assert config["args"][-1] == "app/shop_app.py:shop"
    assert config["env"] == {"PYTHONPATH": "${__dirname}/server", "SHOP_KEY": "${user_config.shop_key}"}
    assert manifest["user_config"]["shop_key"]["sensitive"] is True
    needed = tomllib.loads(contents["pyproject.toml"].decode())["project"]["dependencies"]
    assert {"requests>=2", "rich>=13"} <= set(needed)
    assert any(each.startswith("mcp") for each in needed)
    assert not any(each.startswith("toolwire") for each in needed)


@pytest.mark.parametrize("words", [("shop_app.py", "--env", "SHOP_KEY"), ("catalog:agentpmt",)])
def test_no_key_is_inside(pack, tmp_path, words):
    """Neither a key of a catalogue, nor one in the environment or in a file of the folder."""
    assert pack(*words, "-o", "out.mcpb").exit_code == 0
    contents = read(tmp_path / "out.mcpb")
    assert not any(b"sesame" in data for data in contents.values())
    manifest = json.loads(contents["manifest.json"])
    assert all(each["sensitive"] for each in manifest["user_config"].values())


def test_the_same_input_makes_the_same_bundle(pack, tmp_path):
    """The bundles are equal byte for byte, so that a build can be verified."""
    assert pack("shop_app.py", "-o", "a.mcpb").exit_code == pack("shop_app.py", "-o", "b.mcpb").exit_code == 0
    assert (tmp_path / "a.mcpb").read_bytes() == (tmp_path / "b.mcpb").read_bytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["shop_app.py", "--env", "SHOP_KEY=sesame"], "--env SHOP_KEY: write the name of a variable"),
        (["shop_app.py", "--file", ".env"], "looks like a secret"),
        (["shop_app.py", "--file", "gone.txt"], "does not exist"),
        (["shop_app.py", "--file", "/etc/hostname"], "the folder of the target"),
        (["https://example.com/mcp"], "runs elsewhere"),
        (["catalog:agentpmt", "--file", "data"], "--file only applies to files"),
        (["shop_app"], "is a module: name its file"),
        (["shop_app.py", "--name", "!!!"], "choose one with --name"),
    ],
)
def test_what_cannot_be_packed_is_a_one_line_error(pack, tmp_path, words, said):
    """No file is written, and the error does not repeat a key."""
    done = pack(*words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert "sesame" not in done.output
    assert not list(tmp_path.glob("*.mcpb"))


def test_a_bundle_that_exists_is_kept(pack, tmp_path):
    """It is only replaced with --force."""
    (tmp_path / "shop.mcpb").write_text("mine")
    assert "exists" in pack("shop_app.py").stderr
    assert (tmp_path / "shop.mcpb").read_text() == "mine"
    assert pack("shop_app.py", "--force").exit_code == 0


DOCUMENT = """
openapi: 3.0.0
info: {title: Pets, version: "1"}
components: {securitySchemes: {api_key: {type: apiKey, in: header, name: x-key}}}
security: [{api_key: []}]
paths:
  /pets/{id}:
    get:
      operationId: getPet
      parameters: [{name: id, in: path, required: true, schema: {type: integer}}]
      responses: {"200": {description: ok}}
"""


def test_a_document_is_packed_with_its_address_and_the_names_of_its_keys(pack, tmp_path):
    """The user must enter the key after installing the bundle, whether or not it is set here."""
    (tmp_path / "pets.yaml").write_text(DOCUMENT)
    done = pack("openapi:pets.yaml", "--base-url", "https://pets.example.com/v1", "-o", "pets.mcpb")
    assert done.exit_code == 0, done.output
    contents = read(tmp_path / "pets.mcpb")
    assert contents["app/pets.yaml"].decode() == DOCUMENT
    manifest = json.loads(contents["manifest.json"])
    config = manifest["server"]["mcp_config"]
    assert config["args"][-3:] == ["openapi:app/pets.yaml", "--base-url", "https://pets.example.com/v1"]
    (variable,) = [name for name in config["env"] if name != "PYTHONPATH"]
    assert variable.startswith("TOOLWIRE_AUTH_")
    assert "pyyaml>=6" in tomllib.loads(contents["pyproject.toml"].decode())["project"]["dependencies"]


def test_a_document_without_a_file_ending_is_packed_too(pack, tmp_path):
    """The bundle has no path of this machine."""
    document = {"openapi": "3.0.3", "info": {"title": "T", "version": "1"}, "paths": {}}
    (tmp_path / "spec").write_text(json.dumps(document))
    done = pack("openapi:spec", "-o", "x.mcpb")
    assert done.exit_code == 0, done.output
    contents = read(tmp_path / "x.mcpb")
    assert json.loads(contents["app/spec"]) == document
    assert str(tmp_path) not in contents["manifest.json"].decode()


def test_no_file_from_outside_the_folder_is_packed(pack, tmp_path, monkeypatch):
    """Neither a path with `..` nor a link leads out of it; a link to a secret is refused like the secret."""
    inner = tmp_path / "inner"
    (inner / "data").mkdir(parents=True)
    (inner / "shop_app.py").write_text(APP.replace("import helper", "").replace("helper.WORD", "word"))
    (tmp_path / "outside.txt").write_text("x")
    monkeypatch.chdir(inner)
    done = pack("shop_app.py:shop", "--file", "data/../../outside.txt")
    assert (done.exit_code, "is not in" in done.output) == (2, True)
    (inner / "data" / "link").symlink_to(tmp_path / "outside.txt")
    done = pack("shop_app.py:shop", "--file", "data")
    assert (done.exit_code, "links to" in done.output) == (2, True)
    (inner / "data" / "link").unlink()
    (inner / ".env").write_text("KEY=x")
    (inner / "data" / "link").symlink_to(inner / ".env")
    done = pack("shop_app.py:shop", "--file", "data")
    assert (done.exit_code, "looks like a secret" in done.output) == (2, True)
    (inner / "data" / "link").unlink()
    (inner / "data" / ".env.local").write_text("KEY=x")
    done = pack("shop_app.py:shop", "--file", "data")
    assert (done.exit_code, "looks like a secret" in done.output) == (2, True)
    (inner / "data" / ".env.local").rename(inner / "data" / ".env.example")
    assert pack("shop_app.py:shop", "--file", "data").exit_code == 0
    assert not list(tmp_path.glob("*.mcpb"))


def test_a_base_url_is_for_documents(pack):
    """For any other target it is an error."""
    assert "--base-url only applies" in pack("shop_app.py", "--base-url", "https://x.example.com").stderr
