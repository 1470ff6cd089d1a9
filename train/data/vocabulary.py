"""The tokens that a run reads and predicts: first those of its shards, then special tokens that the
objective needs but the tokenizer does not have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import AddedToken, Tokenizer
from torch import Tensor

from llmcurate.base.errors import UsageError
from llmcurate.base.roles import FILE, SPELLINGS, Roles
from llmcurate.base.tokenizer_file import load_tokenizer, read_file, roles_of

# Spellings of each role in published tokenizers, best first. A run that lacks all adds the first.
_NAMES = {
    **SPELLINGS,
    "cls": (*SPELLINGS["cls"], "<s>"),
    "sep": (*SPELLINGS["sep"], "</s>"),
    "end": SPELLINGS["ends"],
    "fim prefix": ("<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>"),  # Qwen's, StarCoder's
    "fim suffix": ("<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>"),
    "fim middle": ("<|fim_middle|>", "<fim_middle>", "<fim-middle>"),
}


def names_of(role: str) -> tuple[str, ...]:
    """Return the spellings of the special token with a role such as ``mask`` or ``sentinel 0``."""
    kind, _, number = role.partition(" ")
    if kind == "sentinel":  # T5's
        return (f"<extra_id_{number}>", f"▁<extra_id_{number}>")
    if kind == "mode":  # UL2's
        return (f"[{number}]",)
    return _NAMES.get(role, (f"<|{role.replace(' ', '_')}|>",))


def token_of(role: str, roles: Roles, ids: Mapping[str, int]) -> int | None:
    """Return the id of the special token with a role: the id that ``roles`` states, else that of a
    known spelling in ``ids``, else None."""
    stated: int | None = getattr(roles, role, None)
    spelled = (ids[name] for name in names_of(role) if name in ids)
    return next(spelled, None) if stated is None else stated


def roles_of_run(path: Path, tokenizer: Tokenizer) -> Roles:
    """Return the roles of special tokens that a run was trained with. ``path``: the run's
    tokenizer.json. If there is no token_roles.json, as in older versions, texts begin and end with
    the end-of-text token."""
    roles = roles_of(path, tokenizer)
    return roles if (path.parent / FILE).is_file() else as_trained(roles, roles.end, roles.end)


def as_trained(roles: Roles, before: int | None, end: int | None) -> Roles:
    """Return ``roles`` with the special tokens of a decoder's training: the id ``before`` comes
    before each document, and the id ``end`` after it. Other roles are kept."""
    around = () if before is None else (before,)
    ends = () if end is None else (end, *(other for other in roles.ends if other != end))
    return replace(roles, begin=before, before=around, behind=(), ends=ends)


class Around(NamedTuple):
    """The ids around a text, or around and between two texts. ``segment`` is that of the last text
    and of the ids after it; all before are in segment 0."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    behind: tuple[int, ...]
    segment: int


def around_texts(path: Path, tokenizer: Tokenizer) -> tuple[Around, Around]:
    """Return the ids that a model with a task's head is trained to read around a text and around
    two. Without tokens such as [CLS] and [SEP], the end-of-text token begins a text. Raises
    ``LlmcurateError`` if it is missing, too."""
    roles, ids = roles_of(path, tokenizer), tokenizer.get_vocab(with_added_tokens=True)
    cls, separator = (token_of(role, roles, ids) for role in ("cls", "sep"))
    begin = roles.end if cls is None else cls
    if begin is None:
        raise UsageError(
            f"{path}: no token begins or ends a text: add one such as [CLS] or <|endoftext|>"
        )
    closing = () if cls is None or separator is None else (separator,)
    between = begin if separator is None else separator
    return Around((begin,), (), closing, 0), Around((begin,), (between,), closing, 1)


def stated_around(tokenizer: Tokenizer) -> tuple[Around, Around]:
    """Return the ids that a tokenizer itself puts around a text and around two, as transformers
    does."""
    words = ("a", *tokenizer.get_vocab(with_added_tokens=False))
    word = next((w for w in words if tokenizer.encode(w, add_special_tokens=False).ids), "")

    def around(text: str, pair: str | None = None) -> Around:
        encoding = tokenizer.encode(text, pair)
        ids, text_of = encoding.ids, encoding.sequence_ids
        first, second = (
            [place for place, text in enumerate(text_of) if text == number]
            for number in (0, int(pair is not None))
        )
        if not first:
            return Around((), (), (), 0)
        return Around(
            tuple(ids[: first[0]]),
            tuple(ids[first[-1] + 1 : second[0]]),
            tuple(ids[second[-1] + 1 :]),
            encoding.type_ids[second[0]],
        )

    return around(word), around(word, word)


