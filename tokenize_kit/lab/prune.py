"""Prune a vocabulary: tokens that a corpus does not use are removed, and the
remaining ids are renumbered without gaps."""

from __future__ import annotations

import copy
import heapq
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

from llmcurate.base.disk.files import write_atomic
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from tokenize_kit.card import Card, Measured, Sample, measure
from tokenize_kit.change.bpe import CharBpe, Text
from tokenize_kit.change.original import (
    Original,
    algorithm_name,
    describe_file,
    file_with_added,
    open_tokenizer,
    write_changed,
)
from tokenize_kit.change.verify import Buffers, Encode, Texts, compare_lengths
from tokenize_kit.encode.vocabulary import open_vocabulary
from tokenize_kit.formats.forms import NORMAL, ByteBpe, CannotHold, Pieces
from tokenize_kit.formats.json_forms import NEVER, renew_runs
from tokenize_kit.formats.sentencepiece_model import keep_pieces
from tokenize_kit.formats.tokenizer_json import Step, to_letters
from tokenize_kit.lab.embeddings import PrunedEmbeddings, read_tables, write_pruned

# Tokens are chosen so that a text none of whose tokens are removed is encoded as before. In BPE,
# a token may only be removed if no remaining merge needs it. In Unigram, the best path through a
# text stays the best; but the lowest score must stay, as it sets the penalty of unknown characters.


def choose_tokens(
    form: ByteBpe | CharBpe | Pieces, counts: np.ndarray, most: int | None, least: int
) -> list[int]:
    """Return the old ids to keep, in order. `counts` is int64[ids], the uses of each token. Tokens
    used less than `least` times are removed; if `most` is given, the least used are removed until
    `most` tokens are left. Raises UsageError if more than `most` tokens must be kept."""
    if isinstance(form, ByteBpe):
        fixed = {number for token, number in form.tokens.items() if len(token) == 1}
        others = {token.number for token in form.added}
        kept = _choose_bpe(form.tokens, form.merges, fixed, others, counts, most, least)
    elif isinstance(form, CharBpe):
        fixed = set() if form.byte_fallback else _characters(form, counts)
        kept = _choose_bpe(form.tokens, form.merges, fixed, set(form.others), counts, most, least)
    else:
        kept = _choose_unigram(form, counts, most, least)
    if most is not None and len(kept) > most:
        raise UsageError(
            f"vocab {most}: {counted(len(kept), 'token')} must be kept (bytes, characters,"
            " special tokens): ask for more"
        )
    return kept


def _characters(form: CharBpe, counts: np.ndarray) -> set[int]:
    shown = [text for text, number in form.tokens.items() if counts[number]]
    letters = {letter for text in [*shown, *form.others.values()] for letter in text}
    return {form.tokens[letter] for letter in letters if letter in form.tokens}


def _choose_bpe(
    numbers: Mapping[Text, int],
    merges: Sequence[tuple[Text, Text]],
    fixed: set[int],
    others: set[int],
    counts: np.ndarray,
    most: int | None,
    least: int,
) -> list[int]:
    """Return the ids to keep in a BPE. Only tokens that no merge needs are removed, the least used
    first, and the uses of a removed token are added to its parts. numbers: {token: id}; fixed: ids
    that are always kept; others: ids of tokens that are not in `numbers`, also kept; counts: the
    uses of each id; most, least: as in choose_tokens."""
    merges_of: dict[int, list[list[int]]] = {}
    needed = dict.fromkeys(numbers.values(), 0)
    for left, right in merges:
        # In SentencePiece's models, characters that are not tokens can be merged.
        parts = [numbers[part] for part in (left, right) if part in numbers]
        if (token := numbers.get(left + right)) is None:
            fixed = fixed | set(parts)  # parts of a token that stays
            continue
        merges_of.setdefault(token, []).append(parts)
        for part in parts:
            needed[part] += 1
    used = {number: int(counts[number]) for number in needed}
    alive = set(needed) | others
    # Of equally used tokens, the one learned last is removed first.
    leaves = [(used[n], -n) for n, uses in needed.items() if not uses and n not in fixed]
    heapq.heapify(leaves)
    while leaves:
        count, number = leaves[0][0], -leaves[0][1]
        if count != used[number]:
            heapq.heapreplace(leaves, (used[number], -number))
            continue
        if count >= least and (most is None or len(alive) <= most):
            break
        heapq.heappop(leaves)
        alive.remove(number)
        for turn, parts in enumerate(merges_of.get(number, [])):
            for part in parts:
                needed[part] -= 1
                used[part] += count if turn == 0 else 0
            for part in dict.fromkeys(parts):
                if not needed[part] and part not in fixed:
                    heapq.heappush(leaves, (used[part], -part))
    return sorted(alive)


