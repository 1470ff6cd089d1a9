"""Tokenizers in a tokenizer.json as forms: byte-level BPE, and pieces of SentencePiece's models.

What SentencePiece does before it looks for pieces (normalizer.cc) is written as normalisers of
`tokenizers`: its rules for characters, spaces at the ends dropped and runs made one, a space put
before the text, spaces as U+2581. The text is cut before runs of spaces where no piece goes on over
one, which changes no id and keeps the work short.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any, Literal

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from tokenize_kit.formats.forms import (
    BYTE,
    BYTE_PIECES,
    CONTROL,
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
    """Whether a tokenizer.json spells its text in the letters of bytes."""
    return parts["model"].get("type") == "BPE" and "ByteLevel" in json.dumps(parts["pre_tokenizer"])


def normalizers_of(parts: Parts) -> list[str]:
    """The kinds of normalisers of a tokenizer.json, one after the other."""
    return [step["type"] for step in flat_steps(parts.get("normalizer"))]


def byte_bpe_from_json(parts: Parts) -> ByteBpe:
    """The form of a tokenizer.json that `tokenizers` has read; CannotHold names what it lacks.

    A post-processor is left out: it puts tokens around text and changes none of it.
    """
    model = parts["model"]
    if kinds := normalizers_of(parts):
        raise CannotHold(f"it normalises text ({', '.join(kinds)})")
    for name in ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise CannotHold(f"its model has the setting {name}")
    try:
        patterns = patterns_of(parts["pre_tokenizer"])
    except Unsupported as error:
        raise CannotHold(f"it cuts text in a way that no other file holds: {error}") from None
    added = tuple(Added(t["content"], t["id"], t["special"]) for t in parts["added_tokens"])
    apart = {token.number for token in added}
    try:
        tokens = {from_letters(w): n for w, n in model["vocab"].items() if n not in apart}
        pairs = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
        merges = tuple((from_letters(left), from_letters(right)) for left, right in pairs)
    except KeyError as error:
        raise CannotHold(f"a token has the letter {error}, which is none of a byte") from None
    if any(bytes([byte]) not in tokens for byte in range(256)):
        raise CannotHold("its vocabulary does not have all 256 bytes")
    if any(a + b not in tokens for a, b in merges):
        raise CannotHold("a merge makes a token that is special or not in the vocabulary")
    return ByteBpe(tokens, merges, tuple(patterns), added, bool(model.get("ignore_merges")))


def byte_bpe_tokenizer(form: ByteBpe) -> Tokenizer:
    """As a tokenizer of `tokenizers`; ids are the form's, gaps and all."""
    vocab = {to_letters(token): number for token, number in form.tokens.items()}
    clash = [a.content for a in form.added if a.content in vocab]
    if clash:
        raise CannotHold(f"the special token {clash[0]!r} is spelled as an ordinary one is")
    vocab |= {token.content: token.number for token in form.added}
    merges = [(to_letters(left), to_letters(right)) for left, right in form.merges]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=form.whole))
    cut_to_bytes(tokenizer, form.parts)
    put_added(tokenizer, form.added)
    return tokenizer


def put_added(tokenizer: Tokenizer, added: tuple[Added, ...]) -> None:
    """Tokens of the vocabulary that are looked for in the text, in order of their ids."""
    tokenizer.add_tokens(
        [
            AddedToken(token.content, special=token.special, normalized=False)
            for token in sorted(added, key=lambda token: token.number)
        ]
    )


# Never chosen where another path exists: in the library's lattice every piece can match the text.
NEVER = -1e6
_LARGEST = (2 - 2**-23) * 2.0**127  # of a float32
_WORDS = f"{SPACE}+[^{SPACE}]*|[^{SPACE}]+"


def pieces_tokenizer(model: Pieces) -> Tokenizer:
    """As a tokenizer of `tokenizers` with the same ids; CannotHold names what it cannot do."""
    if len(model.numbers) != len(model.pieces):
        raise CannotHold("two of its pieces are spelled alike")
    tokenizer = Tokenizer(_unigram(model) if model.kind == "unigram" else _bpe(model))
    steps = _normalizers(model)
    tokenizer.normalizer = normalizers.Sequence(steps)
    cuts = [pre_tokenizers.Split(Regex(_WORDS), "isolated")] if model.starts_words else []
    if runs := _known_characters(model):
        cuts.insert(0, pre_tokenizers.Split(Regex(runs), "isolated"))
    defined = sorted((t for t, _, k in model.pieces if k == USER_DEFINED), key=len, reverse=True)
    if model.kind == "bpe" and defined:
        spelled = "|".join(re.sub(r"([^\w\s])", r"\\\1", text) for text in defined)
        cuts.insert(0, pre_tokenizers.Split(Regex(spelled), "isolated"))
    if cuts:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    after = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if model.prefix:
        after.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(after)
    tokenizer.add_tokens(
        [
            AddedToken(text, special=True, normalized=False)
            for text, _, kind in model.pieces
            if kind in (CONTROL, UNKNOWN)
        ]
    )
    return tokenizer


