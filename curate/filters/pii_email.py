"""E-mail addresses in running text of any language.

An address is cut off where scripts without spaces begin (`联系zhang@mail.example谢谢`), and so is
the letter that a language puts directly behind it (`jane@mail.kr로`, `d'jane@mail.fr`). Letters of
other scripts belong to it (`müller@web.example`, `иван@почта.рф`).
"""

from __future__ import annotations

import re
from functools import lru_cache

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
    found = latin.search(before[-2 * MAX_LOCAL :]) or other.search(before[-2 * MAX_LOCAL :])
    if found is None:
        return ""
    local = found.group().replace("’", "'")
    if local.strip("._+'-").isdigit() and found.re is latin:
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
    found = ascii_domain.match(after) or any_domain.match(after)
    if found is None:
        return ""
    domain = found.group()
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
