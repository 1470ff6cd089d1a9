"""Find personal data (e-mail and IP addresses, phone and card numbers, access keys) and replace it.

Replacements belong to nobody (RFC 2606, RFC 5737, RFC 3849, numbers 555-0100 to 555-0199), or are
placeholders such as `<EMAIL>`. The patterns for keys come from the plugins of detect-secrets
(github.com/Yelp/detect-secrets) that need no model against false alarms, as BigCode used them;
those for GitLab, Google, OpenAI and PyPI follow the formats that these services publish.

Phone numbers are of three kinds: international ones (`+` or `00`, a country code of ITU-T E.164,
and as many digits as the country's numbers have); national ones in a grouping rarely used for
anything else (`06 12 34 56 78`); seven to fifteen digits after a word such as `Tel.:`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from curate.documents.documents import Documents
from curate.documents.edits import Spans
from curate.steps.contracts import Step, step

MIN_DIGITS = 7  # the fewest digits of a phone number

# The fewest and most digits of a national number, by country code: ITU-T E.164 and national plans.
_COUNTRIES = {
    **dict.fromkeys(("1", "7", "90", "91", "52", "57", "63"), (10, 10)),
    **dict.fromkeys(("33", "31", "32", "34", "41", "48", "40", "27", "66", "84", "351"), (9, 9)),
    **{"44": (9, 10), "49": (6, 11), "39": (6, 11), "43": (7, 12), "46": (7, 10), "30": (10, 10)},
    **{"86": (9, 11), "81": (9, 10), "82": (8, 10), "55": (10, 11), "54": (10, 11), "61": (9, 9)},
    **{"45": (8, 8), "47": (8, 8), "36": (8, 9), "20": (8, 10), "51": (8, 9), "56": (9, 9)},
    **{"58": (10, 10), "60": (8, 10), "62": (8, 12), "64": (8, 10), "65": (8, 8), "53": (8, 8)},
    **{"92": (9, 10), "93": (9, 9), "94": (9, 9), "95": (7, 10), "98": (10, 10), "212": (9, 9)},
    **{"353": (7, 9), "352": (6, 11), "358": (6, 10), "380": (9, 9), "420": (9, 9), "421": (9, 9)},
    **{"852": (8, 8), "853": (8, 8), "886": (8, 9), "972": (8, 9), "971": (8, 9), "966": (8, 9)},
    **{"234": (8, 10), "254": (9, 9), "880": (8, 10), "977": (8, 10), "850": (7, 10)},
}
# Other assigned country codes of three digits, by their first two digits.
_THREE = frozenset("21 22 23 24 25 26 29 35 37 38 42 50 59 67 68 69 80 85 87 88 96 97 99".split())
_ANY_COUNTRY = (7, 11)

_CONTEXT = 64  # characters before a number that the rules read
_TOKENS = 40  # the most groups of digits and separators in a number

_TOKEN = re.compile(r"\d+|[ ./()-]+")
# No-break spaces and the other hyphens and dashes are read as blank and hyphen.
_PLAIN_NUMBER = str.maketrans("\u00a0\u202f\u2010\u2011\u2012\u2013", "  ----")
_SPLIT = re.compile(r"\D+")
_TAIL = re.compile(r"\D*")
_START = re.compile(r"(?<!\d)[\d+(]")
# Positions after a run's first digit where `_phone_end` may accept a number: an international
# number, or enough digits for a national one, with two or more in the second group.
_CANDIDATE = re.compile(
    r"(?<!\d)(?<!\d[-./,:])(?:(?=[+(]{1,2}\d|\+ \d|\+ ?\(\d)\(?\+|00(?<!\d 00)"
    r"|(?<!\d )(?<!/)(?=\(?\d{1,12}[ ./()-]{0,3}\d\d)\(?\d(?:[ ./()-]{0,3}\d){8})"
)
_DATE = re.compile(
    r"(?<!\d)(?:(?:19|20)\d\d[-./ ](?:0?[1-9]|1[0-2])[-./ ](?:[0-2]?\d|3[01])"
    r"|(?:[0-2]?\d|3[01])[-./ ](?:[0-2]?\d|3[01])[-./ ](?:19|20)\d\d"
    r"|(?:19|20)\d\d ?[-–] ?(?:19|20)\d\d)(?!\d)"
)
_NATIONAL = tuple(
    re.compile(form)
    for form in (
        # North America
        r"(?:1[ .-]?)?\([2-9]\d\d\) ?[2-9]\d\d[ .-]\d{4}",
        r"(?:1([.-]))?[2-9]\d\d([.-])[2-9]\d\d\2\d{4}",
        # an area code in brackets
        r"\(0[1-9]\d{0,4}\)[ /-]?\d{2,8}(?:[ -]?\d{2,4}){0,3}",
        r"\([1-9]\d\) ?9?\d{4}[ -]\d{4}",
        # Russia and its neighbours
        r"8[ -]?\([3-9]\d{2,4}\)[ -]?\d{1,3}(?:[ -]\d\d){2}",
        r"8[ -][3-9]\d\d[ -]\d{3}[ -]\d\d[ -]\d\d",
        # France and Belgium, pairs; Spain, Poland, Switzerland without the zero
        r"0[1-9]([ .-])\d\d(?:\1\d\d){3}",
        r"[1-9]\d([ -])\d{3}\1\d\d\1\d\d",
        r"[6-9]\d\d( )\d\d\1\d\d\1\d\d",
        # China, Brazil: mobile numbers
        r"1[3-9]\d([ -])\d{4}\1\d{4}",
        r"[1-9]\d 9\d{4}-\d{4}",
        # a zero, an area code and groups: most of Europe, Asia, Africa, Australia
        r"0[1-9]\d{1,4}[/-]\d{3,8}(?:[ -]\d{2,4}){0,3}",
        r"0[1-9]\d{0,3} ?/ ?\d{4,8}",
        r"0[1-9](?:-| )\d{3,4}(?:[ -]\d{2,4}){1,3}",
        r"0[1-9]-\d{6,8}",
        r"0[1-9]\d{1,4} \d{5,8}",
        r"0[1-9]\d{1,4}( )\d{2,4}(?:\1\d{2,4}){1,3}",
        r"0[1-9]\d{1,3}(\.)\d{3,4}\1\d{4}",
    )
)
_LEAST, _MOST = 9, 12  # digits of a national number
_NOT_A_PHONE = re.compile(r"0\d{4}-\d{4}|0\d\d-\d\d-\d{4}")  # ZIP+4, social security number
_PHONE_WORD = re.compile(
    r"(?=[^\W\d_])"
    r"(?:(?<![^\W\d_])(?:tel|telephone|phone|phones|fon|fone|fax|faks|telefax|mobile|mob|cell|handy"
    r"|cellphone|whatsapp|hotline|helpline|viber|sms|telefon[a-zäöåéóů]*|telefoon|teléfonos?|tél"
    r"|téléphone|portable|móvil|celular|telefone|telemóvel|telefono|cellulare|mobil[a-zéó]*|gsm"
    r"|puhelin|matkapuhelin|tlf|komórka|mobilní|điện thoại|đt|sđt|telepon|hp|simu|cep|teл|тел"
    r"|телефон[а-я]*|факс|моб|мобильный|сот|τηλ|τηλέφωνο|κινητό|טלפון|נייד|هاتف|الهاتف|جوال|تلفن|موبايل"
    r"|تلفون|फोन|फ़ोन|मोबाइल|दूरभाष|ফোন|মোবাইল|தொலைபேசி|ఫోన్)(?![^\W\d_])"
    r"|โทร|โทรศัพท์|電話|电话|電话|手机|手機|热线|熱線|携帯|ファックス|传真|傳真|전화|휴대폰|핸드폰|연락처|팩스)"
    r"[^\d\n+]{0,16}\Z",
    re.IGNORECASE,
)
_ID_WORD = re.compile(
    r"(?=[^\W\d_]|[№#])"
    r"(?<![^\W\d_])(?:isbn|issn|ismn|doi|ean|gtin|upc|iban|bic|sku|asin|pmid|pmcid|arxiv|oclc|lccn|order|invoice"
    r"|serial|ticket|case|account|acct|patent|item|part|model|article|art|ref|id|ids|no|nr|nos|num"
    r"|number|konto|ust|vat|tax|siret|siren|inn|инн|огрн|снилс|№|#|nº|n°|zip|plz|version|ver|rfc|uid"
    r"|артикул|编号|編號|番号|번호|订单|股票|version)[\s.:：=\-]*\Z",
    re.IGNORECASE,
)
# Digits grouped by thousands. Three groups of three are left out: after a word for telephone they
# are often a phone number.
_THOUSANDS = re.compile(r"(?!\d{3}[ .]\d{3}[ .]\d{3}\Z)[1-9]\d{0,2}([ .])\d{3}(?:\1\d{3})*")


@lru_cache(maxsize=1024)
def country_of(digits: str) -> tuple[str, int, int] | None:
    """Return (country code at the start, fewest and most digits that may follow it), or None."""
    if digits[:1] == "0":
        return None
    for n in (1, 2, 3):
        if digits[:n] in _COUNTRIES:
            return (digits[:n], *_COUNTRIES[digits[:n]])
    return (digits[:3], *_ANY_COUNTRY) if digits[:2] in _THREE and len(digits) > 3 else None


def _international_end(text: str, at: int) -> int:
    plus = text[at] == "+" or text[at : at + 2] == "(+"
    start = at + (2 if text[at] == "(" else 1 if plus else 2)
    if start < len(text) and plus and text[start] == " ":
        start += 1
    tokens = [(m.group(), m.end()) for m in islice(_TOKEN.finditer(text, start), _TOKENS)]
    if not tokens or not tokens[0][0].isdigit():
        return 0
    digits = tokens[0][0] + "".join(t for t, _ in tokens[1:3] if t.isdigit())
    country = country_of(digits[:4])
    if country is None:
        return 0
    code, least, most = country
    if not plus and tokens[0][0] != code:
        return 0  # after 00 the country code must be a separate group: 0049 30 123456
    national = -len(code)
    end = groups = 0
    trunk = False
    for number, (token, stop) in enumerate(tokens):
        if not token.isdigit():
            if len(token) > 3:
                break
            continue
        if token == "0" and number and text[stop : stop + 1] == ")":
            trunk = True  # +49 (0)30 ...
            continue
        national += len(token)
        groups += 1
        if national > most or groups > 8:
            break
        if national >= least:
            end = stop
    if end and code == "1":
        digits = _SPLIT.sub("", text[start:end])
        if digits[1] in "01" or digits[4] in "01":
            return 0
    return end if end and (plus or groups > 1 or trunk) else 0


def _national_end(text: str, at: int) -> int:
    best = 0
    for form in _NATIONAL:
        match = form.match(text, at)
        if match is None or match.end() <= best:
            continue
        number = match.group()
        digits = sum(c.isdigit() for c in number)
        year = re.match(r"\((?:1[5-9]|20)\d\d\)", number)
        if _LEAST <= digits <= _MOST and not (
            year or _DATE.search(number) or _NOT_A_PHONE.fullmatch(number)
        ):
            best = match.end()
    return best


def _announced_end(text: str, at: int) -> int:
    end = digits = 0
    for match in _TOKEN.finditer(text, at):
        token = match.group()
        if not token.isdigit():
            if len(token) > 3:
                break
            continue
        if digits + len(token) > 15:
            break
        digits += len(token)
        if digits >= MIN_DIGITS:
            end = match.end()
        if digits > 11:
            break
    number = text[at:end]
    return 0 if _DATE.search(number) or _THOUSANDS.fullmatch(number) else end


def _ends_well(text: str, end: int, after: str, loose: bool) -> bool:
    rest = text[end : end + _CONTEXT] + after
    if re.match(r"[0-9A-Za-z_]|[-.,/:]\d|%", rest):
        return bool(re.match(r"(?:x|ext)\.? ?\d", rest))
    return loose or not re.match(r" \d", rest)


def _context_before(before: str, text: str, at: int) -> str:
    return (before + text[max(0, at - _CONTEXT) : at])[-_CONTEXT:]


def phones_in(before: str, text: str, after: str) -> list[tuple[int, int]]:
    """Return (start, end) of each phone number in `text`, a run of digits and separators. Positions
    count characters. `before` and `after` are the text on either side of the run."""
    before, text, after = (t.translate(_PLAIN_NUMBER) for t in (before, text, after))
    spans = []
    at, begun = 0, len(_TAIL.match(text)[0])  # type: ignore[index]
    while match := (_START if at <= begun else _CANDIDATE).search(text, at):
        at = match.start()
        end = _phone_end(_context_before(before, text, at), text, at, after)
        if end:
            spans.append((at, end))
        at = end or at + 1
    return spans


def _phone_end(context: str, text: str, at: int, after: str) -> int:
    if text[at] in "+(" and not re.match(r"[+(]{1,2}\d|\+ \d|\+ ?\(\d", text[at : at + 4]):
        return 0
    plus = text.startswith(("+", "(+"), at)
    edge = context[-2:]
    if re.search(r"[$€£¥] ?\Z|\d[-./,:]\Z", edge):
        return 0
    tail = context[len(context) - len(_TAIL.match(context[::-1])[0]) :]  # type: ignore[index]
    worded = bool(tail.strip(" ./()-"))
    announced = worded and bool(_PHONE_WORD.search(tail))
    glued = r"[0-9_=&%@]" if plus and announced else r"[0-9A-Za-z_=&%@]"  # Telefon+49 30 ...
    if re.match(glued, edge[-1:]):
        return 0
    if plus or (text.startswith("00", at) and not re.match(r"\d ", edge)):
        end = _international_end(text, at)
        # If line breaks were lost, a word may follow directly: +41 58 765 50 76E-Mail
        if end and (_ends_well(text, end, after, True) or (plus and after[:1].isalpha())):
            return end
        if text[at] == "+" and not announced:
            return 0
    if announced:
        end = max(_announced_end(text, at), _national_end(text, at))
        return end if end and _ends_well(text, end, after, True) else 0
    if re.search(r"\d \Z|[/#]\Z", edge) or (worded and _ID_WORD.search(tail[-24:])):
        return 0
    end = _national_end(text, at)
    return end if end and _ends_well(text, end, after, False) else 0


_CARD = re.compile(
    r"(?:\d{4}([ -])\d{4}\1\d{4}\1\d{4}|3[47]\d\d([ -])\d{6}\2\d{5}|\d{13,16})(?![ -]?\d)"
)
# Issuers' first digits (ISO/IEC 7812): American Express, Diners, Visa, Mastercard, Discover, JCB,
# UnionPay.
_ISSUER = re.compile(
    r"3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}|4\d{12}(?:\d{3})?|5[1-5]\d{14}"
    r"|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|6(?:011|4[4-9]\d|5\d\d)\d{12}"
    r"|35(?:2[89]|[3-8]\d)\d{12}|62\d{14}"
)


def luhn(digits: str) -> bool:
    """Return True if the last digit is the check digit of the others (ISO/IEC 7812-1)."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def cards_in(before: str, text: str, after: str) -> list[tuple[int, int]]:
    """Return (start, end) of each card number in `text`, a run of digits and separators. Positions
    count characters. `before` and `after` are the text on either side of the run."""
    before, text, after = (t.translate(_PLAIN_NUMBER) for t in (before, text, after))
    spans = []
    for match in _CARD.finditer(text):
        context = _context_before(before, text, match.start())
        right = text[match.end() : match.end() + 1] + after
        digits = _SPLIT.sub("", match.group())
        if re.search(r"[0-9A-Za-z_=+]\Z|\d[-./,: ]\Z", context) or re.match(r"[0-9A-Za-z_]", right):
            continue
        if _ISSUER.fullmatch(digits) and luhn(digits):
            spans.append(match.span())
    return spans


