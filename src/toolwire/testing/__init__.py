"""The test kit: a scripted model, a scripted CLI, recordings, a direct client, and an environment for the real CLI.

Each name is imported when it is first used, so that the pytest plugin costs nothing in tests that do not use it.
`make generate` writes the stub for type checkers from this list.
"""

from toolwire import _find_names, _load_lazily

_TEST_NAMES = {
    "testing.scripted_cli.cli": "ScriptedCLI",
    "testing.scripted_cli.host": "ToolCall",
    "mcp.direct_client": """
        CallResult Completed DirectClient ListedPrompt ListedResource ListedTemplate ListedTool Notified
        PromptResult ResourceContent connect
    """,
    "testing.environment": "ClaudeEnvironment allow_live claude_environment",
    "testing.scripted_model": "ScriptedModel Unexpected",
    "testing.recording": "Recorder Replay ReplayMismatch",
    "testing.store_conformance": "run_session_store_conformance",
    "testing.script": """
        Answer Request Rule Scene Step ToolResult answer call drop exit_early expect fail garbage hang say silence
        think turn when
    """,
}

_load_lazily(globals(), _find_names(_TEST_NAMES))