def _choose_unigram(form: Pieces, counts: np.ndarray, most: int | None, least: int) -> list[int]:
    scores = {n: score for n, (_, score, kind) in enumerate(form.pieces) if kind == NORMAL}
    fixed = {n for n in range(len(form.pieces)) if n not in scores}
    if scores:
        # The lowest and highest scores set those of unknown characters and user-defined pieces.
        fixed |= {min(scores, key=scores.__getitem__), max(scores, key=scores.__getitem__)}
    if not form.byte_fallback:  # keep characters of the texts, or they would become unknown
        # And of special tokens: if one has an unknown character, the library finds it in text.
        shown = [text for n, (text, _, _) in enumerate(form.pieces) if n not in scores or counts[n]]
        used = {letter for text in shown for letter in text}
        fixed |= {n for n in scores if form.pieces[n][0] in used}
    others = sorted((n for n in scores if n not in fixed), key=lambda n: (-int(counts[n]), n))
    others = [n for n in others if counts[n] >= least]
    if most is not None:
        others = others[: max(0, most - len(fixed))]
    return sorted({*fixed, *others})


MAP = "token_map.parquet"
DROPPED = -1


@dataclass(frozen=True, kw_only=True)
class PrunedCard(Card):
    """The card of a pruned tokenizer. dropped: the number of removed tokens; min_count: tokens used
    less often are removed; keep_used: the most tokens that are kept; map: the file of old and new
    ids; texts_without_dropped_tokens: how many texts contain no removed token."""

    pruned_from: str
    source_sha256: str
    algorithm: str
    file: str
    vocab: int
    special_tokens: dict[str, int]
    end_of_text: str | None
    tokenizer_sha256: str
    old_tokens: int
    new_tokens: int
    dropped: int
    min_count: int
    keep_used: int | None
    map: str
    measured_texts: int
    measured_bytes: int
    texts_without_dropped_tokens: int
    bytes_a_token_before: float
    bytes_a_token_after: float
    measured: Measured
    embeddings: PrunedEmbeddings | None = None
    notes: list[str]

    def origin(self) -> str:
        return (
            f"A tokenizer of {counted(self.old_tokens, 'token')} without {self.dropped:,} of them;"
            f" `{self.map}` maps old ids to new ids."
        )


def prune(
    path: Path,
    batches: Texts,
    out: Path,
    *,
    most: int | None = None,
    least: int = 1,
    embeddings: Path | None = None,
    tensors: tuple[str, ...] = (),
) -> PrunedCard:
    """Remove the tokens that texts use less than `least` times. If `most` is given, also remove the
    least used of the others until `most` tokens are left. Write the new tokenizer, the map of ids
    and the card into the folder `out`, and return the card.

    `batches` yields the texts and is called twice. Bytes, special tokens, added tokens and tokens
    that other tokens need are kept (`choose_tokens`). Before anything is written, the new tokenizer
    is checked on the texts: texts without a removed token must get the same tokens as before, with
    their new ids. `embeddings` is a file or folder of embeddings, from which the rows of removed
    tokens are removed too, and `tensors` are the names of its tables."""
    if least < 1 or (most is not None and most < 1):
        raise UsageError("min-count, vocab: give 1 or more")
    original = open_tokenizer(path)
    form, size = original.form, original.size
    tables = read_tables(embeddings, tensors, size) if embeddings else []
    sample = Sample()
    counts, texts = _count_ids(original.encode, batches(), size, sample)
    if not texts:
        raise UsageError("no document with text: give a corpus to prune on")
    kept = choose_tokens(form, counts, most, least)
    new = np.full(size, DROPPED, np.int64)
    new[kept] = np.arange(len(kept))
    data = _rewrite(original, kept, new)
    name = original.file_name
    with TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(data)
        encode = open_vocabulary(Path(folder) / name).encode
    unchanged = _UnchangedTexts(new)
    lengths = compare_lengths(original.encode, encode, batches(), unchanged.add)
    file = write_changed(original, out, data, new)
    write_atomic(out / MAP, _id_map(original, new, counts))
    measured, shown = measure(file, sample, "a sample of the texts it was checked on")
    card = PrunedCard(
        pruned_from=original.path.name,
        source_sha256=original.sha256,
        algorithm=algorithm_name(form),
        **describe_file(form, file, data, {old: n for n, old in enumerate(kept)})._asdict(),
        old_tokens=size,
        new_tokens=len(kept),
        dropped=size - len(kept),
        min_count=least,
        keep_used=most,
        map=MAP,
        **vars(lengths),
        texts_without_dropped_tokens=unchanged.texts,
        measured=measured,
        embeddings=write_pruned(tables, out, np.array(kept)) if tables else None,
        notes=[],
    )
    card.write(out / "tokenizer_card.json", shown)
    return card


