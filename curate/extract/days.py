"""Dates as people write them, in numbers and in words of many languages."""

from __future__ import annotations

import re
from datetime import date

# Beginnings of the months' names (Unicode CLDR); "!" marks a whole word. English, German, Dutch,
# Scandinavian languages; Romance ones and Indonesian; Hungarian; Polish; Czech; Turkish; Finnish;
# Russian and Bulgarian; Ukrainian; Greek; Arabic of Egypt, the Levant and the Maghreb; Thai.
_BEGINNINGS = """
jan feb mar|mär|mrz|maa|mrt apr may|mai|mei|maj jun jul aug sep oct|okt nov dec|dez|des
ene|gen|ian fév|fev mar avr|abr mag juin|giu|iun juil|lug|iul aoû|ago|agu set out|ott noi déc|dic
jan feb már ápr máj jún júl aug szep okt nov dec
stycz|sty! luty|lutego|lut! mar kwie|kwi! maj czerw|cze! lipiec|lipca|lip! sierp|sie! wrze|wrz! \
paźdz|paź! listopad|lis! grud|gru!
ledn únor břez dub květ červen|června červenec|července srp září říj listopad prosin
oca şub mar nis may haz tem ağu eyl eki kasım|kas! aralık|ara!
tammik helmik maalisk huhtik toukok kesäk heinäk elok syysk lokak marrask jouluk
янв|яну фев мар апр май|мая июн|юни июл|юли авг сен|сеп окт ноя|ное дек
січ лют берез квіт трав черв лип серп верес жовт лист груд
ιαν φεβ μαρ|μάρ απρ μαι|μαΐ|μαϊ|μάι|μάϊ ιουν|ιούν ιουλ|ιούλ αυγ|αύγ σεπ οκτ νοε|νοέ δεκ
يناير فبراير مارس أبريل|ابريل|إبريل مايو يونيو يوليو أغسطس|اغسطس سبتمبر أكتوبر|اكتوبر نوفمبر ديسمبر
كانون_الثاني شباط آذار نيسان أيار حزيران تموز آب أيلول تشرين_الأول تشرين_الثاني كانون_الأول
جانفي فيفري مارس أفريل ماي جوان جويلية أوت سبتمبر أكتوبر نوفمبر ديسمبر
มกราคม กุมภาพันธ์ มีนาคม เมษายน พฤษภาคม มิถุนายน กรกฎาคม สิงหาคม กันยายน ตุลาคม พฤศจิกายน ธันวาคม
ม.ค. ก.พ. มี.ค. เม.ย. พ.ค. มิ.ย. ก.ค. ส.ค. ก.ย. ต.ค. พ.ย. ธ.ค.
"""
_MONTHS = {
    word.replace("_", " "): month
    for language in _BEGINNINGS.split("\n")
    for month, words in enumerate(language.split(), 1)
    for word in words.split("|")
}
MONTHS = {word.strip("!"): month for word, month in _MONTHS.items()}
_LONGEST_FIRST = sorted(map(re.escape, _MONTHS), key=len, reverse=True)
_WORDS = "|".join(_LONGEST_FIRST).replace("!", r"\b")
_MONTH = rf"(?<![^\W\d_])({_WORDS})[^\W\d_]*\.?"
_YEAR = r"((?:19|20|25)\d\d)(?!\d)"  # 25..: years of the Buddhist era
_DAY = r"(?<!\d)(\d{1,2})(?:st|nd|rd|th|er|[.ºª])?"
_WRITTEN = re.compile(
    rf"(?<!\d){_YEAR}(?:[-/.]\s?|\s?[年년]\s?)(\d{{1,2}})(?:[-/.]\s?|\s?[月월]\s?)(\d{{1,2}})(?!\d)"
    rf"|(?<![\d./-])(\d{{1,2}})([./-])\s?(\d{{1,2}})\5\s?{_YEAR}(?![./-]\d)"
    rf"|{_MONTH}\s+{_DAY}[,،]?\s+{_YEAR}"
    rf"|{_DAY}(?:\s+|-)(?:de\s+|of\s+)?{_MONTH}[,،]?(?:\s+|-)(?:del?\s+|พ\.ศ\.\s?)?{_YEAR}"
    rf"|(?<!\d){_YEAR}\.?\s+{_MONTH}\s+(\d{{1,2}})(?!\d)",
    re.IGNORECASE,
)

_PLACES = (
    (0, 1, 2),
    (9, 7, 8),
    (12, 11, 10),
    (13, 14, 15),
)  # groups of year, month and day in _WRITTEN
_COMPACT = re.compile(r"((?:19|20)\d\d)(\d\d)(\d\d)(?:\d{6})?")
_ERA = re.compile(r"(令和|平成|民[國国])\s?(\d{1,3}|元)(?=\s?年)")
_BEFORE = {"令和": 2018, "平成": 1988, "民國": 1911, "民国": 1911}  # the year before an era's first
_ANY_YEAR = re.compile(r"(?:19|20|25)\d\d")


def _plain(text: str) -> str:
    if text.isascii():
        return _COMPACT.sub(r"\1-\2-\3", text) if _COMPACT.fullmatch(text) else text
    text = re.sub(r"[^\D0-9]", lambda digit: str(int(digit[0])), text)
    return _ERA.sub(lambda m: str(_BEFORE[m[1]] + (1 if m[2] == "元" else int(m[2]))), text)


def day_in(text: str, month_first: bool = True) -> str | None:
    """Return the first day since 1990 that the text names, in ISO 8601, or None. If `month_first`,
    5/6/2024 is the 6th of May. Otherwise, or if dots or hyphens separate the numbers, the day comes
    first. A number over 12 is always the day."""
    text = _plain(text)
    if _ANY_YEAR.search(text) is None:
        return None
    for match in _WRITTEN.finditer(text):
        g = match.groups()
        if g[3]:
            first, second, year = int(g[3]), int(g[5]), int(g[6])
            swap = second > 12 or (first <= 12 and month_first and g[4] == "/")
            month, day = (first, second) if swap else (second, first)
        else:
            y, m, d = next(places for places in _PLACES if g[places[0]])
            year, day = int(g[y]), int(g[d])
            month = int(g[m]) if g[m].isdecimal() else MONTHS.get(g[m].lower(), 0)  # 0: "maı"
        try:
            if year >= 1990:
                return date(year - 543 * (year > 2400), month, day).isoformat()
        except ValueError:
            continue
    return None