# Networks whose addresses are reserved, multicast or not globally reachable, by the IANA
# special-purpose registries (RFC 6890 and its updates) of 2024. Python's answers changed in 3.12.4.
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
# Text after four numbers that makes them the version of a file or release.
_FILE = re.compile(
    r"\.(?:tar|t?gz|zip|jar|deb|rpm|exe|msi|dmg|whl|apk|so|dll)\b|[-+]?(?:rc\d|beta|alpha)"
)
MIN_GROUPS6 = 3  # groups with digits; `2001::a` is more likely code

# Words for versions, sections and programs, as regular expressions. `v` and `ver` are also ordinary
# words in Czech, Slovak and Spanish.
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
    return re.compile(
        rf"(?=[^\W\d_]|§)(?<![^\W\d_])(?:{'|'.join(_VERSION.split())})(?![a-zà-ÿа-я])"
        r"(?:[\s.:=#\"'(\[,]|number|no\b|is\b|号|號|は|은|is|to|and|or|[<>~^]|\d[\d.]*(?=,|\s))*\Z",
        re.IGNORECASE,
    )


def is_public(address: str) -> bool:
    """Return True if an address such as `8.8.8.8` is a globally reachable IPv4 unicast address."""
    parts = address.split(".")
    if any(len(p) > 1 and p[0] == "0" for p in parts):
        return False  # 010.1.2.3 may be octal, and is more likely a date or phone number
    value = 0
    for part in parts:
        if int(part) > 255:
            return False
        value = value << 8 | int(part)
    return not any(low <= value <= high for low, high in _RANGES)


