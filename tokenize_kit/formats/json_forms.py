"""Convert a tokenizer.json to a form (the content of a tokenizer: byte-level BPE, or pieces of a
SentencePiece model), and a form to a tokenizer of the library `tokenizers`.

SentencePiece's preparation of text (normalizer.cc) becomes normalizers of `tokenizers`: these
replace characters, drop spaces at the ends and reduce runs of spaces to one, add a space before the
text, and write spaces as U+2581. If pieces have spaces only at their start, the text is also cut
before runs of spaces, which changes no id and saves work."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from llmcurate.base.tokenizer_file import post_processor
from tokenize_kit.formats.charsmap_steps import charsmap_steps, split_charsmap
from tokenize_kit.formats.forms import (
    BYTE,
    BYTE_PIECES,
    CONTROL,
    FLAGS,
    NORMAL,
    SPACE,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Added,
    ByteBpe,
    CannotHold,
    Form,
    Pieces,
)
from tokenize_kit.formats.tokenizer_json import (
    Model,
    Parts,
    Unsupported,
    cut_to_bytes,
    flat_steps,
    from_letters,
    patterns_of,
    to_letters,
)


def is_byte_bpe(parts: Parts) -> bool:
    """Return True if the model of a tokenizer.json is a BPE that spells each byte as a letter."""
    return parts["model"].get("type") == "BPE" and "ByteLevel" in json.dumps(parts["pre_tokenizer"])


def normalizers_of(parts: Parts) -> list[str]:
    """Return the types of the normalizers in a tokenizer.json, in order."""
    return [step["type"] for step in flat_steps(parts.get("normalizer"))]


def byte_bpe_from_json(parts: Parts) -> ByteBpe:
    """Return the ByteBpe of a tokenizer.json that `tokenizers` has loaded. Raises CannotHold naming
    the unsupported feature. Post-processors are ignored: they only put tokens around the text."""
    model = parts["model"]
    if kinds := normalizers_of(parts):
        raise CannotHold(f"it normalizes text ({', '.join(kinds)})")
    for name in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise CannotHold(f"its model has the setting {name}")
    try:
        patterns = patterns_of(parts["pre_tokenizer"])
    except Unsupported as error:
        raise CannotHold(f"no other format can split text this way: {error}") from None
    added = added_of(parts)
    apart = {token.number for token in added}
    try:
        tokens = {from_letters(w): n for w, n in model["vocab"].items() if n not in apart}
        pairs = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
        merges = tuple((from_letters(left), from_letters(right)) for left, right in pairs)
    except KeyError as error:
        raise CannotHold(f"a token has the letter {error}, which stands for no byte") from None
    if any(bytes([byte]) not in tokens for byte in range(256)):
        raise CannotHold("its vocabulary does not have all 256 bytes")
    if any(a + b not in tokens for a, b in merges):
        raise CannotHold("a merge makes a token that is special or not in the vocabulary")
    return ByteBpe(tokens, merges, tuple(patterns), added, bool(model.get("ignore_merges")))


_ADDED = itemgetter("content", "id", *FLAGS)  # in the order of Added's fields


def added_of(parts: Parts) -> tuple[Added, ...]:
    """Return the added tokens of a tokenizer.json. `normalized` is set to False if the file has
    only Replace normalizers: these do not change the texts of added tokens."""
    changed = bool(set(normalizers_of(parts)) - {"Replace"})
    tokens = [Added(*_ADDED(token)) for token in parts["added_tokens"]]
    return tuple(t if changed else replace(t, normalized=False) for t in tokens)


def byte_bpe_tokenizer(form: ByteBpe) -> Tokenizer:
    """Return a tokenizer of `tokenizers` with the ids of `form`, even if some ids have no token."""
    vocab = {to_letters(token): number for token, number in form.tokens.items()}
    clash = [a.content for a in form.added if a.content in vocab]
    if clash:
        raise CannotHold(f"the special token {clash[0]!r} has the text of an ordinary token")
    vocab |= {token.content: token.number for token in form.added}
    merges = [(to_letters(left), to_letters(right)) for left, right in form.merges]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=form.whole))
    cut_to_bytes(tokenizer, form.parts)
    put_added(tokenizer, form.added)
    return tokenizer


def put_added(tokenizer: Tokenizer, added: tuple[Added, ...]) -> None:
    """Make a tokenizer find `added`, tokens of its vocabulary, in a text before it is split."""
    tokenizer.add_tokens(
        [
            AddedToken(token.content, **{flag: getattr(token, flag) for flag in FLAGS})
            for token in sorted(added, key=lambda token: token.number)
        ]
    )


# The score of pieces that no text may match: in the library's lattice, every piece can match.
NEVER = -1e6
_LARGEST = (2 - 2**-23) * 2.0**127  # of a float32
_WORDS = f"{SPACE}+[^{SPACE}]*|[^{SPACE}]+"


def pieces_tokenizer(model: Pieces) -> Tokenizer:
    """Return a tokenizer of `tokenizers` with the same ids. Raises CannotHold naming the
    unsupported feature."""
    if len(model.numbers) != len(model.pieces):
        raise CannotHold("two of its pieces have the same text")
    tokenizer = Tokenizer(_unigram(model) if model.kind == "unigram" else _bpe(model))
    steps = _normalizers(model)
    tokenizer.normalizer = normalizers.Sequence(steps)
    cuts = [pre_tokenizers.Split(Regex(_WORDS), "isolated")] if model.starts_words else []
    if runs := _known_characters(model):
        cuts.insert(0, pre_tokenizers.Split(Regex(runs), "isolated"))
    defined = sorted((t for t, _, k in model.pieces if k == USER_DEFINED), key=len, reverse=True)
    if model.kind == "bpe" and model.prefix and defined:
        spelled = "|".join(map(_escaped, defined))
        apart = pre_tokenizers.Split(Regex(_unmatched(model)), "isolated")
        cuts = [pre_tokenizers.Split(Regex(spelled), "isolated"), *cuts, apart]
    if cuts:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    after = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if model.prefix:
        after.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(after)
    put_added(tokenizer, tuple(token for token in model.added if token.special))
    if model.kind == "bpe" and not model.prefix:
        tokenizer.add_tokens([AddedToken(text, special=False, normalized=True) for text in defined])
    return tokenizer


def _escaped(text: str) -> str:
    return re.sub(r"([^\w\s])", r"\\\1", text)


def _unmatched(model: Pieces) -> str:
    """Return a pattern that cuts a text if the text is exactly the name of a control, unknown or
    byte piece, such as `<s>`. The cut is after the first of the pieces that spell the name. Without
    the cut, `tokenizers` would encode the text as that piece: with ignore_merges set, `tokenizers`
    looks up whole texts first. No other text is cut."""
    merged, alternatives = _bpe(model), []
    merged.ignore_merges = False
    for text, _, kind in model.pieces:
        if kind not in (NORMAL, USER_DEFINED) and len(text) > 1:
            first = merged.tokenize(text)[0].value
            end = len(first) if text.startswith(first) and first != text else 1
            alternatives.append(rf"{_escaped(text[:end])}(?={_escaped(text[end:])}\z)")
    return rf"\A(?:{'|'.join(alternatives)})"


def _normalizers(model: Pieces) -> list[Any]:
    steps: list[Any] = []
    if model.charsmap:
        try:
            steps += charsmap_steps(model.charsmap)
        except Exception as error:  # the library raises bare Exception
            raise CannotHold(f"its precompiled normalizer is damaged ({error})") from None
    if model.squeeze:
        steps += [
            normalizers.Replace(Regex(r"\A +"), ""),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    if model.prefix:
        steps.append(normalizers.Prepend(SPACE))
    steps.append(normalizers.Replace(" ", SPACE))
    if model.squeeze:
        steps.append(normalizers.Replace(Regex(rf"{SPACE}+\z"), ""))
    return steps


def _known_characters(model: Pieces) -> str | None:
    """Return a pattern for runs of characters that occur in pieces, or None if none is needed. Text
    is cut where such a run begins or ends. Without these cuts, the library could find a special
    token in a text: if no piece contains `<`, the piece `</s>` has a better score than the unknown
    character `<`. No ordinary piece crosses a cut, so the cuts change nothing else."""
    usable = {c for t, _, kind in model.pieces if kind in (NORMAL, USER_DEFINED) for c in t}
    others = {
        c for t, _, kind in model.pieces if kind not in (NORMAL, USER_DEFINED, BYTE) for c in t
    }
    if model.kind != "unigram" or model.byte_fallback or others <= usable or not usable:
        return None
    codes = enumerate(sorted(map(ord, usable)))
    runs = [[*run] for _, run in groupby(codes, lambda code: code[1] - code[0])]
    return "[" + "".join(rf"\x{{{run[0][1]:x}}}-\x{{{run[-1][1]:x}}}" for run in runs) + "]+"


def renew_runs(parts: Parts) -> Parts:
    """Update the pattern that cuts text between known and unknown characters (`_known_characters`)
    in `parts`, a tokenizer.json whose pieces have changed. Return `parts`, changed."""
    runs = _known_characters(pieces_from_json(parts, whole=False))
    for cut in flat_steps(parts.get("pre_tokenizer")):
        if _RUNS.fullmatch(cut.get("pattern", {}).get("Regex", "")):
            # If no runs are needed now, _ALL leaves the text uncut.
            cut["pattern"]["Regex"] = runs or _ALL
    return parts


def _unigram(model: Pieces) -> Any:
    scores = [score for _, score, kind in model.pieces if kind == NORMAL]
    most = max(scores, default=0.0)
    vocab = []
    for text, score, kind in model.pieces:
        if kind == USER_DEFINED:  # unigram_model.cc: chosen before all others
            score = len(text.encode()) * most - 0.1
        elif kind != NORMAL:
            score = NEVER
        vocab.append((text, score))
    return models.Unigram(vocab, model.unknown, model.byte_fallback)


def _bpe(model: Pieces) -> Any:
    parts = {text for text, _, kind in model.pieces if kind in (NORMAL, UNUSED)}
    if any(kind == UNUSED for _, _, kind in model.pieces):
        raise CannotHold("it has unused pieces, which SentencePiece's BPE replaces by their parts")
    # Pieces of equal score merge from left to right in SentencePiece, and here in order of ids and
    # cuts. Few texts show the difference: verify.tied_texts makes such texts.
    ranked = sorted(
        (-score, number, text)
        for number, (text, score, kind) in enumerate(model.pieces)
        if kind == NORMAL
    )
    splits = ((text[:k], text[k:]) for _, _, text in ranked for k in range(1, len(text)))
    merges = [(left, right) for left, right in splits if left in parts and right in parts]
    defined = any(kind == USER_DEFINED for _, _, kind in model.pieces)
    return models.BPE(
        vocab=model.numbers,
        merges=merges,
        unk_token=model.pieces[model.unknown][0],
        fuse_unk=True,
        byte_fallback=model.byte_fallback,
        # The split isolates user-defined pieces; they have no merges.
        ignore_merges=defined and model.prefix,
    )


def pieces_from_json(parts: Parts, whole: bool = True) -> Pieces:
    """Return the pieces of a tokenizer.json that `tokenizers` has loaded. Raises CannotHold naming
    the unsupported feature. Supported are files written by `pieces_tokenizer`, by our training and
    by the usual converters of Llama-like models. Post-processors are ignored. whole: True to refuse
    steps of text preparation that no other format supports; False to ignore these steps, for a
    tokenizer that keeps its file format."""
    model = parts["model"]
    kind: Literal["unigram", "bpe"]
    if model.get("type") not in ("Unigram", "BPE"):
        raise CannotHold(f"no other format supports a {model.get('type')} model")
    charsmap, squeeze, prefix, escaped = _preparation(parts, whole)
    added = added_of(parts)
    kinds = {t.content: CONTROL if t.special else USER_DEFINED for t in added}
    if model["type"] == "Unigram":
        kind = "unigram"
        rows = [(text, score) for text, score in model["vocab"]]
        unknown = model["unk_id"]
    else:
        kind = "bpe"
        for name in ("continuing_subword_prefix", "end_of_word_suffix"):
            if model.get(name):
                raise CannotHold(f"its model has the setting {name}")
        rows = _scored_tokens(model)
        unknown = next((n for n, (t, _) in enumerate(rows) if t == model["unk_token"]), None)
    if unknown is None:
        raise CannotHold("SentencePiece needs an unknown token, and this tokenizer has none")
    for token in sorted(added, key=lambda token: token.number):
        if token.number == len(rows):
            rows.append((token.content, 0.0))
    fallback = bool(model.get("byte_fallback"))
    if whole and fallback and (spelled := [text for text in BYTE_PIECES if text in kinds]):
        raise CannotHold(
            f"its byte tokens, such as {spelled[0]}, are added tokens too, which SentencePiece's"
            " bytes cannot be: take them out of added_tokens in the tokenizer.json"
        )
    pieces = []
    for number, (text, score) in enumerate(rows):
        plain = BYTE if fallback and text in BYTE_PIECES else NORMAL
        piece_kind = UNKNOWN if number == unknown else kinds.get(text, plain)
        shown = (
            text if piece_kind in (CONTROL, UNKNOWN, BYTE) or escaped else text.replace(" ", SPACE)
        )
        if abs(score) > _LARGEST:
            raise CannotHold(f"the score of {text[:40]!r} does not fit into 32 bits")
        pieces.append((shown, 0.0 if piece_kind != NORMAL else score, piece_kind))
    return Pieces(kind, tuple(pieces), charsmap, prefix, squeeze, fallback)


def _scored_tokens(model: Model) -> list[tuple[str, float]]:
    order = sorted(model["vocab"].items(), key=lambda item: item[1])
    if [number for _, number in order] != list(range(len(order))):
        raise CannotHold("SentencePiece allows no gaps in the ids, and this vocabulary has some")
    pairs = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    rank: dict[str, float] = {}
    for number, (left, right) in enumerate(pairs):
        rank.setdefault(left + right, -float(number))
    return [(text, rank.get(text, -float(len(pairs)))) for text, _ in order]


def escapes_spaces(parts: Parts) -> bool:
    """Return True if the vocabulary of a tokenizer.json spells spaces as U+2581."""
    return _preparation(parts, whole=False)[3]


def _preparation(parts: Parts, whole: bool) -> tuple[bytes, bool, bool, bool]:
    charsmap, steps = split_charsmap(flat_steps(parts.get("normalizer")))
    squeeze, prefix, escaped = False, False, False
    for step in steps:
        kind = step["type"]
        pattern = step.get("pattern", {})
        if kind == "Prepend" and step["prepend"] == SPACE:
            prefix = True
        elif kind == "Replace" and pattern.get("String") == " " and step["content"] == SPACE:
            escaped = True
        elif kind == "Replace" and pattern.get("Regex") in (r"\A +", " {2,}", rf"{SPACE}+\z"):
            squeeze = True
        elif whole:
            raise CannotHold(f"no other format supports the normalizer {kind}")
    for cut in flat_steps(parts.get("pre_tokenizer")):
        regex = cut.get("pattern", {}).get("Regex")
        if cut["type"] == "Metaspace" and cut["replacement"] == SPACE:
            escaped, prefix = True, prefix or cut["prepend_scheme"] != "never"
        elif not whole or regex in (_WORDS, _TRAINED_HERE, _ALL) or _RUNS.fullmatch(regex or ""):
            continue
        else:
            raise CannotHold(
                "it splits text by a pattern, which no other format supports for character tokens"
            )
    return charsmap, squeeze, prefix, escaped


_TRAINED_HERE = r"\n| +[^ \n]*|[^ \n]+"  # the pattern in learn/unigram.py
_ALL = r"[\s\S]+"
_RUNS = re.compile(r"\[(\\x\{[0-9a-f]+\}-\\x\{[0-9a-f]+\})+\]\+")


def form_from_json(parts: Parts) -> Form:
    """Return a tokenizer.json, loaded by `tokenizers`, as ByteBpe or Pieces. Raises CannotHold
    naming a feature that these cannot express."""
    return byte_bpe_from_json(parts) if is_byte_bpe(parts) else pieces_from_json(parts)


def tokenizer_of(form: Form) -> Tokenizer:
    """Return a tokenizer of `tokenizers` with the ids of `form`. Around each text it adds the
    tokens that `form.roles` names."""
    tokenizer = byte_bpe_tokenizer(form) if isinstance(form, ByteBpe) else pieces_tokenizer(form)
    if form.roles.before or form.roles.behind:
        tokenizer.post_processor = post_processor(tokenizer, form.roles)
    return tokenizer
