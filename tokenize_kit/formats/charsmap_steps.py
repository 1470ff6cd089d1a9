"""SentencePiece's precompiled normalizer as steps of `tokenizers` that keep every mark.

The library's Precompiled step replaces a whole grapheme cluster of under 6 bytes, such as a letter
and its accent, by the replacement of the cluster's first characters, so the accent is lost
(precompiled.rs). Here, a noncharacter is put before each character that can extend a cluster, which
keeps the clusters apart, and is dropped afterwards. What SentencePiece composes is composed before
by NFKC. Other marks are set apart first, so that they keep their order, as in SentencePiece."""

from __future__ import annotations

import base64
import json
from typing import Any

from tokenizers import Regex, normalizers

from tokenize_kit.formats.tokenizer_json import Step

# The patterns insert it nowhere at the beginning of a text, where the library would panic.
# A noncharacter (Unicode 23.7) of 4 bytes: with any mark, a cluster of 6 bytes or more.
_APART = "\U0010ffff"
# Marks that SentencePiece composes with letters: those in its rules of several characters.
_COMPOSING = (
    r"\u0300-\u0304\u0306-\u030c\u030f\u0311\u0313\u0314\u031b\u0323-\u0328\u032d\u032e\u0330"
    r"\u0331\u0338\u0340-\u0343\u0345\u0653-\u0655\u093c\u09be\u09d7\u0b3e\u0b56\u0b57\u0bbe\u0bd7"
    r"\u0c56\u0cc2\u0cd5\u0cd6\u0d3e\u0d57\u0dca\u0dcf\u0ddf\u102e\u1b35\u3099\u309a\uff9e\uff9f"
)
# Unicode would put the second before the first, and add a mark to a ligature's last letter.
_ABOVE, _BELOW = r"\u0300-\u0314\u0340-\u0344", r"\u031b\u0323-\u0331\u0338"
_LIGATURES = r"\ufb00-\ufb06"
# Characters that extend a cluster (UAX 29), and the newline, which does so after a return.
_EXTENDING = r"[\p{M}\p{Cf}\n\u0e33\u0eb3\uff9e\uff9f\x{1F3FB}-\x{1F3FF}]"


def charsmap_steps(charsmap: bytes) -> list[Any]:
    """Return normalizers of `tokenizers` that do what SentencePiece does with `charsmap`, and lose
    no mark. They compose a few rare sequences that SentencePiece leaves alone, such as a dot under
    a letter whose accent is part of it. Raises Exception if the charsmap is damaged."""
    rules = normalizers.Precompiled(charsmap)
    apart = normalizers.Replace(Regex(rf"(?!\A)(?<!{_APART})(?={_EXTENDING})"), _APART)
    compose: list[Any] = []
    if rules.normalize_str("\ufb01") == "fi":  # NFKC, perhaps with more
        other = rf"(?=[\p{{M}}\p{{Cf}}&&[^{_COMPOSING}]])"
        late = rf"(?<=[{_ABOVE}])(?=[{_BELOW}])|(?<=[{_LIGATURES}])(?=\p{{M}})"
        single = Regex(rf"(?!\A)(?:{other}|{late})")
        compose = [normalizers.Replace(single, _APART), normalizers.NFKC()]
    return [*compose, apart, rules, normalizers.Replace(_APART, "")]


def split_charsmap(steps: list[Step]) -> tuple[bytes, list[Step]]:
    """Return (the charsmap of the normalizers in a tokenizer.json, the steps after it). The
    charsmap is empty if they do not begin with Precompiled or with those of `charsmap_steps`."""
    found = next((step for step in steps if step["type"] == "Precompiled"), None)
    if found is None:
        return b"", steps
    charsmap = base64.b64decode(found["precompiled_charsmap"] or "")
    if found is steps[0]:
        return charsmap, steps[1:]
    written = json.loads(normalizers.Sequence(charsmap_steps(charsmap)).__getstate__())
    size = len(written["normalizers"])
    if steps[:size] == written["normalizers"]:
        return charsmap, steps[size:]
    return b"", steps
