"""The tokens that a run reads and predicts: those of its shards, and behind them the special ones
that its objective needs and their tokenizer lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import AddedToken

from train.data.shards import END_OF_TEXT, load_tokenizer

# What published tokenizers call a token of each role, in the order we look; the first is written.
_NAMES = {
    "mask": ("[MASK]", "<mask>", "<|mask|>"),
    "cls": ("[CLS]", "<s>", "<cls>"),
    "sep": ("[SEP]", "</s>", "<sep>"),
    "end": END_OF_TEXT,
    "fim prefix": ("<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>"),  # Qwen's, StarCoder's
    "fim suffix": ("<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>"),
    "fim middle": ("<|fim_middle|>", "<fim_middle>", "<fim-middle>"),
}


def names_of(role: str) -> tuple[str, ...]:
    """The spellings of a special token by its role: ``mask``, ``sentinel 0``, ..."""
    kind, _, number = role.partition(" ")
    if kind == "sentinel":  # T5's
        return (f"<extra_id_{number}>", f"▁<extra_id_{number}>")
    if kind == "mode":  # UL2's
        return (f"[{number}]",)
    return _NAMES.get(role, (f"<|{role.replace(' ', '_')}|>",))


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """``size``: ids that there are, special ones included; ``special``: the id of each role that
    was asked for; ``reserved``: ids that no text has; ``tokenizer``: that of the shards, if known;
    ``added``: the spellings of what stands behind it.
    """

    size: int
    special: dict[str, int] = field(default_factory=dict)
    reserved: frozenset[int] = frozenset()
    tokenizer: Path | None = None
    added: tuple[str, ...] = ()

    @cached_property
    def plain(self) -> npt.NDArray[np.int64]:
        """Ids that texts have, of which random ones are drawn."""
        return np.setdiff1d(np.arange(self.size), sorted(self.reserved))

    @cached_property
    def begins_word(self) -> npt.NDArray[np.bool_]:
        """Of each id whether a word begins with it: a mark of a space or line before it (byte-level
        BPE, SentencePiece), or none of a word that goes on (WordPiece). Where no tokenizer is known
        each token is a word.
        """
        begins = np.ones(self.size, dtype=np.bool_)
        if self.tokenizer is None:
            return begins
        loaded = load_tokenizer(self.tokenizer)
        spelled = loaded.get_vocab(with_added_tokens=False)
        pieces = any(token.startswith("##") for token in spelled)
        for token, number in spelled.items():
            spaced = token[:1] in "Ġ▁ĊĉĠ \n\t" if token else True
            begins[number] = not token.startswith("##") if pieces else spaced
        return begins

    @cached_property
    def ends_sentence(self) -> npt.NDArray[np.bool_]:
        """Of each id whether a sentence ends with it: a full stop, a mark like it, or a new line.
        Where no tokenizer is known none does.
        """
        ends = np.zeros(self.size, dtype=np.bool_)
        if self.tokenizer is None:
            return ends
        loaded = load_tokenizer(self.tokenizer)
        for token, number in loaded.get_vocab(with_added_tokens=False).items():
            text = loaded.decode([number], skip_special_tokens=False)
            marked = text.rstrip("\"')]”’").endswith((".", "!", "?", "。", "！", "？"))
            ends[number] = marked or "\n" in text or "\u010a" in token
        return ends

    def written(self) -> bytes | None:
        """tokenizer.json with the tokens that were added; None where no tokenizer is known."""
        if self.tokenizer is None:
            return None
        if not self.added:
            return self.tokenizer.read_bytes()
        loaded = load_tokenizer(self.tokenizer)
        # A mask takes the space before it, as RoBERTa's: it stands for a token with that space.
        masks = names_of("mask")
        loaded.add_special_tokens(
            [AddedToken(name, special=True, lstrip=name in masks) for name in self.added]
        )
        text: str = loaded.to_str(pretty=False)
        return text.encode("utf-8")


def vocabulary(
    size: int,
    special_ids: dict[str, int],
    tokenizer: Path | None,
    roles: Sequence[str],
    end: int | None = None,
) -> Vocabulary:
    """The vocabulary of shards with ``size`` ids and these special ones, of which ``end`` ends
    documents, and with the special tokens of ``roles``. Raises ``LlmcurateError`` where the
    tokenizer cannot be read.
    """
    ids = dict(special_ids)
    behind = size
    if roles and tokenizer is not None:
        loaded = load_tokenizer(tokenizer)
        ids |= {
            token.content: number for number, token in loaded.get_added_tokens_decoder().items()
        }
        behind = loaded.get_vocab_size(with_added_tokens=True)
    special: dict[str, int] = {}
    added: list[str] = []
    for role in roles:
        names = names_of(role)
        there = next((ids[name] for name in names if name in ids), None)
        if role == "end" and end is not None:
            there = end
        if there is None:
            there = behind + len(added)
            added.append(names[0])
        special[role] = there
    reserved = frozenset(ids.values()) | frozenset(special.values())
    return Vocabulary(
        size=max([size, *(number + 1 for number in special.values())]),
        special=special,
        reserved=reserved,
        tokenizer=tokenizer,
        added=tuple(added),
    )
