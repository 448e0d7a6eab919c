"""Ranks tools by words: an index of their definitions, searched with BM25.

Owns the splitting of texts into words (in any language, including names in camelCase and snake_case), their
weights, and the ranking. Pure, and its work is bounded for any text. Must not know servers or clients.
"""

import math
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from toolwire._support.words import late_pattern

LONGEST_QUERY: Final = 500
"""Characters of a query that are used."""
_MOST_WORDS: Final = 32  # of a query
_LONGEST_TEXT: Final = 2_000  # characters of a description that are indexed
_LONGEST_WORD: Final = 64
_MOST_PARAMETERS: Final = 50
_MOST_ENDINGS: Final = 64  # indexed words that a word of a query may be the beginning of
_SHORTEST_PREFIX: Final = 2
_BEGINNING: Final = 0.4  # share of the score for an indexed word that only starts with the word of the query
_EXACT_NAME: Final = 100.0
_K1, _B = 1.2, 0.6  # of BM25: the saturation of repeated words, and the penalty for long texts
_HUMPS: Final = late_pattern(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Scripts without spaces between words: pairs of letters stand for words.
_UNSPACED: Final = late_pattern(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+"
)
_WORD: Final = late_pattern(r"[^\W_]+")
_HINT: Final = "anthropic/searchHint"
_HINT_LENGTH: Final = 200
TAGS: Final = "toolwire/tags"
"""The key of a tool's tags in the `_meta` of its definition."""
CATEGORY: Final = "toolwire/category"
"""The key of the category of a catalogue's entry, which counts as a tag."""


def split_words(text: str) -> Iterator[str]:
    """Yield the words of a text, those inside a name too, in lower case, without accents and plural endings."""
    if not text.isascii():
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join([each for each in decomposed if not unicodedata.combining(each)])
    for word in _WORD.findall(_HUMPS.sub(" ", text).casefold()):
        if word.isascii():
            yield _singular(word[:_LONGEST_WORD])
            continue
        rest = word
        for run in _UNSPACED.findall(word):
            rest = rest.replace(run, " ", 1)
            yield from (run[at : at + 2] for at in range(max(len(run) - 1, 1)))
        yield from (each[:_LONGEST_WORD] for each in rest.split())


def _singular(word: str) -> str:
    if len(word) <= 3 or not word.endswith("s") or word.endswith(("ss", "us", "is")):  # noqa: PLR2004 - "gas", "its"
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-2] if word.endswith(("sses", "xes", "ches", "shes")) else word[:-1]


def tags_of(definition: Mapping[str, Any]) -> list[str]:
    """Return the tags of a definition, including its category and the tags that FastMCP writes."""
    meta = definition.get("_meta")
    if not isinstance(meta, Mapping):
        return []
    others = next((each for key in ("fastmcp", "_fastmcp") if isinstance(each := meta.get(key), Mapping)), {})
    found = [meta.get(CATEGORY)]
    for tags in (meta.get(TAGS), others.get("tags")):
        found += tags if isinstance(tags, list) else []
    return list(dict.fromkeys(each for each in found if isinstance(each, str)))


def make_search_hint(name: str, *texts: str | None) -> str:
    """Make a `search_hint` from a tool's name and the words of other texts that are not in the name."""
    in_name = set(split_words(name))
    words: dict[str, None] = {}
    for text in texts:
        for word in split_words((text or "")[:_LONGEST_TEXT]):
            if word not in in_name and len(word) > 1:
                words[word] = None
    hint = " ".join([*_WORD.findall(_HUMPS.sub(" ", name).casefold()), *words])
    return hint if len(hint) <= _HINT_LENGTH else hint[:_HINT_LENGTH].rpartition(" ")[0]