def _normalizers(model: Pieces) -> list[Any]:
    steps: list[Any] = []
    if model.charsmap:
        try:
            steps.append(normalizers.Precompiled(model.charsmap))
        except Exception as error:  # the library raises nothing else
            raise CannotHold(f"its table of characters is damaged ({error})") from None
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
    """A pattern of runs of characters that pieces have, where it is needed.

    The library makes an unknown character cost more than any piece, so `</s>` as text would be that
    token where `<` is unknown. No piece goes on over the end of such a run: a cut changes nothing
    else.
    """
    usable = {c for t, _, kind in model.pieces if kind in (NORMAL, USER_DEFINED) for c in t}
    others = {
        c for t, _, kind in model.pieces if kind not in (NORMAL, USER_DEFINED, BYTE) for c in t
    }
    if model.kind != "unigram" or model.byte_fallback or others <= usable or not usable:
        return None
    codes = sorted(map(ord, usable))
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "[" + "".join(rf"\x{{{a:x}}}-\x{{{z:x}}}" for a, z in ranges) + "]+"


def renew_runs(parts: Parts) -> Parts:
    """A tokenizer.json of changed pieces, its runs of known characters anew (changed in place)."""
    runs = _known_characters(pieces_from_json(parts, whole=False))
    for cut in flat_steps(parts.get("pre_tokenizer")):
        if _RUNS.fullmatch(cut.get("pattern", {}).get("Regex", "")):
            # Where none are needed any more, one piece: what was cut stays uncut.
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
        raise CannotHold("it has unused pieces, of which SentencePiece's BPE makes their parts")
    ranked = sorted(
        ((-score, number, text) for number, (text, score, kind) in enumerate(model.pieces)
         if kind == NORMAL and len(text) > 1)
    )  # fmt: skip
    merges = []
    before = None
    for order, _, text in ranked:
        splits = [(text[:k], text[k:]) for k in range(1, len(text))]
        pairs = [(a, b) for a, b in splits if a in parts and b in parts]
        if pairs and order == before:
            raise CannotHold(f"two of its pieces have the same score, {text!r} is one of them")
        before = order if pairs else before
        pairs.sort(key=lambda pair: (model.numbers[pair[0]], model.numbers[pair[1]]))
        merges += pairs
    defined = any(kind == USER_DEFINED for _, _, kind in model.pieces)
    return models.BPE(
        vocab=model.numbers,
        merges=merges,
        unk_token=model.pieces[model.unknown][0],
        fuse_unk=True,
        byte_fallback=model.byte_fallback,
        # User-defined pieces stand alone behind the split; no merge makes them.
        ignore_merges=defined,
    )


