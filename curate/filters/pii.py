"""Personal data: e-mail and IP addresses, phone and card numbers, replaced in the text.

What stands in their place can be nobody's: names under example.com and example.org (RFC 2606),
addresses of documentation networks (RFC 5737, RFC 3849), numbers that the North American numbering
plan keeps for fiction (555-0100 to 555-0199), a card number for tests; or the tokens of Dolma.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from curate.documents.documents import Documents
from curate.documents.edits import Spans
from curate.filters.pii_address import MAX_DOMAIN, MAX_LOCAL, email_around, ipv4_in, ipv6_in
from curate.filters.pii_number import MIN_DIGITS, cards_in, phones_in
from curate.steps.contracts import Step
from curate.text.buffers import text_array

RULES = ("key", "email", "ip", "credit_card", "phone")  # in this order where two would overlap
COLUMNS = {
    "key": "keys",
    "email": "emails",
    "ip": "ips",
    "credit_card": "credit_cards",
    "phone": "phones",
}
MIN_CARD_DIGITS = 13
Choices = dict[str, tuple[str, ...]]  # what may stand in place of each kind
EXAMPLES: Choices = {
    "email": ("email@example.com", "firstname.lastname@example.org"),  # those of DataTrove
    "ipv4": (
        "192.0.2.1",
        "198.51.100.1",
        "203.0.113.1",
        "192.0.2.2",
        "198.51.100.2",
        "203.0.113.2",
    ),
    "ipv6": ("2001:db8::1", "2001:db8::2", "2001:db8::3"),
    "credit_card": ("4111 1111 1111 1111",),
    "key": ("<KEY>",),
    "phone": ("+1-202-555-0100", "+1-202-555-0101", "+1-202-555-0102", "+1-202-555-0103"),
}
# Dolma v1.6, configs/dolma-v1_6/mixing; it has no card numbers.
TOKENS: Choices = {
    "email": ("|||EMAIL_ADDRESS|||",),
    "ipv4": ("|||IP_ADDRESS|||",),
    "ipv6": ("|||IP_ADDRESS|||",),
    "credit_card": ("|||CREDIT_CARD|||",),
    "key": ("|||KEY|||",),
    "phone": ("|||PHONE_NUMBER|||",),
}
# StarCoder (Li et al. 2023, section 4).
_TAGS = ("EMAIL", "IP_ADDRESS", "IP_ADDRESS", "CREDIT_CARD", "KEY", "PHONE")
TAGS: Choices = {kind: (f"<{tag}>",) for kind, tag in zip(TOKENS, _TAGS, strict=True)}
_REPLACEMENTS: dict[str, Choices] = {"example": EXAMPLES, "token": TOKENS, "tag": TAGS}
_BEFORE, _BEHIND = 96, 16  # bytes of context that the rules see
Match = tuple[int, int, int, int, str]  # row, start, end, rank of its rule, kind


class Pii(Step):
    """Replaces personal data; drops documents that hold too much of it, if asked to."""

    name: ClassVar[str] = "pii"

    emails: bool = Field(True, description="E-mail addresses are replaced.")
    ips: bool = Field(True, description="Public IPv4 and IPv6 addresses are replaced.")
    phones: bool = Field(
        False, description="Phone numbers are replaced that stand in a strict format."
    )
    credit_cards: bool = Field(
        False,
        description="Numbers of 13 to 16 digits that begin as an issuer's and have the right check"
        " digit are replaced (ISO/IEC 7812).",
    )
    keys: bool = Field(
        False,
        description="Keys and tokens of services, and private keys, are replaced where their form"
        " alone says what they are (detect-secrets, as BigCode used it for StarCoder).",
    )
    replacement: Literal["example", "token", "tag"] = Field(
        "example",
        description="The replacement: example is an address or number that is nobody's, token is"
        " |||EMAIL_ADDRESS||| and the like, as in Dolma v1.6, tag is <EMAIL>, <KEY> and so on, as"
        " in StarCoder.",
    )
    max_found: int | None = Field(
        None,
        ge=0,
        description="Documents with more matches are dropped (Dolma v1.6: 5); none: no limit.",
    )

    def apply(self, docs: Documents) -> Documents:
        data, offsets = docs.buffers()
        matches = _apart(self._matches(data, offsets))
        total = np.zeros(len(docs), np.int64)
        for rank, rule in enumerate(RULES):
            rows = np.array([f[0] for f in matches if f[3] == rank], np.int64)
            count = np.bincount(rows, minlength=len(docs)).astype(np.int32)
            total += count
            column = COLUMNS[rule]
            looked = getattr(self, column)
            values = pa.array(count) if looked else pa.nulls(len(docs), pa.int32())
            docs = docs.annotate(column, values)
        if self.max_found is not None:
            docs = docs.drop(total > self.max_found, "too_much_pii", total, self.max_found)
        clean = ~docs.marked()
        return self._replace(docs, data, offsets, [f for f in matches if clean[f[0]]])

    def _matches(self, data: np.ndarray, offsets: np.ndarray) -> list[Match]:
        from curate.filters import pii_kernel

        view = memoryview(data)  # type: ignore[arg-type]
        matches: list[Match] = []
        if self.emails or self.ips:
            for row, start, end, kind in pii_kernel.find_addresses(data, offsets).T.tolist():
                low, high = int(offsets[row]), int(offsets[row + 1])
                if kind == pii_kernel.EMAIL:
                    if self.emails:
                        matches += _email(view, row, start, end, low, high)
                elif self.ips:
                    matches += _address(view, row, start, end, low, high, kind)
        if self.keys:
            from curate.filters.pii_keys import keys_in

            for row in range(len(offsets) - 1):
                low, high = int(offsets[row]), int(offsets[row + 1])
                for start, end in keys_in(bytes(view[low:high])):
                    matches.append((row, low + start, low + end, RULES.index("key"), "key"))
        if self.phones or self.credit_cards:
            least = MIN_DIGITS if self.phones else MIN_CARD_DIGITS
            for row, start, end in pii_kernel.find_numbers(data, offsets, least).T.tolist():
                low, high = int(offsets[row]), int(offsets[row + 1])
                if self.credit_cards:
                    matches += _numbers(view, row, start, end, low, high, cards_in, "credit_card")
                if self.phones:
                    matches += _numbers(view, row, start, end, low, high, phones_in, "phone")
        examples = {text for texts in EXAMPLES.values() for text in texts}
        return [f for f in matches if _text(view, f[1], f[2]) not in examples]

    def _replace(
        self, docs: Documents, data: np.ndarray, offsets: np.ndarray, matches: list[Match]
    ) -> Documents:
        from curate.filters import pii_kernel

        if not matches:
            return docs
        replacements = _REPLACEMENTS[self.replacement]
        words = tuple(dict.fromkeys(w for kind in replacements.values() for w in kind))
        view = memoryview(data)  # type: ignore[arg-type]
        rows, start, end, rank = (np.array([f[k] for f in matches], np.int64) for k in range(4))
        which = np.array(_chosen(view, matches, replacements, words), np.int64)
        encoded = [w.encode() for w in words]
        out, out_offsets = pii_kernel.replace_spans(
            data,
            offsets,
            rows,
            start,
            end,
            which,
            np.frombuffer(bytearray().join(encoded), np.uint8),
            np.concatenate(([0], np.cumsum([len(w) for w in encoded]))),
        )
        base = offsets[rows]
        spans = Spans(rows, start - base, end - base, rank, RULES, which, words)
        text: pa.Array = text_array(out, out_offsets)
        if docs.text.null_count:  # a page that is still a payload stays one
            text = pc.if_else(docs.text.is_valid(), text, pa.scalar(None, pa.large_string()))
        return docs.edit(text, spans)


def _chosen(
    view: memoryview,
    matches: list[Match],
    replacements: Choices,
    words: tuple[str, ...],
) -> list[int]:
    """The replacement of each: the same for the same text within a document, and the next one in
    turn for another, from the first on in each document."""
    chosen: list[int] = []
    seen: dict[str, dict[str, int]] = {}
    row = -1
    for f in matches:
        if f[0] != row:
            row, seen = f[0], {}
        turns = seen.setdefault(f[4], {})
        turn = turns.setdefault(_text(view, f[1], f[2]).casefold(), len(turns))
        chosen.append(words.index(replacements[f[4]][turn % len(replacements[f[4]])]))
    return chosen


def _text(view: memoryview, start: int, end: int) -> str:
    # A window may begin or end within a character; what is left of it is passed over.
    return bytes(view[start:end]).decode("utf-8", "ignore")


def _email(
    view: memoryview, row: int, start: int, end: int, low: int, high: int
) -> Iterator[Match]:
    before = _text(view, max(low, start - 4 * MAX_LOCAL), start)
    sizes = email_around(before, _text(view, end, min(high, end + MAX_DOMAIN + 16)))
    if sizes is not None:
        yield row, start - sizes[0], end + sizes[1], RULES.index("email"), "email"


def _address(
    view: memoryview, row: int, start: int, end: int, low: int, high: int, kind: int
) -> Iterator[Match]:
    from curate.filters import pii_kernel

    address = _text(view, start, end)
    if kind == pii_kernel.IPV6:
        if ipv6_in(address):
            yield row, start, end, RULES.index("ip"), "ipv6"
        return
    before = _text(view, max(low, start - _BEFORE), start)
    if ipv4_in(before, address, _text(view, end, min(high, end + _BEHIND))):
        yield row, start, end, RULES.index("ip"), "ipv4"


def _numbers(
    view: memoryview,
    row: int,
    start: int,
    end: int,
    low: int,
    high: int,
    judge: Callable[[str, str, str], list[tuple[int, int]]],
    kind: str,
) -> Iterator[Match]:
    text = _text(view, start, end)
    before = _text(view, max(low, start - _BEFORE), start)
    at, passed = start, 0  # bytes and characters: counted once, not again for each number
    for first, last in judge(before, text, _text(view, end, min(high, end + _BEHIND))):
        at += len(text[passed:first].encode())
        size = len(text[first:last].encode())
        yield row, at, at + size, RULES.index(kind), kind
        at, passed = at + size, last


def _apart(matches: list[Match]) -> list[Match]:
    """By row and start, without those that overlap one of a rule named earlier."""
    kept: list[Match] = []
    for f in sorted(matches, key=lambda f: (f[0], f[1], f[3])):
        while kept and kept[-1][0] == f[0] and kept[-1][2] > f[1] and kept[-1][3] > f[3]:
            kept.pop()
        if not (kept and kept[-1][0] == f[0] and kept[-1][2] > f[1]):
            kept.append(f)
    return kept
