"""Which names mean a secret, and that a configuration can be shown without its secrets."""

import json

import pytest

from toolwire._support.secrets import (
    REDACTED,
    hide,
    holds_secrets,
    is_secret_name,
    keep_secret,
    redact,
    secret_values,
)

HIDDEN = """
    DB_PWD GH_PAT SMTP_PASS DB_PASS PASS SSHPASS MYSQL_PWD PGPASSWORD PGPASSFILE_PASSWORD REDIS_PASSWORD
    MYSQL_ROOT_PASSWORD GOOGLE_APPLICATION_CREDENTIALS AWS_CREDENTIALS DB_CREDS SENTRY_DSN DATABASE_DSN COOKIE
    SESSION_COOKIE Set-Cookie SESSION_KEY ANTHROPIC_API_KEY OPENAI_API_KEY AWS_ACCESS_KEY_ID
    AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN STRIPE_KEY apiKey api_key apikey apiKeyHelper X-Api-Key X-Auth-Token
    Authorization Proxy-Authorization authorization ANTHROPIC_AUTH_TOKEN CLAUDE_CODE_OAUTH_TOKEN gh_token
    GITHUB_TOKEN GITHUBTOKEN NPM_TOKEN INPUT_TOKEN accessToken refresh_token id_token client_secret clientSecret
    SECRET JWT_SECRET CI_JOB_JWT X_AUTH BASIC_AUTH BASICAUTH SSH_PRIVATE_KEY PRIVATE_KEY PASSPHRASE
    GPG_PASSPHRASE DB_PASSWD passwd BEARER SLACK_WEBHOOK_URL SAS_TOKEN AZURE_STORAGE_CONNECTION_STRING
    OTEL_EXPORTER_OTLP_HEADERS signature sig MAX_BOT_TOKEN RATE_LIMIT_BYPASS_TOKEN VAULT_TOKEN TOTP_SECRET
    BACKUP_KEYS
"""
SHOWN = """
    PATH HOME PWD OLDPWD USER SHELL TERM LANG COMPASS COMPASS_URL PASSENGER PASSENGER_COUNT BYPASS BYPASS_CACHE
    TOKENIZERS_PARALLELISM MAX_TOKENS CLAUDE_CODE_MAX_OUTPUT_TOKENS MAX_THINKING_TOKENS OUTPUT_TOKENS
    TOKEN_LIMIT token_count GIT_AUTHOR_NAME AUTHOR AUTHORS KEYBOARD KEYBOARD_LAYOUT MONKEY MONKEY_PATCH TURKEY
    HOTKEY SSH_AUTH_SOCK PASS_THROUGH XDG_SESSION_ID DESKTOP_SESSION EDITOR PATTERN PATIENT SPATIAL KEYCLOAK_URL
    SECRETARY Accept Content-Type User-Agent TMPDIR DATABASE_URL NODE_ENV DEBUG PORT HOSTNAME SIGNAL
    GIT_ASKPASS SSH_ASKPASS NEXTAUTH_URL AUTH_MODE TOKEN_URL PASSWORD_FILE
"""


def test_ordinary_words_of_headers_stay_readable():
    """The value of a header whose name means no secret is searched for in texts only if it is no plain word."""
    found = set(secret_values({"headers": {"X-Environment": "production", "X-Team": "team-7"}}))
    assert found == {"team-7"}


def test_headers_on_a_command_line_are_hidden():
    """The argument after a flag for headers is hidden."""
    shown = hide(
        {"args": ["mcp-remote", "--header", "X-Key: abc", "-H", "X-Key: abc", "https://example.com/"]}
    )
    assert shown["args"] == ["mcp-remote", "--header", REDACTED, "-H", REDACTED, "https://example.com/"]


def test_there_are_enough_names():
    """The tables have at least a hundred names."""
    assert len({*HIDDEN.split(), *SHOWN.split()}) >= 100


@pytest.mark.parametrize("name", HIDDEN.split())
def test_names_of_secrets(name):
    """Variables, headers, fields and parameters that hold secrets are known by their names."""
    assert is_secret_name(name)


@pytest.mark.parametrize("name", SHOWN.split())
def test_other_names(name):
    """Words that only look like the names of secrets are not taken for them."""
    assert not is_secret_name(name)


CONFIG = {
    "remote": {
        "type": "http",
        "url": "https://me:url-password@host.example/s/pathToken1234567890abcd/mcp?token=query-token&page=page-value#frag",
        "headers": {"Authorization": "Bearer header-token", "X-Team": "team-value", "Accept": "text/plain"},
    },
    "local": {
        "command": "npx",
        "args": ["-y", "server", "--api-key", "argument-one", "--token=argument-two", "--verbose"],
        "env": {"DB_PWD": "env-password", "NOTE": "env-note"},
    },
}
SECRETS = (
    *("url-password", "pathToken1234567890abcd", "query-token", "header-token", "team-value"),
    *("argument-one", "argument-two", "env-password"),
)


