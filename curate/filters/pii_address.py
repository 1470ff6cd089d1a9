"""IP and e-mail addresses: which candidates in a text are some."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache

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
        rf"(?=[^\W\d_]|§)(?<![^\W\d_])(?:{'|'.join(_VERSION.split())})(?![a-zà-ÿа-я])"
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
    """(local part of Latin letters, of another script, ASCII domain, any domain); local parts are
    read from their end."""
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
        re.compile(rf"[{_LATIN}._+'’-]+"),
        re.compile(rf"{other}+"),
        re.compile(ascii_domain),
        re.compile(any_domain),
    )


def _local(before: str) -> str:
    """The part before the at sign at the end of the text; empty where there is none."""
    latin, other, _, _ = _patterns()
    backwards = before[: -2 * MAX_LOCAL - 1 : -1]
    match = latin.match(backwards) or other.match(backwards)
    if match is None:
        return ""
    local = match.group()[::-1].replace("’", "'")
    if local.strip("._+'-").isdigit() and match.re is latin:
        # Digits alone may end a name of another script.
        longer = other.match(backwards)
        local = longer.group()[::-1] if longer and len(longer.group()) > len(local) else local
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
