"""Where toolwire differs from the official package on purpose: one row each, with the reason.

The tests of this folder compare everything else, and fail when a row no longer says the truth.
"""

DIFFERENCES: dict[str, str] = {
    # A user's transport: what was played, and what is not the same.
    "transport/refuses initialize/error": "a ControlRequestError instead of a bare Exception, which it is too",
    "transport/cannot connect/calls": "what connect() had opened before it failed is closed",
    "transport/cannot write the prompt/error": "a streamed prompt that could not be sent is raised to the reader",
    "transport/cannot write the prompt/calls": "the input of a transport that cannot be written to is not ended",
    "transport/cannot write after the end of reading/calls": "the same",
    "transport/asks and ends/calls": "whoever asked is answered before close(), and as soon as it can be",
    "transport/asks and ends/written": "the same",
    "transport/end_input() raises/error": "it is raised to the reader, after the messages",
    "transport/close() raises/error": "a failure to close does not take away the answer: it is logged",
    # What `inspect` shows of a name.
    "inspect/ToolAnnotations/parameters": "it is the class of mcp itself, which has no maxResultSizeChars",
    "inspect/tool/defaults": "@tool works without arguments: they come from the function",
}


SESSIONS: list[tuple[str, str, str]] = [
    # case of `session_cases.py`, functions, reason. Everything else is the same.
    ("*", "get_session_messages_before_the_start", "a negative offset counts as none, as it does in lists"),
    ("*", "get_session_info_with_size_from_store", "a session in a store has no file, so no size of one"),
    ("a subagent", "fork_session fork_session_via_store", "a fork has its subagents"),
    (
        "a subagent",
        "import_session_to_store",
        "what is noted about a subagent comes first, as the CLI sends it",
    ),
    (
        "a subagent with parallel calls",
        "get_subagent_messages get_subagent_messages_from_store",
        "all calls are shown, not only the one that ended last",
    ),
    ("a subagent with parallel calls", "fork_session fork_session_via_store", "a fork has its subagents"),
    (
        "an id with a newline",
        (
            "rename_session tag_session delete_session fork_session import_session_to_store "
            "rename_session_via_store tag_session_via_store delete_session_via_store fork_session_via_store"
        ),
        "it is not a UUID: ValueError, as for every other text that is none",
    ),
    (
        "an id in capitals",
        (
            "get_session_info get_session_messages get_session_messages_page rename_session tag_session "
            "delete_session fork_session import_session_to_store"
        ),
        "the CLI writes ids in small letters: the session is found",
    ),
    (
        "a title in the middle",
        "list_sessions list_sessions_page get_session_info get_session_info_from_store fork_session",
        "titles and tags count wherever they are, not only in the first and last 64 KiB",
    ),
    (
        "a prompt behind a long line",
        "list_sessions list_sessions_page get_session_info get_session_info_from_store fork_session",
        "the session is listed, though its prompt is not in the first 64 KiB",
    ),
    (
        "a long prompt",
        "list_sessions list_sessions_page get_session_info get_session_info_from_store fork_session",
        "the session is listed, though its prompt is longer than 64 KiB",
    ),
    (
        "fields in a tools input",
        "list_sessions list_sessions_page get_session_info get_session_info_from_store fork_session",
        "what a tool was given names no session",
    ),
    ("a torn last line", "rename_session tag_session", "the new line does not become part of the torn one"),
    ("a torn last line", "import_session_to_store", "it is left out, and everything else imported"),
    (
        "invalid utf 8",
        "get_session_messages get_session_messages_page import_session_to_store",
        "one bad line hides no other: no UnicodeDecodeError",
    ),
    (
        "a deep line",
        "get_session_messages get_session_messages_page fork_session import_session_to_store",
        "one bad line hides no other: no RecursionError",
    ),
    (
        "a gap",
        "get_session_messages get_session_messages_page get_session_messages_from_store",
        "the conversation goes on with the entry before the gap, as in the CLI",
    ),
    (
        "entries twice",
        "fork_session fork_session_via_store import_session_to_store",
        "an entry that is there twice is copied once",
    ),
    (
        "a circle",
        "get_session_messages get_session_messages_page get_session_messages_from_store",
        "the circle is cut at its first entry, and all messages are shown",
    ),
    (
        "a compaction",
        "get_session_messages get_session_messages_page get_session_messages_from_store",
        "messages that the compaction kept are shown",
    ),
    *(
        (
            case,
            (
                "list_sessions list_sessions_page get_session_info get_session_messages get_session_messages_page "
                "rename_session tag_session delete_session fork_session project_key_for_directory "
                "import_session_to_store"
            ),
            "the key is the CLI's own: UTF-16 units, not normalised. The official one is not found",
        )
        for case in ("an emoji in the path", "a decomposed path")
    ),
    (
        "a long path that never ran",
        (
            "list_sessions list_sessions_page get_session_info get_session_messages get_session_messages_page "
            "rename_session tag_session delete_session fork_session import_session_to_store"
        ),
        "sessions of another directory, whose path begins with the same 200 characters, are not shown or changed",
    ),
    (
        "a folder in place of a file",
        "rename_session tag_session delete_session fork_session import_session_to_store",
        "FileNotFoundError, which is documented, in place of IsADirectoryError",
    ),
    ("other traces", "delete_session", "copies of the user's files and the environment are deleted too"),
    (
        "a copy in another folder",
        "rename_session tag_session fork_session",
        "without a directory the newest one is taken, not the first in the order of folders",
    ),
    ("a copy in another folder", "delete_session", "all copies are deleted: the session does not come back"),
    ("a copy in another folder", "fork_session_via_store", "an entry that is there twice is copied once"),
    (
        "an api request",
        "import_session_to_store",
        "copies of API requests are left out, as by the CLI",
    ),
]
"""Where a function for sessions differs on purpose."""


def expected(prefix: str) -> set[str]:
    """Return what may differ under a prefix: the rest of the keys that begin with it."""
    return {key.removeprefix(prefix) for key in DIFFERENCES if key.startswith(prefix)}