def ipv4_in(before: str, address: str, after: str) -> bool:
    """Return True if four decimal groups are a public IPv4 address and not, for example, a version.
    `before` and `after` are the text on either side of the groups."""
    if not is_public(address):
        return False
    previous, right = before[-1:], after[:1]
    if right.isascii() and (right.isalnum() or right == "_"):
        return False
    if previous in ("-", "/") and before[-2:-1].isascii() and before[-2:-1].isalpha():
        # lib-1.2.3.4.jar and Chrome/1.2.3.4 are versions, https://host/1.2.3.4 is not
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
    # Small numbers at the start of a line, followed by a capital, are the number of a heading.
    small = all(int(p) < 30 for p in address.split("."))
    return not (small and not line.strip(" \t#*-") and re.match(r"\.?[ \t]+[^\W\d_a-z]", after))


def ipv6_in(address: str) -> bool:
    """Return True if a text is a global IPv6 address with at least three written groups."""
    if sum(1 for g in address.split(":") if g) < MIN_GROUPS6:
        return False
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return parsed in _GLOBAL6 and not any(parsed in n for n in _SPECIAL6)


# An e-mail address ends where a script without spaces begins (`联系zhang@mail.example谢谢`), and at
# particles and elided articles (`jane@mail.kr로`, `d'jane@mail.fr`). Other letters belong to it
# (`müller@web.example`, `иван@почта.рф`).
MAX_LOCAL, MAX_DOMAIN = 64, 255  # RFC 5321, 4.5.3.1
_LETTERS = "A-Za-zÀ-ÖØ-öø-ɏḀ-ỿ"
_LATIN = "0-9" + _LETTERS
# File name extensions (`icon@2x.png`); none of them is a top-level domain.
_FILES = frozenset(
    "png jpg jpeg gif webp svg bmp ico tif tiff css js mjs jsx ts tsx json html htm xml php txt"
    " pdf csv doc docx log java class yml yaml toml lock woff woff2 ttf otf mp3 mp4 wav local"
    " localdomain lan".split()
)
# Top-level domains so common that a parenthesis directly after them is not a function call.
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
    label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    puny = "[Xx][Nn]--[A-Za-z0-9-]{2,59}"
    ascii_domain = rf"(?:{label}\.)+(?:{puny}(?![A-Za-z0-9])|[A-Za-z]{{2,24}}(?![{_LETTERS}]))"
    wide = r"[^\W_](?:[\w\u0300-\u036f\u0900-\u0dff-]{0,61}[^\W_]|[\u0900-\u0dff]{0,20})"
    idn = "|".join(sorted(_IDN, key=len, reverse=True))
    any_domain = rf"(?:{wide}[.。])+?(?:{idn}|{puny}|[A-Za-z]{{2,24}}(?![{_LETTERS}]))"
    # Another script: neither white space nor punctuation nor Latin.
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
    latin, other, _, _ = _patterns()
    backwards = before[: -2 * MAX_LOCAL - 1 : -1]
    match = latin.match(backwards) or other.match(backwards)
    if match is None:
        return ""
    local = match.group()[::-1].replace("’", "'")
    if local.strip("._+'-").isdigit() and match.re is latin:
        # Digits alone may be the end of a name in another script.
        longer = other.match(backwards)
        local = longer.group()[::-1] if longer and len(longer.group()) > len(local) else local
    if local[-1] in ".'":
        return ""
    local = local.rpartition("..")[2].lstrip("._+'-")
    # Drop an elided article before a vowel (d'info@..., l'adresse@...), but keep O'Brien.
    elided = re.match(r"(?:[cdjlmnst]|qu)'", local, re.IGNORECASE)
    local = local[elided.end() :].lstrip("._+'-") if elided else local
    return local if len(local) <= MAX_LOCAL else ""