@pytest.mark.parametrize("form", [CONFIG, json.dumps(CONFIG), [CONFIG], {"mcpServers": CONFIG}], ids=type)
def test_a_configuration_is_shown_with_names_and_without_values(form):
    """A reader sees which servers there are and what is set for them."""
    shown = repr(hide(form))
    for secret in (*SECRETS, "env-note", "page-value", "frag"):
        assert secret not in shown
    for name in (
        "remote",
        "host.example",
        "Authorization",
        "X-Team",
        "npx",
        "DB_PWD",
        "NOTE",
        "--api-key",
        "--verbose",
    ):
        assert name in shown
    assert holds_secrets(form)


def test_the_secrets_of_a_configuration_are_found():
    """They are what the log must not show; a harmless header is not among them."""
    found = set(secret_values(CONFIG))
    assert found >= set(SECRETS)
    assert "text/plain" not in found
    assert "env-note" not in found


@pytest.mark.parametrize(
    ("segment", "random"),
    [
        ("0b7fbc8e-2d2b-4a55-9d0a-0e6c2c8a5f11", True),
        ("a8f5f167f44f4964e6c998dee827110c", True),
        ("Zk3x9QwLr_7TbVnM2pYc8dKfHs5", True),
        ("my-cool-service-v2-backend", False),
        ("some_project_name_of_2024", False),
        ("internationalisation", False),
    ],
)
def test_parts_of_a_path_that_are_secrets(segment, random):
    """Some servers have their token in the path; readable names stay."""
    url = f"https://host.example/s/{segment}/mcp"
    assert (segment not in hide(url)) == random
    assert (segment in set(secret_values(url))) == random


def test_a_secret_of_several_lines_is_hidden_line_by_line():
    """Logs and stderr come line by line."""
    key = "-----BEGIN KEY-----\nfirstLineOfTheKey0123456789\nshort\n-----END KEY-----"
    keep_secret([key])
    assert redact("it is firstLineOfTheKey0123456789") == f"it is {REDACTED}"
    assert redact("short") == "short"


def test_what_holds_no_secret_stays_as_it_is():
    """Hiding changes nothing that can be shown."""
    plain = {
        "permissions": {"allow": ["Bash(ls)"]},
        "model": "opus",
        "n": [1, None, True, 2.5],
        "url": "http://127.0.0.1:80/mcp",
        "env": {},
        "tokens": None,
        "private": False,
    }
    assert hide(plain) == plain
    assert not holds_secrets(plain)
    assert not holds_secrets("settings.json")
    assert holds_secrets('{"broken')


def test_a_deep_configuration_is_hidden():
    """No configuration is too deep; below a limit nothing is shown."""
    deep: dict = {}
    inner = deep
    for _ in range(5_000):
        inner["a"] = {}
        inner = inner["a"]
    inner["token"] = "deep-secret"  # noqa: S105
    assert "deep-secret" not in repr(hide(deep))
    assert list(secret_values("[" * 100_000)) == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "GET http://me:pa@ss@h/x?api_key=123&page=2",
            f"GET http://{REDACTED}@h/x?api_key={REDACTED}&page=2",
        ),
        ("Authorization: Bearer abc.def-ghi", f"Authorization: Bearer {REDACTED}"),
        ("with ghp_0123456789abcdefghij.", f"with {REDACTED}."),
        ("task-force sk-1 risk-averse", "task-force sk-1 risk-averse"),
        ("http://host/path?page=2&q=token", "http://host/path?page=2&q=token"),
    ],
)
def test_secrets_known_by_their_looks(text, shown):
    """Tokens of well-known kinds, passwords in URLs and parameters named like a secret are never shown."""
    assert redact(text) == shown


@pytest.mark.parametrize(
    "value", ['quo"te and \\ back', "per%20cent 100%", "ümlaut/slash+plus", "line\nbreak-value"]
)
def test_known_values_are_hidden_in_the_usual_spellings(value):
    """They are hidden as they are, in JSON, in a repr and in a URL."""
    from urllib.parse import quote  # noqa: PLC0415

    keep_secret([value])
    for spelled in (value, json.dumps(value), repr(value), quote(value, safe="")):
        assert redact(f"<{spelled}>").replace('"', "").replace("'", "") == f"<{REDACTED}>"


def test_a_long_lived_service_stays_quick():
    """Only the latest values are remembered: a service with a new token for each session stays quick."""
    from toolwire._support import secrets as _secrets  # noqa: PLC0415

    for number in range(3_000):
        keep_secret([f"token-number-{number}"])
    assert len(_secrets._known) <= 2_000
    assert redact("token-number-2999") == REDACTED


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece", ["?", "a?", "eyJ-", "://", "a.", "&=", "sk-", "--key", "@://", "x" * 50 + "1"]
)
@pytest.mark.timeout(60)
def test_long_odd_texts_take_no_time(piece):
    """A hostile line does not stop the event loop: 200 kB that kept a careless pattern busy for minutes."""
    text = piece * (200_000 // len(piece))
    redact(text)
    hide([text])
    list(secret_values([text]))
