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

from curate.documents import Documents, Spans
from curate.filters import pii_kernel
from curate.filters.pii_email import MAX_DOMAIN, MAX_LOCAL, email_around
from curate.filters.pii_ip import ipv4_in, ipv6_in
from curate.filters.pii_number import MIN_DIGITS, cards_in, phones_in
from curate.steps import Step
from curate.text.buffers import text_array

RULES = ("email", "ip", "credit_card", "phone")  # in this order where two would overlap
COLUMNS = {"email": "emails", "ip": "ips", "credit_card": "credit_cards", "phone": "phones"}
MIN_CARD_DIGITS = 13
EXAMPLES: dict[str, tuple[str, ...]] = {
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
    "phone": ("+1-202-555-0100", "+1-202-555-0101", "+1-202-555-0102", "+1-202-555-0103"),
}
# Dolma v1.6, configs/dolma-v1_6/mixer; it has no card numbers.
TOKENS: dict[str, tuple[str, ...]] = {
    "email": ("|||EMAIL_ADDRESS|||",),
    "ipv4": ("|||IP_ADDRESS|||",),
    "ipv6": ("|||IP_ADDRESS|||",),
    "credit_card": ("|||CREDIT_CARD|||",),
    "phone": ("|||PHONE_NUMBER|||",),
}
_BEFORE, _BEHIND = 96, 16  # bytes of context that the rules see
Found = tuple[int, int, int, int, str]  # row, start, end, rank of its rule, kind


class Pii(Step):
    """Replaces personal data; drops documents that hold too much of it, if asked to."""

    name: ClassVar[str] = "pii"

    emails: bool = True
    ips: bool = Field(True, description="public IPv4 and IPv6 addresses")
    phones: bool = Field(False, description="by strict formats")
    credit_cards: bool = Field(False, description="13 to 16 digits of an issuer with check digit")
    replacement: Literal["example", "token"] = Field(
        "example", description="addresses that are nobody's, or |||EMAIL_ADDRESS||| as in Dolma"
    )
    # Dolma v1.6 drops pages with more than 5.
    max_found: int | None = Field(None, ge=0, description="more in a document drop it")

    def apply(self, docs: Documents) -> Documents:
        data, offsets = docs.buffers()
        found = _apart(self._found(data, offsets))
        total = np.zeros(len(docs), np.int64)
        for rank, rule in enumerate(RULES):
            rows = np.array([f[0] for f in found if f[3] == rank], np.int64)
            count = np.bincount(rows, minlength=len(docs)).astype(np.int32)
            total += count
            column = COLUMNS[rule]
            looked = getattr(self, column)
            values = pa.array(count) if looked else pa.nulls(len(docs), pa.int32())
            docs = docs.annotate(column, values)
        if self.max_found is not None:
            docs = docs.drop(total > self.max_found, "too_much_pii", total, self.max_found)
        clean = ~docs.marked()
        return self._replace(docs, data, offsets, [f for f in found if clean[f[0]]])

    def _found(self, data: np.ndarray, offsets: np.ndarray) -> list[Found]:
        view = memoryview(data)  # type: ignore[arg-type]
        found: list[Found] = []
        if self.emails or self.ips:
            for row, start, end, kind in pii_kernel.find_addresses(data, offsets).T.tolist():
                low, high = int(offsets[row]), int(offsets[row + 1])
                if kind == pii_kernel.EMAIL:
                    if self.emails:
                        found += _email(view, row, start, end, low, high)
                elif self.ips:
                    found += _address(view, row, start, end, low, high, kind)
        if self.phones or self.credit_cards:
            least = MIN_DIGITS if self.phones else MIN_CARD_DIGITS
            for row, start, end in pii_kernel.find_numbers(data, offsets, least).T.tolist():
                low, high = int(offsets[row]), int(offsets[row + 1])
                if self.credit_cards:
                    found += _numbers(view, row, start, end, low, high, cards_in, "credit_card")
                if self.phones:
                    found += _numbers(view, row, start, end, low, high, phones_in, "phone")
        known = {text for texts in EXAMPLES.values() for text in texts}
        return [f for f in found if _text(view, f[1], f[2]) not in known]

    def _replace(
        self, docs: Documents, data: np.ndarray, offsets: np.ndarray, found: list[Found]
    ) -> Documents:
        if not found:
            return docs
        given = EXAMPLES if self.replacement == "example" else TOKENS
        words = tuple(dict.fromkeys(w for kind in given.values() for w in kind))
        view = memoryview(data)  # type: ignore[arg-type]
        rows, start, end, rank = (np.array([f[k] for f in found], np.int64) for k in range(4))
        which = np.array(_chosen(view, found, given, words), np.int64)
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
    view: memoryview, found: list[Found], given: dict[str, tuple[str, ...]], words: tuple[str, ...]
) -> list[int]:
    """The replacement of each: the same for the same text within a document, and the next one in
    turn for another, from the first on in each document."""
    chosen: list[int] = []
    seen: dict[str, dict[str, int]] = {}
    row = -1
    for f in found:
        if f[0] != row:
            row, seen = f[0], {}
        mine = seen.setdefault(f[4], {})
        turn = mine.setdefault(_text(view, f[1], f[2]).casefold(), len(mine))
        chosen.append(words.index(given[f[4]][turn % len(given[f[4]])]))
    return chosen


def _text(view: memoryview, start: int, end: int) -> str:
    # A window may begin or end within a character; what is left of it is passed over.
    return bytes(view[start:end]).decode("utf-8", "ignore")


def _email(
    view: memoryview, row: int, start: int, end: int, low: int, high: int
) -> Iterator[Found]:
    before = _text(view, max(low, start - 4 * MAX_LOCAL), start)
    sizes = email_around(before, _text(view, end, min(high, end + MAX_DOMAIN + 16)))
    if sizes is not None:
        yield row, start - sizes[0], end + sizes[1], 0, "email"


def _address(
    view: memoryview, row: int, start: int, end: int, low: int, high: int, kind: int
) -> Iterator[Found]:
    address = _text(view, start, end)
    if kind == pii_kernel.IPV6:
        if ipv6_in(address):
            yield row, start, end, 1, "ipv6"
        return
    before = _text(view, max(low, start - _BEFORE), start)
    if ipv4_in(before, address, _text(view, end, min(high, end + _BEHIND))):
        yield row, start, end, 1, "ipv4"


def _numbers(
    view: memoryview,
    row: int,
    start: int,
    end: int,
    low: int,
    high: int,
    judge: Callable[[str, str, str], list[tuple[int, int]]],
    kind: str,
) -> Iterator[Found]:
    text = _text(view, start, end)
    before = _text(view, max(low, start - _BEFORE), start)
    for first, last in judge(before, text, _text(view, end, min(high, end + _BEHIND))):
        at = start + len(text[:first].encode())
        yield row, at, at + len(text[first:last].encode()), RULES.index(kind), kind


def _apart(found: list[Found]) -> list[Found]:
    """By row and start, without those that overlap one of a rule named earlier."""
    kept: list[Found] = []
    for f in sorted(found, key=lambda f: (f[0], f[1], f[3])):
        while kept and kept[-1][0] == f[0] and kept[-1][2] > f[1] and kept[-1][3] > f[3]:
            kept.pop()
        if not (kept and kept[-1][0] == f[0] and kept[-1][2] > f[1]):
            kept.append(f)
    return kept