def _domain(after: str) -> str:
    _, _, ascii_domain, any_domain = _patterns()
    match = ascii_domain.match(after) or any_domain.match(after)
    if match is None:
        return ""
    domain = match.group()
    labels = domain.split(".")
    # `jane@mail.com.Please write`: the next sentence begins without a space.
    if len(labels) > 2 and labels[-1].istitle() and labels[-2].islower() and labels[-2].isalpha():
        labels.pop()
        domain = ".".join(labels)
    behind = after[len(domain) : len(domain) + 1]
    last = labels[-1].lower() + (behind if behind.isdigit() else "")
    call = behind == "(" and len(last) > 2 and last not in _COMMON
    return "" if last in _FILES or call or len(domain) > MAX_DOMAIN else domain


def email_around(before: str, after: str) -> tuple[int, int] | None:
    """Return the lengths in bytes of the local part and the domain of the e-mail address around an
    at sign, or None if there is no address. `before` and `after` are the text on its sides."""
    local = _local(before)
    domain = _domain(after) if local else ""
    if not domain:
        return None
    if local == "git" and after[len(domain) : len(domain) + 1] == ":":
        return None  # git@github.com:owner/name.git is not an e-mail address
    # Sizes come from the original text, where a typographic apostrophe has three bytes.
    return len(before[len(before) - len(local) :].encode()), len(domain.encode())


