"""Puts the entries of a transcript into the order of the conversation, and copies them for a fork.

A transcript is a tree: each entry names its parent. Prompts that were rewound, responses that were regenerated and
calls that ran in parallel are branches of it. Works on small nodes, so that a large transcript need not be in
memory. No I/O.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from toolwire.sessions import entries
from toolwire.sessions.types import SessionMessage

_IN_TREE: Final = frozenset({"user", "assistant", "attachment", "system", "progress"})
_SPOKEN: Final = frozenset({"user", "assistant"})
_NOT_IN_A_FORK: Final = ("teamName", "agentName", "slug", "sourceToolAssistantUUID")


@dataclass(slots=True)
class Node:
    """One entry of the tree, without its content. `position` is where the caller finds the entry again."""

    position: int
    uuid: str
    parent: str | None
    type: str
    timestamp: str = ""
    hidden: bool = False
    """True if the CLI made it for internal use, or it belongs to a teammate."""
    sidechain: bool = False
    message_id: str | None = None
    tool_uses: tuple[str, ...] = ()
    tool_results: tuple[str, ...] = ()
    source: str | None = None
    """For the result of a call: the assistant entry that made the call."""
    before_compaction: str | None = None
    """For the boundary of a compaction: the entry before it."""
    kept: tuple[str, str, str] | None = None
    """For the boundary of a compaction: the first kept entry, the entry that it now follows, the last kept one."""


def make_node(entry: Mapping[str, Any], position: int) -> Node | None:
    """Return the node of an entry; None if the entry is not part of the tree."""
    get = entry.get
    kind, name = get("type"), get("uuid")
    if kind not in _IN_TREE or not isinstance(name, str):
        return None
    node = Node(
        position,
        name,
        _text(get("parentUuid")),
        kind,
        _text(get("timestamp")) or "",
        bool(get("isMeta") or get("teamName")),
        bool(get("isSidechain")),
    )
    if kind in _SPOKEN:
        node.source = _text(get("sourceToolAssistantUUID"))
        if isinstance(message := get("message"), dict):
            node.message_id = _text(message.get("id")) if kind == "assistant" else None
            if isinstance(content := message.get("content"), list):
                node.tool_uses = _ids(content, "tool_use", "id")
                node.tool_results = _ids(content, "tool_result", "tool_use_id")
    elif kind == "system" and isinstance(compaction := get("compactMetadata"), dict):
        node.kept = _read_kept(compaction.get("preservedSegment"))
    if "logicalParentUuid" in entry:
        node.before_compaction = _text(entry["logicalParentUuid"])
    return node


def _read_kept(segment: object) -> tuple[str, str, str] | None:
    if not isinstance(segment, dict):
        return None
    head, anchor, tail = (segment.get(each) for each in ("headUuid", "anchorUuid", "tailUuid"))
    if isinstance(head, str) and isinstance(anchor, str) and isinstance(tail, str):
        return head, anchor, tail
    return None


def _ids(content: list[Any], block_type: str, field: str) -> tuple[str, ...]:
    found = [each.get(field) for each in content if isinstance(each, dict) and each.get("type") == block_type]
    return tuple([each for each in found if isinstance(each, str)]) if found else ()


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def has_conversation(transcript: Iterable[Mapping[str, Any]]) -> bool:
    """Return True if there is an entry from which the CLI can resume."""
    nodes = (make_node(entry, 0) for entry in transcript)
    return any(node is not None and not node.sidechain for node in nodes)


def order_messages(
    transcript: Iterable[tuple[int, Mapping[str, Any]]],
    *,
    of_subagent: bool = False,
    whole_history: bool = False,
) -> list[Node]:
    """Return the messages of the current conversation, oldest first, from entries with their positions.

    The conversation is the chain of parents of the last message in the transcript, plus all calls that ran in
    parallel. If an entry is missing, the chain continues with the one before the gap. It begins at the last
    compaction, with the entries which that kept; with `whole_history`, at the very beginning.
    """
    tree = _Tree(node for place, entry in transcript if (node := make_node(entry, place)))
    chain = tree.find_chain(tree.find_last(of_subagent=of_subagent), whole_history=whole_history)
    chain = tree.add_parallel_calls(chain)
    return [
        node
        for node in chain
        if node.type in _SPOKEN and (of_subagent or not (node.sidechain or node.hidden))
    ]


def find_cycles(nodes: Mapping[str, Node]) -> list[Node]:
    """Return one entry of each cycle of parents: the first in the transcript."""
    settled: set[str] = set()
    found: list[Node] = []
    for start in nodes.values():
        walked: dict[str, Node] = {}
        node: Node | None = start
        while node is not None and node.uuid not in settled:
            if node.uuid in walked:
                names = list(walked)
                cycle = [walked[name] for name in names[names.index(node.uuid) :]]
                found.append(min(cycle, key=lambda each: each.position))
                break
            walked[node.uuid] = node
            node = nodes.get(node.parent) if node.parent is not None else None
        settled.update(walked)
    return found


class _Tree:
    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes: dict[str, Node] = {}
        for node in nodes:
            self.nodes.setdefault(node.uuid, node)  # an entry that was stored twice counts once
        self._before: dict[str, Node] = {}
        last: dict[bool, Node] = {}
        for node in self.nodes.values():
            if (earlier := last.get(node.sidechain)) is not None:
                self._before[node.uuid] = earlier
            last[node.sidechain] = node
        self._cut = {node.uuid for node in find_cycles(self.nodes)}  # their parents count as missing

    def find_last(self, *, of_subagent: bool) -> Node | None:
        """Return the message at which the conversation ends."""
        parents = {node.parent for node in self.nodes.values() if node.uuid not in self._cut}
        visited: set[str] = set()
        ends = [self._find_spoken(node, visited) for node in self.nodes.values() if node.uuid not in parents]
        spoken = [node for node in ends if node is not None]
        if not of_subagent:
            plain = [node for node in spoken if not (node.sidechain or node.hidden)]
            spoken = plain or spoken
        return max(spoken, key=lambda node: node.position, default=None)

    def _find_spoken(self, node: Node | None, visited: set[str]) -> Node | None:
        """Return the nearest message among an entry and its ancestors; None if there is none, or it was visited."""
        while node is not None and node.uuid not in visited:
            visited.add(node.uuid)
            if node.type in _SPOKEN:
                return node
            node = self._find_parent(node)
        return None

    def _find_parent(self, node: Node) -> Node | None:
        if node.parent is None:
            return None
        if node.uuid in self._cut:
            return self._before.get(node.uuid)
        return self.nodes.get(node.parent) or self._before.get(node.uuid)

    def find_chain(self, last: Node | None, *, whole_history: bool) -> list[Node]:
        """Return an entry and its ancestors, oldest first."""
        chain: list[Node] = []
        seen: set[str] = set()
        node = last
        while node is not None and node.uuid not in seen:
            seen.add(node.uuid)
            chain.append(node)
            parent = self._find_parent(node)
            if parent is None and node.before_compaction is not None:
                if whole_history:
                    parent = self.nodes.get(node.before_compaction) or self._before.get(node.uuid)
                elif node.kept is not None:
                    self._insert_kept(chain, *node.kept)
            node = parent
        chain.reverse()
        return chain

    def _insert_kept(self, chain: list[Node], head: str, anchor: str, tail: str) -> None:
        """Insert the entries that a compaction kept after its anchor; `chain` is still in reverse order."""
        kept: list[Node] = []
        there = {node.uuid for node in chain}
        node = self.nodes.get(tail)
        while node is not None and node.uuid not in there:
            there.add(node.uuid)
            kept.append(node)
            if node.uuid == head:
                at = next((index for index, each in enumerate(chain) if each.uuid == anchor), len(chain) - 1)
                chain[at:at] = kept
                return
            node = self._find_parent(node)

    def add_parallel_calls(self, chain: list[Node]) -> list[Node]:
        """Add the other blocks of each response, and the results of its calls, after its last entry."""
        if len(chain) == len(self.nodes):
            return chain  # there are no others
        on_chain = {node.uuid for node in chain}
        last_of = {node.message_id: node.uuid for node in chain if node.message_id}
        responses: dict[str, list[Node]] = {each: [] for each in last_of if each}
        results: list[Node] = []
        claims: dict[str, set[str | None]] = {}
        for node in self.nodes.values():
            for call in node.tool_uses:
                claims.setdefault(call, set()).add(node.message_id)
            if node.message_id in responses:
                responses[node.message_id].append(node)
            elif node.tool_results and node.uuid not in on_chain:
                results.append(node)
        answered = {call for node in chain for call in node.tool_results}
        by_entry = _group(results, lambda node: [node.parent, node.source])
        by_call = _group(results, lambda node: node.tool_results)
        complete: list[Node] = []
        for node in chain:
            complete.append(node)
            if node.message_id is None or last_of[node.message_id] != node.uuid:
                continue
            response = responses[node.message_id]
            siblings = [each for each in response if each.uuid not in on_chain]
            found = {each.uuid: each for part in response for each in by_entry.get(part.uuid, [])}
            answered.update(call for each in found.values() for call in each.tool_results)
            for call in (call for part in response for call in part.tool_uses):
                if call not in answered and len(claims[call]) == 1:
                    found.update({each.uuid: each for each in by_call.get(call, [])[:1]})
            on_chain.update(each.uuid for each in siblings)
            new = [each for each in found.values() if each.uuid not in on_chain]
            on_chain.update(found)
            complete += sorted(siblings, key=_by_time) + sorted(new, key=_by_time)
        return complete


def _group(nodes: list[Node], keys: Callable[[Node], Iterable[str | None]]) -> dict[str | None, list[Node]]:
    groups: dict[str | None, list[Node]] = {}
    for node in nodes:
        for key in dict.fromkeys(keys(node)):
            if key is not None:
                groups.setdefault(key, []).append(node)
    return groups


def _by_time(node: Node) -> tuple[str, int]:
    return node.timestamp, node.position


def make_message(
    entry: Mapping[str, Any], session_id: str, metadata: Mapping[str, Any] | None = None
) -> SessionMessage:
    """Return the `SessionMessage` of an entry. `metadata` is that of its subagent, if any."""
    own_id = _text(entry.get("sessionId")) or session_id
    message = SessionMessage(entry["type"], entry["uuid"], own_id, entry.get("message"))
    if metadata:
        message.parent_tool_use_id = _text(metadata.get("toolUseId"))
        message.parent_agent_id = _text(metadata.get("parentAgentId"))
    return message


def take_page(items: Sequence[Any], limit: int | None, offset: int) -> Sequence[Any]:
    """Return a page of a list. A limit of None, zero or less means everything from the offset on."""
    start = max(offset, 0)
    return items[start : start + limit] if limit is not None and limit > 0 else items[start:]


def choose_messages(
    found: Sequence[Mapping[str, Any]],
    limit: int | None = None,
    offset: int = 0,
    *,
    of_subagent: bool = False,
    whole_history: bool = False,
) -> list[Mapping[str, Any]]:
    """Return the entries of a page of the conversation in order, from all entries of a transcript."""
    ordered = order_messages(enumerate(found), of_subagent=of_subagent, whole_history=whole_history)
    return [found[node.position] for node in take_page(ordered, limit, offset)]


class Fork:
    """Copies a session's entries under a new id, up to a message: new uuids, the same tree.

    The constructor makes a first pass over the entries, `copy` a second one.
    """

    def __init__(
        self, transcript: Iterable[Mapping[str, Any]], session_id: str, up_to: str | None = None
    ) -> None:
        self.session_id = str(uuid.uuid4())
        self._from = session_id
        self._summary: dict[str, Any] = {}
        self._new: dict[str, str] = {}
        self._skipped: dict[str, str | None] = {}  # progress entries, which are left out, and their parents
        self._replacements: list[Any] = []
        self.tool_uses: set[str] = set()
        """The calls in the copy, used to find its subagents."""
        found = up_to is None
        for entry in transcript:
            if not found or up_to is None:
                self._add_entry(entry)
                found = found or entry.get("uuid") == up_to
            self._fold(entry)
        if not self._new:
            raise ValueError(f"Session {session_id} has no messages to fork")
        if not found:
            raise ValueError(f"Message {up_to} not found in session {session_id}")

    def _fold(self, entry: Mapping[str, Any]) -> None:
        entries.fold_entry(self._summary, entry)
        if entry.get("type") == "content-replacement" and isinstance(each := entry.get("replacements"), list):
            self._replacements += each

    def _add_entry(self, entry: Mapping[str, Any]) -> None:
        node = make_node(entry, 0)
        if node is None or node.sidechain:
            return
        if node.type == "progress":
            self._skipped[node.uuid] = node.parent
            return
        self._new[node.uuid] = str(uuid.uuid4())
        self.tool_uses.update(node.tool_uses)

    def copy(
        self, transcript: Iterable[Mapping[str, Any]], title: str | None, now: datetime
    ) -> Iterator[dict[str, Any]]:
        """Yield the entries of the copy, its title last: the given one, unless it is empty."""
        cleaned = (title or "").strip()
        remaining = len(self._new)
        seen = set()
        for entry in transcript:
            name = entry.get("uuid")
            if name not in self._new or name in seen or entry.get("type") == "progress":
                continue
            seen.add(name)
            remaining -= 1
            copied = {key: value for key, value in entry.items() if key not in _NOT_IN_A_FORK}
            copied |= {
                "uuid": self._new[name],
                "parentUuid": self._find_new(entry.get("parentUuid")),
                "sessionId": self.session_id,
                "isSidechain": False,
                "forkedFrom": {"sessionId": self._from, "messageUuid": name},
            }
            if "logicalParentUuid" in entry:
                copied["logicalParentUuid"] = self._find_new(entry["logicalParentUuid"])
            if not remaining:
                copied["timestamp"] = entries.write_time(now)
            yield copied
        if self._replacements:
            yield self._make("content-replacement", now, replacements=self._replacements)
        copied_title = f"{entries.choose_title(self._summary) or 'Forked session'} (fork)"
        yield self._make("custom-title", now, customTitle=cleaned or copied_title)

    def _find_new(self, name: Any) -> str | None:
        seen = set()
        while name in self._skipped and name not in seen:
            seen.add(name)
            name = self._skipped[name]
        return self._new.get(name) if isinstance(name, str) else None

    def _make(self, kind: str, now: datetime, **fields: Any) -> dict[str, Any]:
        return {
            "type": kind,
            "sessionId": self.session_id,
            **fields,
            "uuid": str(uuid.uuid4()),
            "timestamp": entries.write_time(now),
        }
