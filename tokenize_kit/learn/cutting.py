"""The cutting of text before anything is learned: a pattern, and what is put before and behind it.

Every part is a regular expression that cuts what the ones before it left, in tokenizer.json as in
training. In order: forbidden strings, newlines, runs of spaces, the pattern, scripts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from tokenizers import Regex, normalizers

from llmcurate.base.errors import UsageError
from tokenize_kit.formats.sentencepiece_model import BYTES, fields
from tokenize_kit.pattern.automaton import compile_pattern
from tokenize_kit.pattern.named import SCRIPT_BOUNDARIES, Pattern
from tokenize_kit.pattern.parse import UnsupportedPattern

# Unicode normal forms before the text is cut, in training as in the tokenizer. NFC and NFKC are
# those of `tokenizers`; the others, and NFKC for Unigram, are tables of SentencePiece, so that
# tokenizer.model and tokenizer.json have the same. `_cf`: case is folded, too.

Normal = Literal["none", "nfc", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf"]


def normaliser(name: Normal, unigram: bool) -> normalizers.Normalizer | None:
    """The normaliser of a tokenizer.json; None for `none`."""
    if name == "none":
        return None
    if name == "nfc":
        return normalizers.NFC()
    if name == "nfkc" and not unigram:
        return normalizers.NFKC()
    return normalizers.Precompiled(rules_of(name))


def rules_of(rule: str) -> bytes:
    """SentencePiece's compiled rules: field 2 of field 3 of the model that holds them."""
    import sentencepiece

    model = sentencepiece.SentencePieceNormalizer(rule_name=rule).serialized_model_proto()
    (spec,) = (value for number, wire, value in fields(model) if (number, wire) == (3, BYTES))
    (rules,) = (value for number, wire, value in fields(spec) if (number, wire) == (2, BYTES))
    return rules


Newlines = Literal["single", "runs"]
_NEWLINES = {"single": r"\r\n|\r|\n", "runs": r"[\r\n]+"}
MOST_SPACES = 512


def own_pattern(expressions: Sequence[str]) -> Pattern:
    """A pattern given by the user; raises LlmcurateError naming what is not supported."""
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
    """The pattern with what stands before and behind it; llama.cpp knows it no more."""
    before = []
    if forbid:
        # The longer ones first, where one begins another.
        ordered = sorted(forbid, key=lambda string: (-len(string), string))
        before.append("|".join(map(literal, ordered)))
    if newlines:
        before.append(_NEWLINES[newlines])
    if space_runs:
        before.append(f" {{2,{space_runs}}}")
        # Metaspace ends in one space as the last resort, which would cut the runs again.
        whole = tuple(f"{p}+" if p.endswith("| ") else p for p in pattern.parts)
        pattern = replace(pattern, parts=whole)
    behind = [SCRIPT_BOUNDARIES] if script_boundaries else []
    if not before and not behind:
        return pattern
    return replace(pattern, parts=(*before, *pattern.parts, *behind), gguf=None)


def literal(text: str) -> str:
    """A regular expression that is a text: signs of ASCII escaped, and what cannot be seen."""
    escaped = []
    for character in text:
        if character.isprintable():
            sign = character.isascii() and not character.isalnum() and character != " "
            escaped.append(f"\\{character}" if sign else character)
        else:
            escaped.append(f"\\x{{{ord(character):X}}}")
    return "".join(escaped)


def run_merges(most: int) -> list[tuple[int, int]]:
    """Merges, as lengths of runs of spaces, by which every run of 2 to `most` becomes one token.

    Doubling makes the powers of two; then 8 + 4 before 12 + 2 before 14 + 1, so that the parts of
    a run's length in binary are joined from the largest on.
    """
    powers = [1 << k for k in range(most.bit_length()) if 1 << k <= most]
    merges = [(p // 2, p // 2) for p in powers[1:]]
    for low in reversed(powers):
        joined = [n for n in range(2 * low + 1, most + 1) if n & -n == low]
        merges += [(n - low, low) for n in joined if n & (n - 1)]
    return merges