def _count_ids(
    encode: Encode, batches: Iterable[Buffers], size: int, sample: Sample
) -> tuple[np.ndarray, int]:
    counts = np.zeros(size, np.int64)
    texts = 0
    for data, offsets in batches:
        counts += np.bincount(encode(data, offsets)[0], minlength=size)
        texts += int((np.diff(offsets) > 0).sum())
        sample.add_rows(data, offsets)
    return counts, texts


class _UnchangedTexts:
    def __init__(self, mapped: np.ndarray) -> None:
        self.mapped, self.texts = mapped, 0

    def add(self, _: Buffers, before: Buffers, after: Buffers) -> None:
        expected = self.mapped[before[0]]
        old, new = (pairwise(np.cumsum([0, *sizes]).tolist()) for _, sizes in (before, after))
        for (a, z), (b, y) in zip(old, new, strict=True):
            if DROPPED not in expected[a:z]:
                self.texts += 1
                if not np.array_equal(expected[a:z], after[0][b:y]):
                    raise CannotHold(
                        "the pruned tokenizer encodes a text differently although none of its"
                        " tokens was removed: do not use it, and report this as a bug"
                    )


def _rewrite(original: Original, kept: list[int], new: np.ndarray) -> bytes:
    if original.parts is None:
        return keep_pieces(original.raw, kept)
    parts = copy.deepcopy(original.parts)
    model = parts["model"]
    if isinstance(original.form, ByteBpe):
        vocab = {word: int(new[number]) for word, number in model["vocab"].items()}
        model["vocab"] = {word: number for word, number in vocab.items() if number != DROPPED}
        model["merges"] = [
            [to_letters(left), to_letters(right)]
            for left, right in original.form.merges
            if new[original.form.tokens[left + right]] != DROPPED
        ]
    elif isinstance(original.form, CharBpe):
        gone = {text for text, number in original.form.tokens.items() if new[number] == DROPPED}
        vocab = {text: int(new[number]) for text, number in model["vocab"].items()}
        model["vocab"] = {text: number for text, number in vocab.items() if number != DROPPED}
        model["merges"] = [list(p) for p in original.form.merges if "".join(p) not in gone]
    else:
        rows = model["vocab"]
        # An id is an index in the vocabulary: move added tokens that come after it into it.
        rows += [[text, NEVER] for text, _, _ in original.form.pieces[len(rows) :]]
        model["vocab"] = [rows[old] for old in kept]
        model["unk_id"] = int(new[model["unk_id"]])
    for token in parts["added_tokens"]:
        token["id"] = int(new[token["id"]])
    if parts["post_processor"] is not None:
        parts["post_processor"] = _renumber(parts["post_processor"], new)
    if isinstance(original.form, ByteBpe | CharBpe):
        added = [replace(token, number=int(new[token.number])) for token in original.form.added]
        return file_with_added(parts, tuple(added))
    renew_runs(parts)
    return Tokenizer.from_str(json.dumps(parts)).to_str(pretty=True).encode()


def _renumber(step: Step, new: np.ndarray) -> Step:
    step = copy.deepcopy(step)
    if step["type"] == "Sequence":
        step["processors"] = [_renumber(inner, new) for inner in step["processors"]]
    for token in step.get("special_tokens", {}).values():  # TemplateProcessing
        token["ids"] = [int(new[number]) for number in token["ids"]]
    if "sep" in step and "cls" in step:  # BertProcessing, RobertaProcessing
        (sep, end), (cls, begin) = step["sep"], step["cls"]
        step["sep"], step["cls"] = (sep, int(new[end])), (cls, int(new[begin]))
    return step


def _id_map(original: Original, new: np.ndarray, counts: np.ndarray) -> bytes:
    words = [""] * len(new)
    if isinstance(original.form, ByteBpe):
        for token, number in original.form.tokens.items():
            words[number] = token.decode("utf-8", "backslashreplace")
        for added in original.form.added:
            words[added.number] = added.content
    elif isinstance(original.form, CharBpe):
        for text, number in original.form.tokens.items():
            words[number] = text
        for number, text in original.form.others.items():
            words[number] = text
    else:
        words = [text for text, _, _ in original.form.pieces]
    table = pa.table(
        {
            "old_id": pa.array(range(len(new)), pa.int32()),
            "new_id": pa.array(new, pa.int32(), mask=new == DROPPED),
            "token": pa.array(words, pa.string()),
            "count": pa.array(counts, pa.int64()),
        }
    )
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()