def pieces_from_json(parts: Parts, whole: bool = True) -> Pieces:
    """The pieces of a tokenizer.json that `tokenizers` has read; CannotHold names what they lack.

    Read are those that `to_tokenizer` or training here wrote, and those of the usual converters of
    Llama's kind. A post-processor is left out. whole: refuse steps before the pieces that no other
    format has; else they are passed by, for one whose file stays what it is.
    """
    model = parts["model"]
    kind: Literal["unigram", "bpe"]
    if model.get("type") not in ("Unigram", "BPE"):
        raise CannotHold(f"no other format has a model of the type {model.get('type')}")
    charsmap, squeeze, prefix, escaped = _preparation(parts, whole)
    special = {t["content"] for t in parts["added_tokens"] if t["special"]}
    added = {t["content"] for t in parts["added_tokens"]}
    if model["type"] == "Unigram":
        kind = "unigram"
        rows = [(text, score) for text, score in model["vocab"]]
        unknown = model["unk_id"]
    else:
        kind = "bpe"
        for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
            if model.get(name):
                raise CannotHold(f"its model has the setting {name}")
        rows = _scored_tokens(model)
        unknown = next((n for n, (t, _) in enumerate(rows) if t == model["unk_token"]), None)
    if unknown is None:
        raise CannotHold("SentencePiece needs an unknown token, and it has none")
    outside = {t["content"]: t["id"] for t in parts["added_tokens"]}.items()
    for text, number in sorted(outside, key=lambda item: item[1]):
        if number == len(rows):
            rows.append((text, 0.0))
    fallback = bool(model.get("byte_fallback"))
    pieces = []
    for number, (text, score) in enumerate(rows):
        piece_kind = NORMAL
        if number == unknown:
            piece_kind = UNKNOWN
        elif text in special:
            piece_kind = CONTROL
        elif text in added:
            piece_kind = USER_DEFINED
        elif fallback and text in BYTE_PIECES:
            piece_kind = BYTE
        shown = (
            text if piece_kind in (CONTROL, UNKNOWN, BYTE) or escaped else text.replace(" ", SPACE)
        )
        if abs(score) > _LARGEST:
            raise CannotHold(f"the score of {text[:40]!r} is no number of 32 bits")
        pieces.append((shown, 0.0 if piece_kind != NORMAL else score, piece_kind))
    ids = {text: number for number, (text, _, _) in enumerate(pieces)}
    begin, end, pad = (
        next((ids[name] for name in names if name in special and name in ids), -1)
        for names in (("<s>", "<bos>"), ("</s>", "<eos>", "<|endoftext|>"), ("<pad>", "[PAD]"))
    )
    return Pieces(kind, tuple(pieces), charsmap, prefix, squeeze, fallback, begin, end, pad)


def _scored_tokens(model: Model) -> list[tuple[str, float]]:
    """Tokens of a BPE in order of their ids, scored by the rank of their first merge."""
    order = sorted(model["vocab"].items(), key=lambda item: item[1])
    if [number for _, number in order] != list(range(len(order))):
        raise CannotHold("SentencePiece's ids have no gaps, this vocabulary's have")
    pairs = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    rank: dict[str, float] = {}
    for number, (left, right) in enumerate(pairs):
        rank.setdefault(left + right, -float(number))
    return [(text, rank.get(text, -float(len(pairs)))) for text, _ in order]


def escapes_spaces(parts: Parts) -> bool:
    """Whether spaces are U+2581 in the vocabulary of a tokenizer.json."""
    return _preparation(parts, whole=False)[3]


def _preparation(parts: Parts, whole: bool) -> tuple[bytes, bool, bool, bool]:
    """(charsmap, squeeze, prefix, whether spaces are U+2581) of a tokenizer.json's first steps."""
    steps = flat_steps(parts.get("normalizer"))
    charsmap, squeeze, prefix, escaped = b"", False, False, False
    for step in steps:
        kind = step["type"]
        pattern = step.get("pattern", {})
        if kind == "Precompiled" and step is steps[0]:
            charsmap = base64.b64decode(step["precompiled_charsmap"])
        elif kind == "Prepend" and step["prepend"] == SPACE:
            prefix = True
        elif kind == "Replace" and pattern.get("String") == " " and step["content"] == SPACE:
            escaped = True
        elif kind == "Replace" and pattern.get("Regex") in (r"\A +", " {2,}", rf"{SPACE}+\z"):
            squeeze = True
        elif whole:
            raise CannotHold(f"no other format has a place for the normaliser {kind}")
    for cut in flat_steps(parts.get("pre_tokenizer")):
        regex = cut.get("pattern", {}).get("Regex")
        if cut["type"] == "Metaspace" and cut["replacement"] == SPACE:
            escaped, prefix = True, prefix or cut["prepend_scheme"] != "never"
        elif not whole or regex in (_WORDS, _TRAINED_HERE, _ALL) or _RUNS.fullmatch(regex or ""):
            continue
        else:
            raise CannotHold(
                "it cuts text by a pattern, which no other format has for tokens of characters"
            )
    return charsmap, squeeze, prefix, escaped


_TRAINED_HERE = r"\n| +[^ \n]*|[^ \n]+"  # learn/unigram.py: to_tokenizer_json
_ALL = r"[\s\S]+"
_RUNS = re.compile(r"\[(\\x\{[0-9a-f]+\}-\\x\{[0-9a-f]+\})+\]\+")


def form_from_json(parts: Parts) -> Form:
    """The form of a tokenizer.json that `tokenizers` has read; raises CannotHold."""
    return byte_bpe_from_json(parts) if is_byte_bpe(parts) else pieces_from_json(parts)


def tokenizer_of(form: Form) -> Tokenizer:
    """As a tokenizer of `tokenizers`."""
    if isinstance(form, ByteBpe):
        return byte_bpe_tokenizer(form)
    return pieces_tokenizer(form)
