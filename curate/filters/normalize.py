"""Normalize text: repair mojibake and, on request, unify different spellings of characters.

The reference for mojibake is `ftfy.fix_text` with `fix_encoding` alone, which works line by line.
Only lines that match ftfy's pattern of mojibake (normalize_kernel.py) are passed to it. Characters
that a script needs are always kept (UAX #31, 2.3; RFC 5892, A.1 and A.2; UAX #14): joiners in emoji
and next to letters that join or form conjuncts, and marks of line breaks next to letters of scripts
without spaces.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np

from curate.documents.documents import Documents
from curate.documents.passes import Replace, RowEdit, edited_in_passes, with_edits
from curate.steps.contracts import Identity, Step, step

KINDS = ("mojibake", "form", "line_ends", "blanks", "invisible", "quotes")
# The parts of ftfy's `fix_encoding`.
_ENCODING = {
    "fix_encoding", "restore_byte_a0", "replace_lossy_sequences", "decode_inconsistent_utf8",
    "fix_c1_controls",
}  # fmt: skip

# Scripts of line break class SA: Thai, Lao, Burmese, Khmer and their neighbours.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\ua9e0-\ua9ff\uaa60-\uaadf"
)
# Arabic and its neighbours; Devanagari to Sinhala; Tibetan; Burmese; Khmer; Mongolian; scripts of
# Indonesia and the Philippines; later blocks of all these; presentation forms; Adlam.
_JOINING = (
    "\u0600-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u18af\u1900-\u194f\u1a00-\u1c4f\u1cd0-\u1cff"
    "\ua800-\ua8ff\ua930-\uaaff\uabc0-\uabff\ufb50-\ufdff\ufe70-\ufefc"
    "\U00010a00-\U00010fff\U00011000-\U00011fff\U0001e900-\U0001e95f"
)
_EMOJI = "\ufe0f\u2190-\u2bff\U0001f000-\U0001faff"
_INVISIBLE = (
    rf"[\xad\ufeff]|(?<![{_UNSPACED}])[\u200b\u2060](?![{_UNSPACED}])|"
    rf"(?<![{_JOINING}])\u200c(?![{_JOINING}])|(?<![{_JOINING}{_EMOJI}])\u200d(?![{_JOINING}])"
)
_BLANK = "[\t \xa0\u2000-\u200a\u202f\u205f\u3000]"
# Characters that NFKC would change for the worse: Thai and Lao AM, digraphs of Lao and Kazakh,
# Arabic words that are one character.
_KEPT = re.compile("([\u0e33\u0eb3\u0edc\u0edd\u0675-\u0678\ufdf0-\ufdfd]+)")
_LINE = r"[^\n]*\n|[^\n]+"
_WORD = r"\S+|\s"  # characters never compose across the ends of such a piece
# Kind of change, pattern, replacement.
_PASSES: list[tuple[str, str, Replace]] = [
    ("line_ends", r"\r\n?|[\x85\u2028\u2029]", lambda m: "\n"),
    ("blanks", rf"(?<!{_BLANK}){_BLANK}+(?=[\n\r\x85\u2028\u2029]|\Z)", lambda m: ""),
    ("blanks", rf"{_BLANK}+", lambda m: " "),
    ("invisible", _INVISIBLE, lambda m: ""),
    ("quotes", "[\u2018-\u201b]", lambda m: "'"),
    ("quotes", "[\u201c-\u201f]", lambda m: '"'),
]


def normal_form(text: str, form: Any) -> str:
    """Return the text in a normalization form. For NFKC and NFKD, the characters in `_KEPT` (such
    as Thai AM) are left as they are, since these forms would spoil them."""
    if text.isascii() or form in ("NFC", "NFD"):
        return unicodedata.normalize(form, text)
    parts = _KEPT.split(text)  # every second part is kept as it is
    parts[::2] = [unicodedata.normalize(form, part) for part in parts[::2]]
    return "".join(parts)


@lru_cache(maxsize=1)
def _config() -> Any:
    from ftfy import TextFixerConfig

    fixers = {k: k in _ENCODING for k, on in TextFixerConfig()._asdict().items() if on is True}
    return TextFixerConfig(**fixers, unescape_html=False, normalization=None)


def repaired(text: str) -> str:
    from ftfy import fix_text

    return fix_text(text, _config())


@step("normalize")
class Normalize(Step):
    """Repairs mojibake and, on request, unifies different spellings of characters. The output
    columns count the changes of each kind."""

    paper: ClassVar[str] = "Speer 2019, ftfy; Unicode Standard Annex 15"

    mojibake: bool = True
    """Repair text that was decoded with the wrong encoding, as ftfy does (`fix_text` with
    `fix_encoding` alone)."""
    form: Literal["nfc", "nfd", "nfkc", "nfkd"] | None = None
    """Unicode normalization form (UAX #15). NFKC and NFKD do not change Thai and Lao AM, digraphs
    of Lao and Kazakh, and Arabic words that are one character. Without a value, characters are not
    normalized."""
    line_ends: bool = False
    """Replace CR LF, CR, U+0085, U+2028 and U+2029 by newlines, as ftfy can."""
    blanks: bool = False
    """Replace runs of tabs and spaces of any width by one space, and remove them at the ends of
    lines."""
    invisible: bool = False
    """Remove soft hyphens, zero-width spaces and joiners, word joiners and byte order marks, except
    beside letters of scripts that need them and in emoji."""
    quotes: bool = False
    """Replace the quotation marks U+2018 to U+201F by straight ones, as ftfy can."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of change that the settings switch on."""
        return tuple(kind for kind in KINDS if getattr(self, kind))

    def identity(self) -> Identity:
        from importlib.metadata import version

        identity = super().identity()
        identity.contents["ftfy"] = version("ftfy")
        identity.contents["unicode"] = unicodedata.unidata_version
        return identity

    def apply(self, docs: Documents) -> Documents:
        from curate.filters.normalize_kernel import mojibake, suspicious_lines

        data, offsets = docs.buffers()
        view = memoryview(data)  # type: ignore[arg-type]
        found = suspicious_lines(data, offsets, mojibake()).tolist() if self.mojibake else []
        repairs: dict[str, str] = {}
        edits: list[RowEdit] = []
        for row, start, end in found:
            line, base = str(view[start:end], "utf-8"), int(offsets[row])
            if (new := repaired(line)) != line:
                repairs[line] = new
                edits.append((row, start - base, end - base, KINDS.index("mojibake"), new))
        if {*self.kinds} <= {"mojibake"}:
            edited = with_edits(docs, edits, KINDS)
        else:
            passes: list[tuple[str, str, Replace]] = [
                ("mojibake", _LINE, lambda m: repairs.get(m[0], m[0])),
                *_PASSES,
                ("form", _WORD, lambda m: normal_form(m[0], str(self.form).upper())),
            ]
            chosen = [
                (KINDS.index(k), re.compile(p), new) for k, p, new in passes if k in self.kinds
            ]
            edited = edited_in_passes(docs, range(len(docs)), chosen, KINDS)
        counts = np.zeros((len(docs), len(KINDS)), np.int32)
        for _, spans in edited.edits[len(docs.edits) :]:
            np.add.at(counts, (spans.rows, spans.rule), 1)
        for kind in self.kinds:
            edited = edited.annotate(kind, counts[:, KINDS.index(kind)].copy())
        return edited
