"""Join two tokenizers: tokens of the second that the first lacks are added to the first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from llmcurate.base.errors import RunFailed, UsageError
from tokenize_kit.card import Measured, Sample, measure
from tokenize_kit.change.bpe import CharBpe, Text
from tokenize_kit.change.original import Original, open_tokenizer, space_of, token_texts
from tokenize_kit.change.verify import (
    Comparison,
    Encode,
    Reading,
    Texts,
    compare_lengths,
    pack_texts,
    unigram_scores,
)
from tokenize_kit.encode.vocabulary import open_vocabulary
from tokenize_kit.formats.forms import (
    CONTROL,
    NORMAL,
    SPACE,
    USER_DEFINED,
    ByteBpe,
    CannotHold,
    Pieces,
)
from tokenize_kit.judge.compare import HARD_TEXTS, SCRIPTS
from tokenize_kit.lab.addition import Addition, GrownCard, Growth, Rows, file_with_tokens
from tokenize_kit.lab.unigram import Segments, score_pieces
from tokenize_kit.pattern.categories import SCRIPTS as SCRIPT_NAMES
from tokenize_kit.pattern.categories import scripts as script_of_code_points

_NEUTRAL = "\u2603"  # a character that very few longer tokens begin with
_SHARED = ("Common", "Inherited", "Unknown")


@dataclass(frozen=True, kw_only=True)
class JoinedCard(GrownCard):
    """The card of a tokenizer with another tokenizer's tokens. `left_out` is the number of tokens
    left out because no text would produce them."""

    joined_with: str
    joined_sha256: str
    joined_tokens: int
    scripts: str | None
    common_tokens: int
    other_scripts: int
    left_out: int
    scores_raised: int | None
    measured_texts: int | None = None
    measured_bytes: int | None = None
    bytes_a_token_before: float | None = None
    bytes_a_token_after: float | None = None
    measured: Measured | None = None
    notes: list[str]


def join(
    path: Path,
    other: Path,
    out: Path,
    *,
    scripts: str = "",
    rows: Rows | None = None,
    batches: Texts | None = None,
) -> JoinedCard:
    """Add the tokens of `other` that the tokenizer at `path` lacks; write the result into the
    folder `out` and return its card.

    This is how PhayaThaiBERT adds XLM-R's tokens to WangchanBERTa (Sriwirote et al. 2023). Two
    tokens are the same if their texts are equal; a leading space is ignored if the first tokenizer
    has spaces as separate tokens. Old ids do not change, and special tokens are not added. A BPE
    gets one merge per new token after all other merges (`join_bpe`), and a Unigram gets a piece
    with a score (unigram.score_pieces). Tokens that no text would produce are left out and counted.

    `scripts` names the scripts that tokens may contain, such as `Latin,Greek`, or may not, such as
    `-Thai`. `rows` are the embeddings to extend too. `batches()` yields the texts to measure on.
    Raises CannotHold if a text without new tokens would be encoded differently than before."""
    original, giver = open_tokenizer(path), open_tokenizer(other)
    growth = Growth(original, rows)
    tokens, common, other_scripts = _candidates(original, giver, allowed_scripts(scripts))
    addition, raised = _join(original, tokens)
    addition = _reachable(original, addition)
    if not addition.tokens:
        raise RunFailed(
            f"{other}: has no token to add to {path}"
            f" ({common:,} are in both, {other_scripts:,} are of other scripts)"
        )
    file, grown = growth.write(addition, out)
    card = JoinedCard(
        **vars(grown),
        joined_with=giver.path.name,
        joined_sha256=giver.sha256,
        joined_tokens=giver.size,
        scripts=scripts or None,
        common_tokens=common,
        other_scripts=other_scripts,
        left_out=len(tokens) - len(addition.tokens),
        scores_raised=raised if addition.scores is not None else None,
        notes=[],
    )
    shown = None
    if batches is not None:
        sample, encode = Sample(), open_vocabulary(file).encode
        lengths = compare_lengths(
            original.encode, encode, batches(), lambda batch, *_: sample.add_rows(*batch)
        )
        measured, shown = measure(file, sample, "a sample of the texts given")
        card = replace(card, **vars(lengths), measured=measured)
    card.write(out / "tokenizer_card.json", shown)
    return card


def allowed_scripts(scripts: str) -> np.ndarray:
    """Return bool[SCRIPTS]: the scripts that tokens may contain. `scripts` has the names of these
    scripts, separated by commas, or names of forbidden scripts, each with a minus. Characters
    shared by scripts are always allowed."""
    names = [name.strip() for name in scripts.split(",") if name.strip()]
    without = [name[1:] for name in names if name.startswith("-")]
    if without and len(without) < len(names):
        raise UsageError(
            f"scripts {scripts!r}: name scripts to include, or all with a minus to exclude"
        )
    for name in without or names:
        if name not in SCRIPT_NAMES:
            raise UsageError(
                f"scripts: {name!r} is not a Unicode script; write Latin, Thai, Han, ..."
            )
    chosen = np.isin(SCRIPT_NAMES, without or names)
    allowed = chosen if names and not without else ~chosen
    return np.asarray(allowed | np.isin(SCRIPT_NAMES, _SHARED))


def _candidates(
    original: Original, giver: Original, allowed: np.ndarray
) -> tuple[dict[bytes, float | None], int, int]:
    """Return ({bytes of a token that may be added: Unigram score, or None for BPE}, in order of
    ids; how many tokens the first tokenizer has already; how many are of other scripts)."""
    other_tokens = token_texts(giver.form)
    own = token_texts(original.form)
    reserved = {content.encode() for content in _special(original)}
    tokens: dict[bytes, float | None] = {}
    common = other_scripts = 0
    separate_spaces = _spaces_stand_apart(original)
    for spelled, score in other_tokens.items():
        token = spelled.removeprefix(b" ") if separate_spaces else spelled
        # A partial character has no known script, so it is a candidate.
        codes = np.frombuffer(token.decode("utf-8", "ignore").encode("utf-32-le"), "<u4")
        if token in own or token in reserved:
            common += 1
        elif not allowed[script_of_code_points()[codes]].all():
            other_scripts += 1
        elif token not in tokens or (score or 0) > (tokens[token] or 0):
            tokens[token] = score
    return tokens, common, other_scripts


def _spaces_stand_apart(original: Original) -> bool:
    """Return True if every space is a separate token, such as WangchanBERTa's `<_>`. A word is then
    the same with and without a space before it."""
    form = original.form
    if not isinstance(form, Pieces):
        return False
    ids, _ = original.encode(*pack_texts(["x x"]))
    return any(form.pieces[number][2] in (CONTROL, USER_DEFINED) for number in ids.tolist())


def _special(original: Original) -> list[str]:
    form = original.form
    if isinstance(form, ByteBpe):
        return [token.content for token in form.added]
    if isinstance(form, CharBpe):
        return list(form.others.values())
    return [text for text, _, kind in form.pieces if kind != NORMAL]


def _join(original: Original, tokens: dict[bytes, float | None]) -> tuple[Addition, int]:
    form = original.form
    if isinstance(form, ByteBpe):
        own = {token: [number] for token, number in form.tokens.items()}
        letters = [bytes([byte]) for byte in range(256)]
        return join_bpe(form.merges, own, list(tokens), lambda token: [letters[b] for b in token])
    space = SPACE if isinstance(form, Pieces) else space_of(form)
    spelled: dict[str, float | None] = {}
    for token, score in tokens.items():
        try:
            spelled[token.decode().replace(" ", space)] = score
        except UnicodeDecodeError:
            continue  # part of a character
    if isinstance(form, Pieces):
        scored, raised = score_pieces(form, spelled)
        segments = Segments(form)
        parts = [segments.best(text)[1] for text in scored]
        return Addition(list(scored), parts, scores=list(scored.values())), raised
    own_texts = {text: [number] for text, number in form.tokens.items()}
    new = {text: _spelled_by(form, text) for text in spelled if len(text) == 1}
    return join_bpe(form.merges, own_texts | new, list(spelled), list, list(new))


def _spelled_by(form: CharBpe, letter: str) -> list[int]:
    if form.byte_fallback:
        bytes_to_ids = {text: number for number, text in form.others.items()}
        return [bytes_to_ids[f"<0x{byte:02X}>"] for byte in letter.encode()]
    return [form.unknown] if form.unknown is not None else sorted(form.tokens.values())


def join_bpe(
    merges: Sequence[tuple[Text, Text]],
    parts: dict[Text, list[int]],
    candidates: list[Text],
    letters: Callable[[Text], list[Text]],
    single: Sequence[Text] = (),
) -> tuple[Addition, int]:
    """Add the candidates that one more merge can make. Return (the addition, 0); the 0 is the
    number of raised scores, which only a Unigram has.

    A candidate that is encoded as two tokens, by the old merges and those added so far, is added
    with a merge of these two, after all other merges. So every text is first encoded as before, and
    only then do the new merges join its tokens. Candidates of more tokens are tried again after
    others have been added, until none can be. parts: the old ids that spell each token (new tokens
    are added to this dict); letters: a function that splits a text into its first symbols; single:
    candidates of one character, which need no merge."""
    ranks: dict[tuple[Text, Text], int] = {}
    for pair in merges:
        ranks.setdefault(pair, len(ranks))
    tokens, pairs = list(single), []
    waiting = [token for token in candidates if token not in parts]
    while True:
        remaining = []
        for token in waiting:
            symbols = merged(letters(token), ranks)
            if len(symbols) == 2 and symbols[0] in parts and symbols[1] in parts:
                pair = symbols[0], symbols[1]
                ranks[pair] = len(ranks)
                parts[token] = parts[pair[0]] + parts[pair[1]]
                tokens.append(token)
                pairs.append(pair)
            else:
                remaining.append(token)
        if len(remaining) == len(waiting):
            return Addition(tokens, [parts[token] for token in tokens], pairs), 0
        waiting = remaining


def merged(symbols: list[Text], ranks: dict[tuple[Text, Text], int]) -> list[Text]:
    """Merge symbols by rank: the pair with the lowest rank first, the leftmost of equal pairs.
    Return the remaining symbols."""
    no_rank = len(ranks)
    while len(symbols) > 1:
        order = [ranks.get(pair, no_rank) for pair in pairwise(symbols)]
        lowest = min(order)
        if lowest == no_rank:
            break
        at = order.index(lowest)
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    return symbols


def _reachable(original: Original, addition: Addition) -> Addition:
    """Drop new tokens that cannot occur in encoded text: encoding a token's own text gives other
    tokens, for example because the pattern splits it or a normaliser changes it. Tokens that are
    parts of other new tokens stay."""
    encode = _reopen(original, addition)
    reachable = _produced(original, addition, encode)
    wanted = {token for token, is_given in zip(addition.tokens, reachable, strict=True) if is_given}
    for left, right in reversed(addition.merges or []):
        if left + right in wanted:
            wanted |= {left, right}
    kept = [k for k, token in enumerate(addition.tokens) if token in wanted]
    if len(kept) < len(addition.tokens):
        merges, scores = addition.merges, addition.scores
        addition = replace(
            addition,
            tokens=[addition.tokens[k] for k in kept],
            parts=[addition.parts[k] for k in kept],
            merges=merges and [pair for pair in merges if pair[0] + pair[1] in wanted],
            scores=scores and [scores[k] for k in kept],
        )
        if not kept:
            return addition
        encode = _reopen(original, addition)
        if not _produced(original, addition, encode)[reachable[kept]].all():
            raise CannotHold("a new token is not produced by its text: report this as a bug")
    _check_old_texts(original, encode)
    return addition


def _reopen(original: Original, addition: Addition) -> Encode:
    with TemporaryDirectory() as folder:
        file = Path(folder) / original.file_name
        file.write_bytes(file_with_tokens(original, addition))
        return open_vocabulary(file).encode


def _produced(original: Original, addition: Addition, encode: Encode) -> np.ndarray:
    texts = _texts(original, addition.tokens)
    numbers = original.size + np.arange(len(texts))
    reachable = np.zeros(len(texts), np.bool_)
    for before in ("", _NEUTRAL):
        ids, sizes = encode(*pack_texts([text and before + text for text in texts]))
        rows = np.repeat(np.arange(len(texts)), sizes)
        reachable[rows[ids == numbers[rows]]] = True
    return reachable


def _texts(original: Original, tokens: list[Any]) -> list[str]:
    form = original.form
    if isinstance(form, ByteBpe):
        whole = [token.decode("utf-8", "replace") for token in tokens]
        return ["" if "\ufffd" in text else text for text in whole]
    space = SPACE if isinstance(form, Pieces) else space_of(form)
    return [text.replace(space, " ") for text in tokens]


def _check_old_texts(original: Original, encode: Encode) -> None:
    own = [token.decode("utf-8", "ignore") for token in token_texts(original.form)]
    texts = [text for text in (*HARD_TEXTS, *SCRIPTS, *own) if text]
    ids, sizes = encode(*pack_texts(texts))
    new = np.zeros(len(texts), np.bool_)
    new[np.repeat(np.arange(len(texts)), sizes)[ids >= original.size]] = True
    old_texts = [text for text, is_new in zip(texts, new, strict=True) if not is_new]
    scores = None if isinstance(original.form, CharBpe) else unigram_scores(original.form)
    before, after = (
        Reading(each, lambda rows: [""] * len(rows), ()) for each in (original.encode, encode)
    )  # ids alone are compared
    Comparison(scores=scores).run(before, after, [pack_texts(old_texts)])
