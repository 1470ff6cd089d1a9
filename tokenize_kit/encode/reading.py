"""A tokenizer.json as the tables of our kernels, or why it cannot be.

Taken: byte-level BPE whose vocabulary has all 256 bytes, cut by patterns that the compiler takes.
Everything else is left to `tokenizers`, with the name of what stands in the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from tokenize_kit.encode.greedy import make_greedy, no_greedy
from tokenize_kit.encode.load import LETTERS, unspelled
from tokenize_kit.encode.merges import pair_table
from tokenize_kit.encode.odd_rows import Form
from tokenize_kit.encode.trie import build_trie
from tokenize_kit.encode.words import Bpe
from tokenize_kit.pattern.automaton import Table, compile_pattern
from tokenize_kit.pattern.named import PATTERNS
from tokenize_kit.pattern.parse import UnsupportedPattern


class NotOurs(ValueError):
    """Why a tokenizer is left to the library: the feature, named."""


@dataclass(frozen=True)
class Plan:
    """What encoding needs: patterns, tables, the tokens that are looked for in the text before
    anything else, and the normal form that a text must have, NFC and the like."""

    tables: tuple[Table, ...]
    bpe: Bpe
    added: tuple[str, ...]
    form: Form | None = None


def patterns_of(step: dict[str, Any] | None) -> list[str]:
    """Patterns of a pre-tokeniser that ends in ByteLevel, in order."""
    if step is None:
        raise NotOurs("no pre-tokeniser")
    kind = step["type"]
    if kind == "Sequence":
        found: list[str] = []
        parts = step["pretokenizers"]
        for number, part in enumerate(parts):
            if part["type"] == "ByteLevel" and number < len(parts) - 1:
                raise NotOurs("a pre-tokeniser behind ByteLevel")
            found += patterns_of(part)
        if not parts or parts[-1]["type"] != "ByteLevel":
            raise NotOurs("a pre-tokeniser that does not end in ByteLevel")
        return found
    if kind == "ByteLevel":
        if step.get("add_prefix_space", True):
            raise NotOurs("a space put before the text")
        return list(PATTERNS["gpt2"].parts) if step.get("use_regex", True) else []
    if kind == "Digits":
        return [r"\p{N}" if step.get("individual_digits") else r"\p{N}+"]
    if kind == "Split":
        if step["behavior"] != "Isolated" or step.get("invert"):
            raise NotOurs(f"a split that leaves pieces {step['behavior'].lower()}")
        if "Regex" not in step["pattern"]:
            raise NotOurs("a split at a string")
        return [step["pattern"]["Regex"]]
    raise NotOurs(f"the pre-tokeniser {kind}")


def _model(model: dict[str, Any]) -> Bpe:
    if model.get("type") != "BPE":
        raise NotOurs(f"the model {model.get('type')}")
    for name in ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise NotOurs(f"the setting {name}")
    if model.get("byte_fallback"):
        raise NotOurs("the setting byte_fallback")
    vocab: dict[str, int] = model["vocab"]
    if any(letter not in vocab for letter in LETTERS):
        raise NotOurs("a vocabulary without all 256 bytes")
    byte_ids = np.array([vocab[letter] for letter in LETTERS], np.int64)
    merges = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    try:
        rows = [(vocab[a], vocab[b], vocab[a + b]) for a, b in merges]
    except (KeyError, ValueError):
        raise NotOurs("a merge of what is not in the vocabulary") from None
    if len({(a, b) for a, b, _ in rows}) != len(rows):
        raise NotOurs("a merge that stands twice")
    pairs = pair_table(np.array(rows, np.int64).reshape(-1, 3))
    tokens: dict[int, bytes] = {}
    for word, number in vocab.items():
        try:
            tokens[number] = unspelled(word)
        except KeyError:
            continue  # not of bytes: no text gives it
    tokens = {number: word for number, word in tokens.items() if word}
    greedy = make_greedy(tokens, byte_ids, pairs)
    whole = bool(model.get("ignore_merges"))
    numbers = np.array(list(tokens), np.int64)
    try:
        slots, found = build_trie(list(tokens.values()), numbers) if whole else _NONE
    except ValueError as error:
        raise NotOurs(str(error)) from None
    return Bpe(byte_ids, pairs, greedy or no_greedy(), greedy is not None, slots, found, whole)


_NONE = (np.empty(0, np.uint32), np.empty(0, np.int32))


def read(parts: dict[str, Any]) -> Plan:
    """The plan of a tokenizer.json that `tokenizers` has read, so that its parts are where they
    belong; raises NotOurs."""
    form = (parts.get("normalizer") or {}).get("type")
    if form and form not in get_args(Form):
        raise NotOurs(f"the normaliser {form}")
    for token in parts["added_tokens"]:
        if not token["special"] and (token["lstrip"] or token["rstrip"] or token["single_word"]):
            raise NotOurs("an added token that takes its surroundings")
    try:
        tables = tuple(compile_pattern(p) for p in patterns_of(parts["pre_tokenizer"]))
    except UnsupportedPattern as error:
        raise NotOurs(str(error)) from None
    if not tables:
        raise NotOurs("no pattern that cuts the text")
    added = tuple(t["content"] for t in parts["added_tokens"] if not t["special"])
    if form and added:
        raise NotOurs("added tokens that are not special, and a normaliser")
    return Plan(tables, _model(parts["model"]), added, form)