def first_of(roles: Roles) -> tuple[int, ...]:
    """Return the ids to put before a text so that its first token can be predicted: the role
    ``before``, else the token that begins a text, else the token that ends a text."""
    return roles.before or tuple(n for n in (roles.begin, roles.end) if n is not None)[:1]


def nameless(tokenizer: Tokenizer, size: int) -> Tensor | None:
    """Return bool [size], True for ids of a model's vocabulary to which its tokenizer assigns no
    token, or None if each id has a token."""
    never = torch.ones(size, dtype=torch.bool)
    ids = tokenizer.get_vocab(with_added_tokens=True).values()
    never[[number for number in ids if number < size]] = False
    return never if never.any() else None


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The ids of a run. ``size`` is the number of ids. ``special`` has the token id of each role,
    such as ``mask``. ``reserved`` ids never occur in text. ``tokenizer`` is the path of the shards'
    tokenizer; ``added`` are the spellings of the tokens that the run adds to it."""

    size: int
    special: dict[str, int] = field(default_factory=dict)
    reserved: frozenset[int] = frozenset()
    tokenizer: Path | None = None
    added: tuple[str, ...] = ()

    @cached_property
    def plain(self) -> npt.NDArray[np.int64]:
        """The ids that occur in text. Random ids are drawn from these."""
        ids = np.arange(self.size)
        if self.tokenizer is not None:  # some ids may have no token
            ids = np.array(list(load_tokenizer(self.tokenizer).get_vocab().values()))
        return np.setdiff1d(ids[ids < self.size], sorted(self.reserved))

    @cached_property
    def begins_word(self) -> npt.NDArray[np.bool_]:
        """True for each id that starts a word: its token begins with a space or new line, or in
        WordPiece does not begin with ##. Without a tokenizer, True for all."""
        begins = np.ones(self.size, dtype=np.bool_)
        if self.tokenizer is None:
            return begins
        loaded = load_tokenizer(self.tokenizer)
        ids_of_tokens = loaded.get_vocab(with_added_tokens=False)
        word_pieces = any(token.startswith("##") for token in ids_of_tokens)
        for token, number in ids_of_tokens.items():
            spaced = token[:1] in "Ġ▁ĊĉĠ \n\t" if token else True
            begins[number] = not token.startswith("##") if word_pieces else spaced
        return begins

    @cached_property
    def ends_sentence(self) -> npt.NDArray[np.bool_]:
        """True for each id that ends a sentence: with a full stop, a similar mark or a new line."""
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
        """Return tokenizer.json with the added tokens; None if no tokenizer is known."""
        if self.tokenizer is None:
            return None
        if not self.added:
            return read_file(self.tokenizer)
        loaded = load_tokenizer(self.tokenizer)
        # A mask absorbs the space before it, like RoBERTa's: it replaces a token with that space.
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
    """Return a vocabulary of ``size`` ids. A token is added for each of ``roles`` that has no
    special token yet. The id ``end`` ends documents."""
    ids, known = dict(special_ids), Roles()
    next_id = size
    if roles and tokenizer is not None:
        loaded = load_tokenizer(tokenizer)
        known = roles_of(tokenizer, loaded)
        ids |= {
            token.content: number for number, token in loaded.get_added_tokens_decoder().items()
        }
        next_id = loaded.get_vocab_size(with_added_tokens=True)
    special: dict[str, int] = {}
    added: list[str] = []
    for role in roles:
        number = end if role == "end" and end is not None else token_of(role, known, ids)
        if number is None:
            number = next_id + len(added)
            added.append(names_of(role)[0])
        special[role] = number
    reserved = frozenset(ids.values()) | frozenset(special.values())
    return Vocabulary(
        size=max([size, *(number + 1 for number in special.values())]),
        special=special,
        reserved=reserved,
        tokenizer=tokenizer,
        added=tuple(added),
    )
