"""IP addresses that may be a person's: public ones, and no version or section numbers.

Whether an address is public is decided by the IANA special-purpose registries (RFC 6890 and its
updates; the table is of 2024), not by the running Python, whose answers changed in 3.12.4.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache

# Not globally reachable, multicast or reserved.
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
    left, right = before[-1:], after[:1]
    if right.isascii() and (right.isalnum() or right == "_"):
        return False
    if left in ("-", "/") and before[-2:-1].isascii() and before[-2:-1].isalpha():
        # lib-1.2.3.4.jar and Chrome/1.2.3.4 are versions, https://host/1.2.3.4 is none
        token = re.split(r"[\s\"'<>]", before)[-1]
        if left == "-" or not ("://" in token or "." in token):
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
