"""`toolwire config` for every client, printed and installed, with a temporary home folder."""

import json
import os
import shlex
import stat
import sys
from pathlib import Path

import anyio
import pytest
from typer.testing import CliRunner

from mcp import Client, StdioServerParameters, stdio_client
from toolwire.cli import config_clients as _clients
from toolwire.cli.main import app
from toolwire.errors import UsageError

CODE = '''
from toolwire import ToolServer

{name} = ToolServer({called!r})


@{name}.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''
ALL = ["claude-desktop", "claude-code", "cursor", "vscode"]
URL = "http://127.0.0.1:8000/mcp"
REMOTE = ["--http", URL, "--name", "shop"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Return a project folder with one server; the home folder is temporary."""
    tmp_path = tmp_path.resolve()
    project = tmp_path / "my prøject"
    project.mkdir()
    (project / "shop_tools.py").write_text(CODE.format(name="server", called="shop"))
    monkeypatch.chdir(project)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("APPDATA", str(tmp_path / "home" / "appdata"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return project


def config(*arguments, code=0):
    """Run the command in this process."""
    done = CliRunner().invoke(app, ["config", *map(str, arguments)])
    assert done.exit_code == code, (done.stdout, done.stderr, done.exception)
    return done


def refused(*arguments):
    """Return the error on stderr; nothing may be on stdout then."""
    done = config(*arguments, code=2)
    assert done.stdout == ""
    return done.stderr


def usual(client, tmp_path):
    """Return the path of that client's file in these tests."""
    return {
        "claude-desktop": tmp_path / "home" / ".config" / "Claude" / "claude_desktop_config.json",
        "claude-code": Path.cwd() / ".mcp.json",
        "cursor": Path.cwd() / ".cursor" / "mcp.json",
        "vscode": Path.cwd() / ".vscode" / "mcp.json",
    }[client]


@pytest.mark.parametrize("client", ALL)
def test_a_server_that_the_client_starts(client, folder):
    """Stdout has only the entry: this Python, and the absolute path of the file."""
    done = config("shop_tools.py:server", "--for", client)
    document = json.loads(done.stdout)
    entry = document["servers" if client == "vscode" else "mcpServers"]["shop"]
    assert entry.pop("type", None) == ("stdio" if client in ("claude-code", "vscode") else None)
    args = ["-P", "-m", "toolwire", "serve", f"{folder / 'shop_tools.py'}:server"]
    assert entry == {"command": os.path.abspath(sys.executable), "args": args}  # noqa: PTH100
    assert "--install" in done.stderr


@pytest.mark.parametrize("client", ALL)
def test_stderr_names_the_file_for_the_entry(client, tmp_path):
    """It also says how to install it; no file is changed."""
    done = config("shop_tools.py:server", "--for", client)
    assert str(usual(client, tmp_path)) in done.stderr
    assert not usual(client, tmp_path).exists()


@pytest.mark.parametrize("client", ALL)
def test_install_creates_the_file_and_remove_removes_the_entry(client, tmp_path):
    """Folders are created; a second install changes nothing; the installed entry is the printed one."""
    file = usual(client, tmp_path)
    printed = json.loads(config("shop_tools.py:server", "--for", client).stdout)
    done = config("shop_tools.py:server", "--for", client, "--install")
    assert done.stdout == ""
    assert json.loads(file.read_text()) == printed
    before = file.read_bytes()
    assert "already" in config("shop_tools.py:server", "--for", client, "--install").stderr
    assert [path.name for path in file.parent.iterdir() if "mcp" in path.name or "claude" in path.name] == [
        file.name
    ]
    config("shop_tools.py:server", "--for", client, "--remove")
    assert json.loads(file.read_text()) == {next(iter(printed)): {}}
    assert file.with_name(f"{file.name}.bak").read_bytes() == before


def test_the_rest_of_the_file_is_kept(folder):
    """Other servers and keys, their order, numbers, characters and the file's mode stay; a backup is written."""
    file = folder / ".mcp.json"
    text = '{"z": [1, 1.5, null, "\\ud83d\\ude00 é"], "mcpServers": {"b": {"c": "x"}, "a": {}}, "y": {"k": true}}'
    file.write_text(text, encoding="utf-8")
    file.chmod(0o640)
    config("shop_tools.py:server", "--for", "claude-code", "--install")
    after = json.loads(file.read_text(encoding="utf-8"))
    assert list(after) == ["z", "mcpServers", "y"]
    assert list(after["mcpServers"]) == ["b", "a", "shop"]
    del after["mcpServers"]["shop"]
    assert after == json.loads(text)
    backup = folder / ".mcp.json.bak"
    assert backup.read_text(encoding="utf-8") == text
    if os.name == "posix":
        assert {stat.S_IMODE(path.stat().st_mode) for path in (file, backup)} == {0o640}
    assert sorted(path.name for path in folder.glob(".*")) == [".mcp.json", ".mcp.json.bak"]


def test_another_server_of_that_name_is_refused_and_replaced_with_force(folder):
    """With --force, the new entry takes the old one's place in the file."""
    file = folder / ".mcp.json"
    file.write_text('{"mcpServers": {"shop": {"command": "other"}, "last": {}}}')
    before = file.read_bytes()
    said = refused("shop_tools.py:server", "--for", "claude-code", "--install")
    assert "another server called 'shop'" in said
    assert "--force" in said
    assert file.read_bytes() == before
    config("shop_tools.py:server", "--for", "claude-code", "--install", "--force")
    servers = json.loads(file.read_text())["mcpServers"]
    assert list(servers) == ["shop", "last"]
    assert servers["shop"]["args"][:4] == ["-P", "-m", "toolwire", "serve"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{\n  "mcpServers": {"a" 1}\n}', "line 2, column 22"),
        ("[]", "holds a list, not an object"),
        ('{"mcpServers": []}', "has a list under 'mcpServers', not an object"),
        ('{"mcpServers": {}, "a": NaN}', "NaN is not JSON"),
        ('{"mcpServers": {"a": {}, "a": {}}}', "'a' occurs twice"),
        ('// mine\n{"mcpServers": {}}', "comments or trailing commas"),
        ('{"url": "http://x", /* mine */ "mcpServers": {},}', "comments or trailing commas"),
        (b"{\xff}", "not UTF-8"),
        ("[" * 100_000, "Nothing was changed"),
    ],
)
@pytest.mark.parametrize("action", ["--install", "--remove"])
def test_a_file_that_would_lose_content_is_not_changed(text, said, action, folder):
    """Broken JSON is reported with line and column; content that could not be kept is refused."""
    file = folder / ".mcp.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = file.read_bytes()
    assert said in refused("shop_tools.py:server", "--for", "claude-code", action)
    assert file.read_bytes() == before
    assert [path.name for path in folder.glob(".*")] == [".mcp.json"]


@pytest.mark.parametrize("text", ["", " \n", "{}", "\ufeff{}"])
def test_an_empty_file_is_filled(text, folder):
    """A byte order mark stays."""
    file = folder / ".mcp.json"
    file.write_text(text, encoding="utf-8")
    config("shop_tools.py:server", "--for", "claude-code", "--install")
    assert "shop" in json.loads(file.read_text(encoding="utf-8-sig"))["mcpServers"]
    assert file.read_text(encoding="utf-8").startswith("\ufeff") == text.startswith("\ufeff")


def test_a_lone_surrogate_is_kept(folder):
    """JSON can contain one in escaped form, although UTF-8 cannot."""
    file = folder / ".mcp.json"
    file.write_text('{"odd": "\\ud800"}')
    config("shop_tools.py:server", "--for", "claude-code", "--install")
    assert json.loads(file.read_text())["odd"] == "\ud800"


@pytest.mark.skipif(os.name != "posix", reason="needs links")
def test_a_link_to_the_file_stays_a_link(folder, tmp_path):
    """Users keep such files elsewhere and link to them."""
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    (folder / ".mcp.json").symlink_to(real)
    config("shop_tools.py:server", "--for", "claude-code", "--install")
    assert (folder / ".mcp.json").is_symlink()
    assert "shop" in json.loads(real.read_text())["mcpServers"]


def test_a_write_that_fails_is_an_error_and_changes_nothing(folder):
    """Here the backup cannot be written; no partial file is left either."""
    (folder / ".mcp.json").write_text("{}")
    (folder / ".mcp.json.bak").mkdir()
    done = config("shop_tools.py:server", "--for", "claude-code", "--install", code=1)
    assert "cannot write" in done.stderr
    assert (folder / ".mcp.json").read_text() == "{}"
    assert sorted(path.name for path in folder.glob(".*")) == [".mcp.json", ".mcp.json.bak"]


def test_a_file_in_place_of_a_folder_is_an_error(folder):
    """The error names the file, without a traceback."""
    (folder / ".cursor").write_text("")
    done = config("shop_tools.py:server", "--for", "cursor", "--install", code=1)
    assert str(folder / ".cursor") in done.stderr
    assert "Traceback" not in done.stderr


def test_path_names_another_file(folder):
    """`--path` is used whatever the scope is."""
    config(
        "shop_tools.py:server", "--for", "vscode", "--scope", "user", "--install", "--path", "sub/x y.json"
    )
    assert "shop" in json.loads((folder / "sub" / "x y.json").read_text())["servers"]
    assert "is a folder" in refused("shop_tools.py:server", "--for", "vscode", "--path", "sub")


@pytest.mark.parametrize(
    ("client", "body"),
    [
        ("claude-code", {"type": "http", "url": URL}),
        ("cursor", {"url": URL}),
        ("vscode", {"type": "http", "url": URL}),
        ("claude-desktop", {"command": "npx", "args": ["-y", "mcp-remote", URL]}),
    ],
)
def test_a_server_that_runs_already(client, body):
    """The entry has its URL; a client that can only start processes gets a bridge, and the user a note."""
    done = config(*REMOTE, "--for", client)
    (servers,) = json.loads(done.stdout).values()
    assert servers == {"shop": body}
    assert ("mcp-remote" in done.stderr) == (client == "claude-desktop")


@pytest.mark.parametrize(
    ("client", "reference"),
    [
        ("claude-code", "${MY_SHOP_TOKEN}"),
        ("cursor", "${env:MY_SHOP_TOKEN}"),
        ("vscode", "${input:my-shop-token}"),
    ],
)
@pytest.mark.parametrize("more", [[], ["--json"], ["--install"], ["--install", "--json"]])
def test_a_token_is_referred_to_and_never_written(client, reference, more, folder):
    """If the client can refer to a secret, the token is neither printed nor written to a file."""
    given = ["--http", URL, "--name", "my-shop", "--token", "s3cret"]
    printed = json.loads(config(*given, "--for", client).stdout)
    entry = printed["servers" if client == "vscode" else "mcpServers"]["my-shop"]
    assert entry["headers"] == {"Authorization": f"Bearer {reference}"}
    if client == "vscode":
        assert [each["id"] for each in printed["inputs"]] == ["my-shop-token"]
        assert printed["inputs"][0]["password"] is True
    done = config(*given, "--for", client, *more)
    assert "s3cret" not in done.output
    assert not any(b"s3cret" in path.read_bytes() for path in folder.rglob("*.json*"))


def test_a_token_that_must_be_plain_comes_with_a_warning(tmp_path):
    """Claude Desktop cannot refer to a secret. Only the user can read the new file."""
    done = config(*REMOTE, "--token", "s3cret", "--for", "claude-desktop", "--install")
    assert "Warning" in done.stderr
    file = usual("claude-desktop", tmp_path)
    (entry,) = json.loads(file.read_text())["mcpServers"].values()
    assert entry["env"] == {"AUTH_HEADER": "Bearer s3cret"}
    assert entry["args"][-2:] == ["--header", "Authorization:${AUTH_HEADER}"]
    if os.name == "posix":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_bridge_allows_http_to_other_machines():
    """mcp-remote would refuse plain HTTP without that option."""
    entry = _clients.http_entry(_clients.CLIENTS["claude-desktop"], "x", "http://example.com/mcp")
    assert "--allow-http" in entry.body["args"]


def test_the_token_input_of_vscode_is_added_once_and_removed_with_the_server(folder):
    """Other inputs stay, and so does the token's if another server refers to it."""
    file = folder / ".vscode" / "mcp.json"
    file.parent.mkdir()
    other = {"type": "promptString", "id": "other", "description": "x"}
    file.write_text(json.dumps({"inputs": [other], "servers": {}}))
    given = [*REMOTE, "--token", "t", "--for", "vscode"]
    config(*given, "--install")
    assert [each["id"] for each in json.loads(file.read_text())["inputs"]] == ["other", "shop-token"]
    config(*given, "--remove")
    assert json.loads(file.read_text()) == {"inputs": [other], "servers": {}}
    config(*given, "--install")
    document = json.loads(file.read_text())
    document["servers"]["twin"] = document["servers"]["shop"]
    file.write_text(json.dumps(document))
    config(*given, "--remove")
    assert [each["id"] for each in json.loads(file.read_text())["inputs"]] == ["other", "shop-token"]


def test_the_user_scope_of_claude_code_is_a_command(tmp_path):
    """Only the CLI itself may write that file, so the command is printed, with and without --install."""
    for more in ([], ["--install"]):
        done = config("shop_tools.py:server", "--for", "claude-code", "--scope", "user", *more)
        words = shlex.split(done.stdout)
        assert words[:4] == ["claude", "mcp", "add-json", "shop"]
        assert words[5:] == ["--scope", "user"]
        assert json.loads(words[4])["type"] == "stdio"
        assert "Not installed yet" in done.stderr
    done = config("shop_tools.py:server", "--for", "claude-code", "--scope", "user", "--remove")
    assert done.stdout == "claude mcp remove shop --scope user\n"
    assert not (tmp_path / "home").exists()


def test_the_inputs_for_keys_are_removed_with_the_server_that_needed_them():
    """They are recognised whatever their ids are; one that another server refers to stays."""
    client = _clients.CLIENTS["vscode"]
    other = _clients.stdio_entry(client, "other", "python", [], secrets=["SHARED_KEY"])
    shop = _clients.stdio_entry(client, "shop", "python", [], secrets=["SHOP_KEY", "SHARED_KEY"])
    before = _clients.merge({}, client, other, "x")
    assert _clients.remove(_clients.merge(before, client, shop, "x"), client, "shop", "x") == before


def test_the_user_scope_of_vscode_is_a_command():
    """The command includes the input for the token; an entry can only be removed in VS Code itself."""
    done = config(*REMOTE, "--token", "t", "--for", "vscode", "--scope", "user", "--install")
    command, flag, text = shlex.split(done.stdout)
    assert (command, flag) == ("code", "--add-mcp")
    value = json.loads(text)
    assert (value["name"], value["url"], value["inputs"][0]["id"]) == ("shop", URL, "shop-token")
    assert "Open User Configuration" in refused(*REMOTE, "--for", "vscode", "--scope", "user", "--remove")


def test_the_user_scope_of_cursor_is_a_file(tmp_path):
    """It is in the home folder."""
    config("shop_tools.py:server", "--for", "cursor", "--scope", "user", "--install")
    assert "shop" in json.loads((tmp_path / "home" / ".cursor" / "mcp.json").read_text())["mcpServers"]


@pytest.mark.parametrize(
    ("called", "name"),
    [
        ("My Shop!", "My-Shop"),
        ("Zoë's  Café", "Zoe-s-Cafe"),
        ("a.b/c", "a-b-c"),
        ("__x__", "x"),
        ("店 one", "one"),
    ],
)
def test_a_server_gets_a_name_that_every_client_accepts(called, name, folder):
    """The name stays as close to the server's own as possible."""
    (folder / "odd_names.py").write_text(CODE.format(name="server", called=called), encoding="utf-8")
    done = config("odd_names.py:server", "--for", "cursor")
    assert list(json.loads(done.stdout)["mcpServers"]) == [name]


def test_invalid_names_are_refused():
    """The error says which names are accepted."""
    assert "such as 'my-shop'" in refused("shop_tools.py:server", "--for", "cursor", "--name", "my shop")
    assert "letters, digits" in refused("shop_tools.py:server", "--for", "cursor", "--name", "店")
    assert _clients.legal_name("店") == ""


def test_a_module_of_this_folder_gets_a_pythonpath(folder):
    """The client starts the server in another folder. --env adds variables and can override PYTHONPATH."""
    package = folder / "shop_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "server.py").write_text(CODE.format(name="calc", called="calc"))
    for module in ("shop_package.server", "shop_tools"):
        target = f"{module}:{'calc' if module == 'shop_package.server' else 'server'}"
        (entry,) = json.loads(config(target, "--for", "cursor").stdout)["mcpServers"].values()
        assert entry["args"][-1] == target
        assert entry["env"] == {"PYTHONPATH": str(folder)}
    given = ["--env", "A=b=c", "--env", "PYTHONPATH=/x"]
    (entry,) = json.loads(config(target, "--for", "cursor", *given).stdout)["mcpServers"].values()
    assert entry["env"] == {"PYTHONPATH": "/x", "A": "b=c"}


def test_an_installed_module_needs_no_pythonpath():
    """Python finds it by itself."""
    (entry,) = json.loads(config("toolwire.cli.demo:calculator", "--for", "cursor").stdout)[
        "mcpServers"
    ].values()
    assert "env" not in entry


def test_a_file_or_module_may_come_without_a_name(folder):
    """Its only server is used, by this command and by the client."""
    for target, expected in (("shop_tools.py", str(folder / "shop_tools.py")), ("shop_tools", "shop_tools")):
        (entry,) = json.loads(config(target, "--for", "cursor").stdout)["mcpServers"].values()
        assert entry["args"] == ["-P", "-m", "toolwire", "serve", expected]


def test_a_file_may_be_called_like_a_module_of_python(folder):
    """A client starts the server in the project, where email.py would hide Python's own `email` from toolwire."""
    (folder / "email.py").write_text(CODE.format(name="server", called="mail"))
    (entry,) = json.loads(config("email.py", "--for", "claude-code").stdout)["mcpServers"].values()

    async def use():
        start = StdioServerParameters(command=entry["command"], args=entry["args"], cwd=folder)
        async with Client(stdio_client(start)) as client:
            return (await client.call_tool("add", {"a": 15, "b": 27})).content[0].text

    assert anyio.run(use) == "42"


def test_a_url_as_the_target_makes_toolwire_the_bridge():
    """This is for clients that only start processes, and needs no Node.js."""
    (entry,) = json.loads(config(URL, "--for", "claude-desktop").stdout)["mcpServers"].values()
    assert entry["args"] == ["-P", "-m", "toolwire", "serve", URL]
    assert "env" not in entry


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["nowhere.py:server", "--for", "cursor"], "nowhere.py"),
        (["shop_tools.py:gone", "--for", "cursor"], "gone"),
        (["--for", "cursor"], "no target given"),
        (["--for", "cursor", "--http", URL], "no target given"),
        (["shop_tools.py", "--for", "cursor", "--install", "--remove"], "exclude each other"),
        (["shop_tools.py", "--for", "cursor", "--token", "x"], "--http"),
        ([*REMOTE, "--for", "cursor", "--env", "A=b"], "--env"),
        (["shop_tools.py:server", "--for", "cursor", "--env", "A"], "NAME=value"),
        (["--name", "x", "--http", "localhost:80", "--for", "cursor"], "needs the URL of a running server"),
        (["shop_tools.py:server", "--for", "claude-desktop", "--scope", "project"], "leave --scope out"),
        (["--name", "x", "--remove", "--for", "cursor"], "nothing to remove"),
        (["shop_tools.py", "--for", "emacs"], "emacs"),
        (["shop_tools.py"], "--for"),
    ],
)
def test_wrong_use_is_a_one_line_error(given, said):
    """With exit code 2 and nothing on stdout."""
    assert said in refused(*given)


def test_removing_a_missing_entry_lists_the_others(folder):
    """So the user can give the right name."""
    (folder / ".mcp.json").write_text('{"mcpServers": {"one": {}, "two": {}}}')
    said = refused("--name", "three", "--remove", "--for", "claude-code")
    assert "it has one, two" in said
    config("--name", "two", "--remove", "--for", "claude-code")  # needs no target
    assert json.loads((folder / ".mcp.json").read_text()) == {"mcpServers": {"one": {}}}


def test_json_reports_the_outcome(folder):
    """Stdout has one JSON object, and stderr is empty."""
    actions = []
    for more in ([], ["--install"], ["--install"], ["--remove"], ["--scope", "user"]):
        done = config("shop_tools.py:server", "--for", "claude-code", "--json", *more)
        facts = json.loads(done.stdout)
        actions.append(facts["action"])
        assert (facts["client"], facts["name"], done.stderr) == ("Claude Code", "shop", "")
        assert facts["file"] == (None if "user" in more else str(folder / ".mcp.json"))
    assert actions == ["shown", "installed", "unchanged", "removed", "command"]


def test_what_the_users_file_prints_stays_out_of_the_entry(folder):
    """Stdout has only the JSON."""
    (folder / "loud.py").write_text("print('hello')\n" + CODE.format(name="server", called="loud"))
    done = config("loud.py:server", "--for", "cursor")
    assert "loud" in json.loads(done.stdout)["mcpServers"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other folders")
@pytest.mark.parametrize(
    ("given", "expected"), [(None, "home/.config"), ("{}/xdg", "xdg"), ("not/absolute", "home/.config")]
)
def test_where_claude_desktop_keeps_its_file(tmp_path, monkeypatch, given, expected):
    """In the user's folder for configuration, whatever the scope."""
    if given is not None:
        monkeypatch.setenv("XDG_CONFIG_HOME", given.format(tmp_path))
    client = _clients.CLIENTS["claude-desktop"]
    for scope in ("user", "project"):
        found = _clients.place(client, scope)
        assert found == tmp_path / expected / "Claude" / "claude_desktop_config.json"


def test_a_command_for_windows_is_quoted_for_windows():
    """The JSON is in double quotes, and quotes inside it are escaped."""
    command = ["claude", "mcp", "add-json", "x", '{"a": 1}']
    assert _clients.quote_command(command, "win32") == 'claude mcp add-json x "{\\"a\\": 1}"'
    assert _clients.quote_command(command, "linux") == """claude mcp add-json x '{"a": 1}'"""


def test_text_for_a_terminal_that_knows_ascii_only():
    """Other characters are escaped, so that nothing is lost."""
    assert _clients.to_text({"é": 1}, ascii_only=True) == '{\n  "\\u00e9": 1\n}'
    assert _clients.to_text({"é": 1}) == '{\n  "é": 1\n}'


def test_merging_does_not_change_its_arguments():
    """`merge` returns a new document; `inputs` that are not a list are an error."""
    client = _clients.CLIENTS["vscode"]
    document = {"servers": {"a": {}}, "inputs": []}
    entry = _clients.http_entry(client, "b", URL, "t")
    merged = _clients.merge(document, client, entry, "x")
    assert document == {"servers": {"a": {}}, "inputs": []}
    assert _clients.remove(merged, client, "b", "x") == {"servers": {"a": {}}}
    with pytest.raises(UsageError, match="'inputs', not a list"):
        _clients.merge({"inputs": {}}, client, entry, "x")


@pytest.mark.parametrize("target", ["shop_tools.py:server", "shop_tools:server"])
def test_a_printed_entry_starts_a_server(target, tmp_path, monkeypatch):
    """A client that has only the entry starts the server from another folder and calls its tool."""
    (entry,) = json.loads(config(target, "--for", "cursor").stdout)["mcpServers"].values()
    monkeypatch.chdir(tmp_path)

    async def use():
        with anyio.fail_after(60), (tmp_path / "stderr").open("w") as errors:
            transport = stdio_client(StdioServerParameters(**entry, cwd=str(tmp_path)), errlog=errors)
            async with Client(transport) as client:
                return await client.call_tool("add", {"a": 1, "b": 2})

    assert anyio.run(use).content[0].text == "3"