def _weigh(definition: Mapping[str, Any]) -> dict[str, float]:
    """Return the words of a definition with their weights: occurrences in the name count most."""
    weights: defaultdict[str, float] = defaultdict(float)
    meta = definition.get("_meta")
    schema = definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    names = list(properties)[:_MOST_PARAMETERS] if isinstance(properties, Mapping) else []
    for weight, texts in (
        (4.0, [definition.get("name")]),
        (3.0, [definition.get("title"), *tags_of(definition)]),
        (2.0, [meta.get(_HINT)] if isinstance(meta, Mapping) else []),
        (1.0, [definition.get("description"), *names]),
    ):
        for text in texts:
            if isinstance(text, str):
                for word in split_words(text[:_LONGEST_TEXT]):
                    weights[word] += weight
    return weights


class ToolIndex:
    """An index of tool definitions by name. `update` indexes only what has changed."""

    def __init__(self) -> None:
        self._definitions: dict[str, Mapping[str, Any]] = {}
        self._words: dict[str, dict[str, float]] = {}  # of each tool, with their weights
        self._tools: defaultdict[str, dict[str, float]] = defaultdict(dict)  # the same by word
        self._lengths: dict[str, float] = {}
        self._total = 0.0
        self._sorted: list[str] | None = None  # all words, to find those with a given prefix

    def __len__(self) -> int:
        return len(self._definitions)

    def update(self, definitions: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace the indexed definitions by these."""
        for name in [each for each in self._definitions if each not in definitions]:
            self._remove(name)
        for name, definition in definitions.items():
            known = self._definitions.get(name)
            if known is not definition and known != definition:
                if known is not None:
                    self._remove(name)
                self._add(name, definition)
            self._definitions[name] = definition

    def _add(self, name: str, definition: Mapping[str, Any]) -> None:
        words = self._words[name] = _weigh(definition)
        for word, weight in words.items():
            self._tools[word][name] = weight
        self._lengths[name] = sum(words.values())
        self._total += self._lengths[name]
        self._sorted = None

    def _remove(self, name: str) -> None:
        del self._definitions[name]
        for word in self._words.pop(name):
            del self._tools[word][name]
            if not self._tools[word]:
                del self._tools[word]
        self._total -= self._lengths.pop(name)
        self._sorted = None

    def search(self, query: str, limit: int) -> list[str]:
        """Return the names of the best matches, the best first; an empty list if no word of the query is known."""
        query = query[:LONGEST_QUERY]
        scores: defaultdict[str, float] = defaultdict(float)
        for word in list(dict.fromkeys(split_words(query)))[:_MOST_WORDS]:
            # A word of the query counts once for a tool, however many of the tool's words start with it.
            best: dict[str, float] = {}
            for known, share in self._find_words(word):
                for name, score in self._score(known):
                    best[name] = max(best.get(name, 0.0), share * score)
            for name, score in best.items():
                scores[name] += score
        if (named := query.strip()) in self._definitions:
            scores[named] += _EXACT_NAME
        ranked = sorted(scores, key=lambda name: (-scores[name], len(name), name))
        return ranked[: max(limit, 0)]

    def _score(self, word: str) -> Iterator[tuple[str, float]]:
        """Yield the tools that contain a word, each with its BM25 score."""
        tools, count = self._tools[word], len(self._definitions)
        rarity = math.log(1 + (count - len(tools) + 0.5) / (len(tools) + 0.5))
        average = self._total / count or 1.0
        for name, weight in tools.items():
            length = _K1 * (1 - _B + _B * self._lengths[name] / average)
            yield name, rarity * weight * (_K1 + 1) / (weight + length)

    def _find_words(self, word: str) -> Iterable[tuple[str, float]]:
        """Yield the indexed words that match a word of a query, each with its share of the score."""
        if word in self._tools:
            yield word, 1.0
        if len(word) < _SHORTEST_PREFIX and word.isascii():
            return
        if self._sorted is None:
            self._sorted = sorted(self._tools)
        start = bisect_left(self._sorted, word)
        for known in self._sorted[start : start + _MOST_ENDINGS]:
            if not known.startswith(word):
                return
            if known != word:
                yield known, _BEGINNING
