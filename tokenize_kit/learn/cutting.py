"""Compose the regular expressions that cut text before tokens are learned.

Each expression cuts the pieces made by the expression before it, both in training and in the
tokenizer.json. Their order is: forbidden strings, newlines, runs of spaces, the pattern, scripts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from tokenizers import Regex, normalizers

from llmcurate.base.errors import UsageError
from tokenize_kit.formats.charsmap_steps import charsmap_steps
from tokenize_kit.formats.sentencepiece_model import BYTES, fields
from tokenize_kit.pattern.automaton import compile_pattern
from tokenize_kit.pattern.named import SCRIPT_BOUNDARIES, Pattern
from tokenize_kit.pattern.parse import UnsupportedPattern

# Unicode normal forms applied before the text is cut, in training as in the tokenizer. NFC and NFKC
# are those of `tokenizers`. The others, and NFKC for Unigram, are tables of SentencePiece, so that
# tokenizer.model and tokenizer.json agree. `_cf`: with case folding. `bert`: BERT's uncased form
# (Devlin et al. 2018, tokenization.py): lower case, no accents, spaces around ideographs.

Normal = Literal["none", "nfc", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf", "bert"]


def normaliser(name: Normal, unigram: bool) -> normalizers.Normalizer | None:
    """Return the normaliser of a tokenizer.json, or None for the name `none`."""
    if name == "none":
        return None
    if name == "nfc":
        return normalizers.NFC()
    if name == "bert":
        return normalizers.BertNormalizer()
    if name == "nfkc" and not unigram:
        return normalizers.NFKC()
    return normalizers.Sequence(charsmap_steps(rules_of(name)))


def rules_of(rule: str) -> bytes:
    """Return SentencePiece's compiled normalisation rules named `rule`. In a SentencePiece model
    they are `precompiled_charsmap` (field 2) of `normalizer_spec` (field 3)."""
    import sentencepiece

    model = sentencepiece.SentencePieceNormalizer(rule_name=rule).serialized_model_proto()
    (spec,) = (value for number, wire, value in fields(model) if (number, wire) == (3, BYTES))
    (rules,) = (value for number, wire, value in fields(spec) if (number, wire) == (2, BYTES))
    return rules


Newlines = Literal["single", "runs"]
_NEWLINES = {"single": r"\r\n|\r|\n", "runs": r"[\r\n]+"}
MOST_SPACES = 512


def own_pattern(expressions: Sequence[str]) -> Pattern:
    """Build a pattern from the user's expressions. Raises LlmcurateError if one is unsupported."""
    for expression in expressions:
        try:
            compile_pattern(expression)
            Regex(expression)
        except UnsupportedPattern as error:
            raise UsageError(f"regex: not supported: {error}") from None
        except Exception as error:  # the library raises bare Exception
            raise UsageError(f"regex {expression!r}: {error}") from None
    parts = tuple(expressions)
    return Pattern(parts, "given", "free", lambda rule: parts)


def compose(
    pattern: Pattern,
    forbid: Sequence[str] = (),
    newlines: Newlines | None = None,
    space_runs: int = 0,
    script_boundaries: bool = False,
) -> Pattern:
    """Add the expressions for forbidden strings, newlines, runs of spaces and scripts to a pattern.
    If any is added, the result has no name in llama.cpp, so its `gguf` is None."""
    before = []
    if forbid:
        # Longer strings first: one string may be the beginning of another.
        ordered = sorted(forbid, key=lambda string: (-len(string), string))
        before.append("|".join(map(literal, ordered)))
    if newlines:
        before.append(_NEWLINES[newlines])
    if space_runs:
        before.append(f" {{2,{space_runs}}}")
        # Metaspace's last alternative is a single space, which would cut the runs again.
        whole_runs = tuple(f"{p}+" if p.endswith("| ") else p for p in pattern.parts)
        pattern = replace(pattern, parts=whole_runs)
    after = [SCRIPT_BOUNDARIES] if script_boundaries else []
    if not before and not after:
        return pattern
    return replace(pattern, parts=(*before, *pattern.parts, *after), gguf=None)


def literal(text: str) -> str:
    """Return a regular expression that matches exactly this text; ASCII signs and invisible
    characters are escaped."""
    escaped = []
    for character in text:
        if character.isprintable():
            sign = character.isascii() and not character.isalnum() and character != " "
            escaped.append(f"\\{character}" if sign else character)
        else:
            escaped.append(f"\\x{{{ord(character):X}}}")
    return "".join(escaped)


def run_merges(most: int) -> list[tuple[int, int]]:
    """Return merges, as pairs of lengths, that turn every run of 2 to `most` spaces into one token.
    The first merges double the length of a run, which gives the powers of two. Other lengths are
    sums of powers of two, the largest first: a run of 15 is made by 8 + 4, 12 + 2 and 14 + 1."""
    powers = [1 << k for k in range(most.bit_length()) if 1 << k <= most]
    merges = [(p // 2, p // 2) for p in powers[1:]]
    for low in reversed(powers):
        joined = [n for n in range(2 * low + 1, most + 1) if n & -n == low]
        merges += [(n - low, low) for n in joined if n & (n - 1)]
    return merges