# (bytes that every match contains, pattern). The pattern is tried only if the text has the bytes.
_NOT_BEFORE, _NOT_AFTER = rb"(?<![A-Za-z0-9_])", rb"(?![A-Za-z0-9_])"

_PLAIN: tuple[tuple[bytes, bytes], ...] = (
    (b"AKIA", rb"AKIA[0-9A-Z]{16}"),  # aws.py
    (b"ASIA", rb"ASIA[0-9A-Z]{16}"),
    *((p, p + rb"[A-Za-z0-9_]{36}") for p in (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_")),
    (b"github_pat_", rb"github_pat_[A-Za-z0-9_]{82}"),
    (b"glpat-", rb"glpat-[A-Za-z0-9_-]{20}"),
    (b"xox", rb"xox[abposr]-(?:\d+-)+[A-Za-z0-9]+"),  # slack.py
    (b"hooks.slack.com", rb"https://hooks\.slack\.com/services/T\w+/B\w+/\w+"),
    (b"k_live_", rb"[rs]k_live_[0-9a-zA-Z]{24,}"),  # stripe.py
    (b"SG.", rb"SG\.[a-zA-Z0-9_-]{22}\.[a-zA-Z0-9_-]{43}"),  # sendgrid.py
    (b"-us", rb"[0-9a-f]{32}-us[0-9]{1,2}"),  # mailchimp.py
    (b":_authToken", rb"(?<=:_authToken=)(?:npm_[A-Za-z0-9]{36}|[A-Fa-f0-9-]{36})"),  # npm.py
    (b"npm_", rb"npm_[A-Za-z0-9]{36}"),
    (b"AccountKey=", rb"(?<=AccountKey=)[A-Za-z0-9+/]{86}=="),  # azure_storage_key.py
    (b"AIza", rb"AIza[0-9A-Za-z_-]{35}"),
    (b"T3BlbkFJ", rb"sk-[A-Za-z0-9_-]{20,200}T3BlbkFJ[A-Za-z0-9_-]{20,200}"),
    (b"pypi-AgE", rb"pypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{50,}"),
)
PATTERNS = tuple(
    (needle, re.compile(_NOT_BEFORE + b"(?:" + source + b")" + _NOT_AFTER))
    for needle, source in _PLAIN
)
# jwt.py. Both parts are JSON objects, so they begin with `{"` in base64. Each part is searched only
# once, from its start, as a token could begin after any of many hyphens.
_TWO_PARTS = re.compile(
    rb"(?<![A-Za-z0-9_-])([A-Za-z0-9_-]+)(?=\.(eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+)?))"
)
_FIRST_PART = re.compile(_NOT_BEFORE + rb"eyJ[A-Za-z0-9_-]{8}")
# private_key.py: the BEGIN and END lines are kept. The longest RSA keys have 12,900 characters.
_FRAME, _END = b"PRIVATE KEY-----", b"-----END"
_BODY = re.compile(rb"[\s\\A-Za-z0-9+/=:,.\"'-]{64,20000}")


def _private_keys(text: bytes) -> Iterator[tuple[int, int]]:
    end = 0
    while (start := text.find(_FRAME, end)) >= 0 and (end := text.find(_END, start)) >= 0:
        start = text.rfind(_FRAME, start, end) + len(_FRAME)
        if _BODY.fullmatch(text, start, end):
            yield start, end


def _web_tokens(text: bytes) -> Iterator[tuple[int, int]]:
    for parts in _TWO_PARTS.finditer(text) if b".eyJ" in text else ():
        if begin := _FIRST_PART.search(text, *parts.span(1)):
            yield begin.start(), parts.end(2)


def keys_in(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each access key, such as an API token, in UTF-8. Spans may overlap."""
    for needle, pattern in PATTERNS:
        if needle in text:
            for match in pattern.finditer(text):
                yield match.start(), match.end()
    yield from _web_tokens(text)
    yield from _private_keys(text)


RULES = ("key", "email", "ip", "credit_card", "phone")  # if two overlap, the first wins
MIN_CARD_DIGITS = 13
Choices = dict[str, tuple[str, ...]]  # replacements by kind
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
_NAMES = ("EMAIL_ADDRESS", "IP_ADDRESS", "IP_ADDRESS", "CREDIT_CARD", "KEY", "PHONE_NUMBER")
TOKENS: Choices = {k: (f"|||{name}|||",) for k, name in zip(EXAMPLES, _NAMES, strict=True)}
# StarCoder (Li et al. 2023, section 4).
_TAGS = ("EMAIL", "IP_ADDRESS", "IP_ADDRESS", "CREDIT_CARD", "KEY", "PHONE")
TAGS: Choices = {kind: (f"<{tag}>",) for kind, tag in zip(TOKENS, _TAGS, strict=True)}
_REPLACEMENTS: dict[str, Choices] = {"example": EXAMPLES, "token": TOKENS, "tag": TAGS}
_BEFORE, _AFTER = 96, 16  # bytes of context that the rules see
Match = tuple[int, int, int, int, str]  # row, start, end, rank of its rule, kind


@step("pii")
class Pii(Step):
    """Replaces personal data. On request, drops documents with too many matches."""

    emails: bool = True
    """Replace e-mail addresses."""
    ips: bool = True
    """Replace public IPv4 and IPv6 addresses."""
    phones: bool = False
    """Replace phone numbers in a strict format."""
    credit_cards: bool = False
    """Replace card numbers: 13 to 16 digits with the first digits of an issuer and a valid check
    digit (ISO/IEC 7812)."""
    keys: bool = False
    """Replace private keys, and keys and tokens of services that can be recognized by their form
    alone (detect-secrets, as BigCode used it for StarCoder)."""
    replacement: Literal["example", "token", "tag"] = "example"
    """The replacement: example is an address or number that belongs to nobody; token is
    |||EMAIL_ADDRESS||| and the like, as in Dolma v1.6; tag is <EMAIL>, <KEY> and so on, as in
    StarCoder."""
    max_found: int | None = Field(None, ge=0)
    """Documents with more matches are dropped (Dolma v1.6: 5). Without a value there is no
    limit."""

    def apply(self, docs: Documents) -> Documents:
        data, offsets = docs.buffers()
        matches = _without_overlaps(self._matches(data, offsets))
        total = np.zeros(len(docs), np.int64)
        for rank, rule in enumerate(RULES):
            rows = np.array([f[0] for f in matches if f[3] == rank], np.int64)
            count = np.bincount(rows, minlength=len(docs)).astype(np.int32)
            total += count
            column = f"{rule}s"
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

        def found(row: int, start: int, end: int, rule: str, kind: str) -> None:
            matches.append((row, start, end, RULES.index(rule), kind))

        def context(
            row: int, start: int, end: int, before: int = _BEFORE, after: int = _AFTER
        ) -> tuple[str, str]:
            low, high = int(offsets[row]), int(offsets[row + 1])
            left = _decoded(view, max(low, start - before), start)
            return left, _decoded(view, end, min(high, end + after))

        if self.emails or self.ips:
            for row, start, end, kind in pii_kernel.find_addresses(data, offsets).T.tolist():
                address = _decoded(view, start, end)
                if kind == pii_kernel.EMAIL:
                    sides = context(row, start, end, 4 * MAX_LOCAL, MAX_DOMAIN + 16)
                    if self.emails and (sizes := email_around(*sides)):
                        found(row, start - sizes[0], end + sizes[1], "email", "email")
                elif self.ips and kind == pii_kernel.IPV6:
                    if ipv6_in(address):
                        found(row, start, end, "ip", "ipv6")
                elif self.ips:
                    left, right = context(row, start, end)
                    if ipv4_in(left, address, right):
                        found(row, start, end, "ip", "ipv4")
        if self.keys:
            for row in range(len(offsets) - 1):
                low = int(offsets[row])
                for start, end in keys_in(bytes(view[low : int(offsets[row + 1])])):
                    found(row, low + start, low + end, "key", "key")
        judges = [(cards_in, "credit_card")] * self.credit_cards
        judges += [(phones_in, "phone")] * self.phones
        least = MIN_DIGITS if self.phones else MIN_CARD_DIGITS
        numbers = pii_kernel.find_numbers(data, offsets, least).T.tolist() if judges else []
        for row, start, end in numbers:
            text, (left, right) = _decoded(view, start, end), context(row, start, end)
            for judge, kind in judges:
                at, passed = start, 0  # bytes and characters, advanced together in one pass
                for first, last in judge(left, text, right):
                    at += len(text[passed:first].encode())
                    size = len(text[first:last].encode())
                    found(row, at, at + size, kind, kind)
                    at, passed = at + size, last
        examples = {text for texts in EXAMPLES.values() for text in texts}
        return [f for f in matches if _decoded(view, f[1], f[2]) not in examples]

    def _replace(
        self, docs: Documents, data: np.ndarray, offsets: np.ndarray, matches: list[Match]
    ) -> Documents:
        from curate.documents.cutting import cut

        if not matches:
            return docs
        replacements = _REPLACEMENTS[self.replacement]
        words = tuple(dict.fromkeys(w for kind in replacements.values() for w in kind))
        view = memoryview(data)  # type: ignore[arg-type]
        rows, start, end, rank = (np.array([f[k] for f in matches], np.int64) for k in range(4))
        which = np.array(_replacement_numbers(view, matches, replacements, words), np.int64)
        base = offsets[rows]
        return cut(docs, Spans(rows, start - base, end - base, rank, RULES, which, words))


def _replacement_numbers(
    view: memoryview,
    matches: list[Match],
    replacements: Choices,
    words: tuple[str, ...],
) -> list[int]:
    chosen: list[int] = []
    seen: dict[str, dict[str, int]] = {}
    row = -1
    for f in matches:
        if f[0] != row:
            row, seen = f[0], {}
        turns = seen.setdefault(f[4], {})
        turn = turns.setdefault(_decoded(view, f[1], f[2]).casefold(), len(turns))
        chosen.append(words.index(replacements[f[4]][turn % len(replacements[f[4]])]))
    return chosen


def _decoded(view: memoryview, start: int, end: int) -> str:
    # A window may begin or end within a character; the partial bytes are ignored.
    return bytes(view[start:end]).decode("utf-8", "ignore")


def _without_overlaps(matches: list[Match]) -> list[Match]:
    kept: list[Match] = []
    for f in sorted(matches, key=lambda f: (f[0], f[1], f[3])):
        while kept and kept[-1][0] == f[0] and kept[-1][2] > f[1] and kept[-1][3] > f[3]:
            kept.pop()
        if not (kept and kept[-1][0] == f[0] and kept[-1][2] > f[1]):
            kept.append(f)
    return kept
