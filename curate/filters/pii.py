"""Personal data: e-mail and IP addresses, phone and card numbers, replaced in the text.

What stands in their place can be nobody's: names under example.com and example.org (RFC 2606),
addresses of documentation networks (RFC 5737, RFC 3849), numbers that the North American numbering
plan keeps for fiction (555-0100 to 555-0199), a card number for tests; or the tokens of Dolma.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from curate.documents.documents import Documents
from curate.documents.edits import Spans
from curate.filters.pii_number import MIN_DIGITS, cards_in, phones_in
from curate.steps.contracts import Step
from curate.text.buffers import text_array

# Addresses that are not globally reachable, multicast or reserved: the IANA special-purpose
# registries (RFC 6890 and its updates) of 2024, since Python's own answers changed in 3.12.4.
_SPECIAL = tuple(
    ipaddress.ip_network(n)
    for n in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
        *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16"),
        *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
    )
)
_RANGES = tuple((int(n.network_address), int(n.broadcast_address)) for n in _SPECIAL)
_SPECIAL6 = tuple(
    ipaddress.IPv6Network(n) for n in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)
_GLOBAL6 = ipaddress.IPv6Network("2000::/3")  # all that is assigned as global unicast
# What makes four numbers the version of a file or release.
_FILE = re.compile(
    r"\.(?:tar|t?gz|zip|jar|deb|rpm|exe|msi|dmg|whl|apk|so|dll)\b|[-+]?(?:rc\d|beta|alpha)"
)
MIN_GROUPS6 = 3  # written ones; `2001::a` is rather code than an address


# Words for versions, sections and programs, as parts of a regular expression. `v` and `ver` are
# words of their own in Czech, Slovak and Spanish.
_VERSION = r"""
versions? ver(?=[.:]) v(?=[.:]) releases? rel rev revision build firmware fw patch kernel linux
sections? sect? chapters? clauses? paragraphs? appendix figures? fig tables? oid theorem lemma §+
chrome chromium firefox opera safari skype player acrobat reader itunes java openssl php ios android
windows versión versiones versionen versão versões versione versioni wersja wersji verze verzia
verzió versiunea sürüm sürümü versie versio utgave versi phiên\sbản abschnitt kapitel ziffer sección
capítulo версия версии версію версія версию верс сборка раздел пункт έκδοση גרסה إصدار الإصدار نسخه
نسخة संस्करण เวอร์ชัน バージョン 版本 버전 版
"""


@lru_cache(maxsize=1)
def _version_words() -> re.Pattern[str]:
    """Words directly before a number of four parts that make it no address."""
    return re.compile(
        rf"(?<![^\W\d_])(?:{'|'.join(_VERSION.split())})(?![a-zà-ÿа-я])"
        r"(?:[\s.:=#\"'(\[,]|number|no\b|is\b|号|號|は|은|is|to|and|or|[<>~^]|\d[\d.]*(?=,|\s))*\Z",
        re.IGNORECASE,
    )


def is_public(address: str) -> bool:
    """Whether an IPv4 address in decimal groups is globally reachable unicast."""
    parts = address.split(".")
    if any(len(p) > 1 and p[0] == "0" for p in parts):
        return False  # 010.1.2.3 is read in two ways, and rather a date or phone number
    value = 0
    for part in parts:
        if int(part) > 255:
            return False
        value = value << 8 | int(part)
    return not any(low <= value <= high for low, high in _RANGES)


def ipv4_in(before: str, address: str, after: str) -> bool:
    """Whether the four groups are a public address, by themselves and by the text around them."""
    if not is_public(address):
        return False
    previous, right = before[-1:], after[:1]
    if right.isascii() and (right.isalnum() or right == "_"):
        return False
    if previous in ("-", "/") and before[-2:-1].isascii() and before[-2:-1].isalpha():
        # lib-1.2.3.4.jar and Chrome/1.2.3.4 are versions, https://host/1.2.3.4 is none
        token = re.split(r"[\s\"'<>]", before)[-1]
        if previous == "-" or not ("://" in token or "." in token):
            return False
    if _FILE.match(after):
        return False
    if re.search(r"[€$£¥₹₫₽]\s?\Z", before) or re.match(
        r"\s?(?:[€£¥₹₫₽]|EUR\b|USD\b|VND\b)", after
    ):
        return False
    line = before.rpartition("\n")[2]
    if _version_words().search(line[-48:]):
        return False
    # A heading: small numbers at the start of a line, then a capital.
    small = all(int(p) < 30 for p in address.split("."))
    return not (small and not line.strip(" \t#*-") and re.match(r"\.?[ \t]+[^\W\d_a-z]", after))


def ipv6_in(address: str) -> bool:
    """Whether the text is a globally reachable IPv6 address with at least three written groups."""
    if sum(1 for g in address.split(":") if g) < MIN_GROUPS6:
        return False
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return parsed in _GLOBAL6 and not any(parsed in n for n in _SPECIAL6)


# An e-mail address ends where scripts without spaces begin (`联系zhang@mail.example谢谢`), and at
# the letter that a language puts directly behind it (`jane@mail.kr로`, `d'jane@mail.fr`). Letters
# of other scripts belong to it (`müller@web.example`, `иван@почта.рф`).
MAX_LOCAL, MAX_DOMAIN = 64, 255  # RFC 5321, 4.5.3.1
_LETTERS = "A-Za-zÀ-ÖØ-öø-ɏḀ-ỿ"
_LATIN = "0-9" + _LETTERS
# Ends of names that are files, not domains: `icon@2x.png`. None of them is a top-level domain.
_FILES = frozenset(
    "png jpg jpeg gif webp svg bmp ico tif tiff css js mjs jsx ts tsx json html htm xml php txt"
    " pdf csv doc docx log java class yml yaml toml lock woff woff2 ttf otf mp3 mp4 wav local"
    " localdomain lan".split()
)
# Endings that are so common that a parenthesis directly behind them is no call of a function.
_COMMON = frozenset("com org net edu gov info int mil biz name".split())
# Top-level domains outside ASCII, from the root zone (data.iana.org/TLD/tlds-alpha-by-domain.txt).
_IDN = (
    "рф бел укр срб мкд бг қаз мон ею рус онлайн сайт москва дети орг ком католик"
    " 中国 中國 公司 网络 网址 网站 在线 中文网 商城 商店 香港 台湾 台灣 澳門 新加坡"
    " 手机 政务 政府 公益 机构 我爱你 集团 世界 信息 移动 企业 娱乐 游戏 购物 餐厅 广东 佛山"
    " 한국 닷컴 닷넷 삼성 コム みんな グーグル ストア セール ファッション クラウド ポイント"
    " भारत भारतम् भारोत संगठन नेट कॉम ভারত ভাৰত বাংলা இந்தியா இலங்கை சிங்கப்பூர் భారత్ ભારત ਭਾਰਤ"
    " ଭାରତ ಭಾರತ ഭാരതം ලංකා ไทย คอม ລາວ გე հայ ελ ευ ישראל קום"
    " امارات السعودية مصر الاردن الجزائر المغرب تونس سورية فلسطين قطر عمان عراق ایران ايران پاکستان"
    " پاكستان بھارت بارت ڀارت سودان مليسيا اليمن البحرين موريتانيا شبكة موقع بازار كوم همراه عرب"
).split()


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], ...]:
    """(local part of Latin letters, of another script, ASCII domain, any domain)."""
    label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    puny = "[Xx][Nn]--[A-Za-z0-9-]{2,59}"
    ascii_domain = rf"(?:{label}\.)+(?:{puny}(?![A-Za-z0-9])|[A-Za-z]{{2,24}}(?![{_LETTERS}]))"
    wide = r"[^\W_](?:[\w\u0300-\u036f\u0900-\u0dff-]{0,61}[^\W_]|[\u0900-\u0dff]{0,20})"
    idn = "|".join(sorted(_IDN, key=len, reverse=True))
    any_domain = rf"(?:{wide}[.。])+?(?:{idn}|{puny}|[A-Za-z]{{2,24}}(?![{_LETTERS}]))"
    # Another script: whatever is neither white space nor punctuation nor Latin.
    other = (
        r"[^\s\x00-*,/:-@\[-^`{-\x7f\u0080-\u00bfA-Za-zÀ-ÖØ-öø-ɏḀ-ỿ"
        r"\u2000-\u206f\u3000-\u303f\uff00-\uff20\ufffd]"
    )
    return (
        re.compile(rf"[{_LATIN}._+'’-]+\Z"),
        re.compile(rf"{other}+\Z"),
        re.compile(ascii_domain),
        re.compile(any_domain),
    )


def _local(before: str) -> str:
    """The part before the at sign at the end of the text; empty where there is none."""
    latin, other, _, _ = _patterns()
    match = latin.search(before[-2 * MAX_LOCAL :]) or other.search(before[-2 * MAX_LOCAL :])
    if match is None:
        return ""
    local = match.group().replace("’", "'")
    if local.strip("._+'-").isdigit() and match.re is latin:
        # Digits alone may end a name of another script.
        longer = other.search(before[-2 * MAX_LOCAL :])
        local = longer.group() if longer and len(longer.group()) > len(local) else local
    if local[-1] in ".'":
        return ""
    local = local.rpartition("..")[2].lstrip("._+'-")
    # French and Italian elide before a vowel: d'info@..., l'adresse; O'Brien keeps his.
    elided = re.match(r"(?:[cdjlmnst]|qu)'", local, re.IGNORECASE)
    local = local[elided.end() :].lstrip("._+'-") if elided else local
    return local if len(local) <= MAX_LOCAL else ""


def _domain(after: str) -> str:
    """The domain at the beginning of the text; empty where there is none."""
    _, _, ascii_domain, any_domain = _patterns()
    match = ascii_domain.match(after) or any_domain.match(after)
    if match is None:
        return ""
    domain = match.group()
    labels = domain.split(".")
    # `jane@mail.com.Please write`: a sentence that begins without a blank.
    if len(labels) > 2 and labels[-1].istitle() and labels[-2].islower() and labels[-2].isalpha():
        labels.pop()
        domain = ".".join(labels)
    behind = after[len(domain) : len(domain) + 1]
    last = labels[-1].lower() + (behind if behind.isdigit() else "")
    call = behind == "(" and len(last) > 2 and last not in _COMMON
    return "" if last in _FILES or call or len(domain) > MAX_DOMAIN else domain


def email_around(before: str, after: str) -> tuple[int, int] | None:
    """(bytes before the at sign, bytes behind it) of the address whose at sign stands between the
    two texts; None where there is no address."""
    local = _local(before)
    domain = _domain(after) if local else ""
    if not domain:
        return None
    if local == "git" and after[len(domain) : len(domain) + 1] == ":":
        return None  # git@github.com:owner/name.git is nobody's address
    # An apostrophe may have been a typographic one, of three bytes.
    return len(before[len(before) - len(local) :].encode()), len(domain.encode())


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
# Dolma v1.6, configs/dolma-v1_6/mixer; it has no card numbers.
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
