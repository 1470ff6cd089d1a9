"""Phone and credit card numbers, by strict formats.

A phone number is one of:

- international: `+` or `00`, a country code of ITU-T E.164 and as many digits as that country's
  numbers have;
- national in a grouping that little else has: `(212) 555-0123`, `06 12 34 56 78`, `030/1234567`,
  `8 (495) 123-45-67`, `(11) 91234-5678`, `138-1234-5678`;
- seven to fifteen digits behind a word for telephone (`Tel.: 5550123`, `电话：13812345678`).

Dates, ISBN, prices, decimal numbers, identifiers and number columns are none of these.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice

MIN_DIGITS = 7  # fewer are not looked at

# National digits (least, most) by country code: ITU-T E.164 and the national numbering plans.
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
# Other assigned codes of three digits, by their first two.
_THREE = frozenset("21 22 23 24 25 26 29 35 37 38 42 50 59 67 68 69 80 85 87 88 96 97 99".split())
_ANY_COUNTRY = (7, 11)

_CONTEXT = 64  # characters before a number that the rules look at
_TOKENS = 40  # groups of digits and separators that a number has at most

_TOKEN = re.compile(r"\d+|[ ./()-]+")
# No-break spaces and the other hyphens and dashes are read as blank and hyphen.
_PLAIN = str.maketrans("\u00a0\u202f\u2010\u2011\u2012\u2013", "  ----")
_SPLIT = re.compile(r"\D+")
_TAIL = re.compile(r"\D*")
_START = re.compile(r"(?<!\d)[\d+(]")
# After the first digit of a stretch `_judge` accepts at these positions alone: an international
# number, or as many digits as a national one has, with two or more in its second group.
_CHANCE = re.compile(
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
_BEHIND_WORD = re.compile(
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
_BEHIND_ID = re.compile(
    r"(?=[^\W\d_]|[№#])"
    r"(?<![^\W\d_])(?:isbn|issn|ismn|doi|ean|gtin|upc|iban|bic|sku|asin|pmid|pmcid|arxiv|oclc|lccn|order|invoice"
    r"|serial|ticket|case|account|acct|patent|item|part|model|article|art|ref|id|ids|no|nr|nos|num"
    r"|number|konto|ust|vat|tax|siret|siren|inn|инн|огрн|снилс|№|#|nº|n°|zip|plz|version|ver|rfc|uid"
    r"|артикул|编号|編號|番号|번호|订单|股票|version)[\s.:：=\-]*\Z",
    re.IGNORECASE,
)
# Three groups of three are as often a phone number where a word for telephone says so.
_THOUSANDS = re.compile(r"(?!\d{3}[ .]\d{3}[ .]\d{3}\Z)[1-9]\d{0,2}([ .])\d{3}(?:\1\d{3})*")


@lru_cache(maxsize=1024)
def country_of(digits: str) -> tuple[str, int, int] | None:
    """(code, least, most national digits) of a number that begins with a country code."""
    if digits[:1] == "0":
        return None
    for n in (1, 2, 3):
        if digits[:n] in _COUNTRIES:
            return (digits[:n], *_COUNTRIES[digits[:n]])
    return (digits[:3], *_ANY_COUNTRY) if digits[:2] in _THREE and len(digits) > 3 else None


def _international(text: str, at: int) -> int:
    """The end of the number of `+` or `00` at the position; 0 where there is none."""
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
        return 0  # 00 and the code stand by themselves, as in 0049 30 123456
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


def _national(text: str, at: int) -> int:
    """The longest national form at the position; 0 where there is none."""
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


def _behind_word(text: str, at: int) -> int:
    """The end of a loosely written number that a word for telephone announces."""
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
    """Whether nothing behind the number goes on with it."""
    rest = text[end : end + _CONTEXT] + after
    if re.match(r"[0-9A-Za-z_]|[-.,/:]\d|%", rest):
        return bool(re.match(r"(?:x|ext)\.? ?\d", rest))
    return loose or not re.match(r" \d", rest)


def _behind(before: str, text: str, at: int) -> str:
    """What stands before a position of the text."""
    return (before + text[max(0, at - _CONTEXT) : at])[-_CONTEXT:]


def phones_in(before: str, text: str, after: str) -> list[tuple[int, int]]:
    """(start, end) in characters of the phone numbers in a stretch of digits and separators, given
    the text before and behind it."""
    before, text, after = (t.translate(_PLAIN) for t in (before, text, after))
    spans = []
    at, begun = 0, len(_TAIL.match(text)[0])  # type: ignore[index]
    while match := (_START if at <= begun else _CHANCE).search(text, at):
        at = match.start()
        end = _judge(_behind(before, text, at), text, at, after)
        if end:
            spans.append((at, end))
        at = end or at + 1
    return spans


def _judge(context: str, text: str, at: int, after: str) -> int:
    """The end of the phone number at the position; 0 where there is none."""
    if text[at] in "+(" and not re.match(r"[+(]{1,2}\d|\+ \d|\+ ?\(\d", text[at : at + 4]):
        return 0
    plus = text.startswith(("+", "(+"), at)
    edge = context[-2:]
    if re.search(r"[$€£¥] ?\Z|\d[-./,:]\Z", edge):
        return 0
    tail = context[len(context) - len(_TAIL.match(context[::-1])[0]) :]  # type: ignore[index]
    worded = bool(tail.strip(" ./()-"))
    announced = worded and bool(_BEHIND_WORD.search(tail))
    glued = r"[0-9_=&%@]" if plus and announced else r"[0-9A-Za-z_=&%@]"  # Telefon+49 30 ...
    if re.match(glued, edge[-1:]):
        return 0
    if plus or (text.startswith("00", at) and not re.match(r"\d ", edge)):
        end = _international(text, at)
        # Where lines were lost, a word may begin right behind: +41 58 765 50 76E-Mail
        if end and (_ends_well(text, end, after, True) or (plus and after[:1].isalpha())):
            return end
        if text[at] == "+" and not announced:
            return 0
    if announced:
        end = max(_behind_word(text, at), _national(text, at))
        return end if end and _ends_well(text, end, after, True) else 0
    if re.search(r"\d \Z|[/#]\Z", edge) or (worded and _BEHIND_ID.search(tail[-24:])):
        return 0
    end = _national(text, at)
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
    """Whether the check digit of ISO/IEC 7812-1 is right."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def cards_in(before: str, text: str, after: str) -> list[tuple[int, int]]:
    """(start, end) in characters of the credit card numbers in a stretch of digits."""
    before, text, after = (t.translate(_PLAIN) for t in (before, text, after))
    spans = []
    for match in _CARD.finditer(text):
        context = _behind(before, text, match.start())
        right = text[match.end() : match.end() + 1] + after
        digits = _SPLIT.sub("", match.group())
        if re.search(r"[0-9A-Za-z_=+]\Z|\d[-./,: ]\Z", context) or re.match(r"[0-9A-Za-z_]", right):
            continue
        if _ISSUER.fullmatch(digits) and luhn(digits):
            spans.append(match.span())
    return spans
