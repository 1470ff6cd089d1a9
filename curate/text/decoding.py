"""Decoding of untrusted bytes to text: the encoding is found as browsers find it.

A page's declaration of its encoding is searched for as the HTML Standard says ("prescan a byte
stream to determine its encoding"). Without a declaration, chardetng decides, as in Firefox."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from operator import attrgetter
from urllib.parse import urlsplit

from curate.text.encodings import BOMS, UTF, UTF_32, Decoded, decode_as, encoding_of

_PRESCAN = 1024  # bytes, as in the HTML Standard
_HEAD = 4096
_FIRST = 1 << 20  # bytes that are searched for a declaration
_SAMPLE = 64 << 10  # bytes that are examined, of lines and elements that are not all ASCII
_ESCAPES = re.compile(rb"\x1b(?:\$[@B]|\([JI])")  # not ESC ( B, by which terminals reset
_CESU_8 = re.compile(rb"\xed[\xa0-\xaf][\x80-\xbf]\xed[\xb0-\xbf][\x80-\xbf]")
_CUT = re.compile(rb"(?:[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z")
_ODD = re.compile(r"[\0-\x08\x0e-\x1f\ue000-\uf8ff\ufffd-\uffff]")
_LANG = re.compile(rb"<html\b[^>]*?[\s:]lang\s*=\s*[\"']?([a-z]{2,3})\b", re.I)
# A comment, a tag (its name, its attributes, its end), or other markup.
_MARKUP = re.compile(
    r"<!(?=--).*?(?:-->|\Z)|<(meta(?=[\s/])|/?[a-z][^\s>]*)"
    r"""((?:=\s*(?:"[^"]*(?:"|\Z)|'[^']*(?:'|\Z))|[^>=]+|=)*)(>|\Z)|<[!/?][^>]*(?:>|\Z)""",
    re.A | re.I | re.S,
)
_ATTRIBUTE = re.compile(r"""[\s/]*([^\s/>][^\s/>=]*)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s>]*))?""", re.A)
_CONTENT = re.compile(r"""charset\s*=\s*("[^"]*"|'[^']*'|[^"'\s;]+|)""", re.A)
_XML = re.compile(r"<\?xml[^>]*?encoding[\0- ]*=[\0- ]*([\"'])([^\"'>\0- ]*)\1")
_RAW = ("script", "style", "title", "noscript")
_OF_HEAD = ("", *_RAW, *(f"/{name}" for name in _RAW), "html", "head", "meta", "link", "base")


class Undecodable(ValueError):
    """The bytes have an encoding that no browser decodes. The message is the encoding's label."""


def decode(
    payload: bytes, label: str | None = None, *, html: bool = True, url: str | None = None
) -> Decoded:
    """Return the text of `payload`.

    `label` is the charset of the HTTP header. If `html`, a meta tag or an XML declaration in the
    bytes may name the encoding. The top-level domain of `url` is a hint. The first rule that
    applies gives the encoding:

    1. The encoding of a byte order mark. UTF-32's counts only if not `html`.
    2. UTF-16 if NULs show this, ISO-2022-JP if escapes do. Rule 3 would take both for UTF-8.
    3. UTF-8 if the bytes are valid UTF-8 apart from some damage, whatever is declared: many servers
       declare iso-8859-1 for every page, and other text is rarely valid UTF-8.
    4. The encoding that the header declares, or else the one declared in the bytes. A declared
       utf-8 is ignored if most bytes beyond ASCII are not valid UTF-8.
    5. The encoding that chardetng finds. An encoding usual for the page's `lang` is preferred if
       the text then has more letters of that language.

    Raises Undecodable if the declared encoding is `replacement`, the standard's name for encodings
    that no browser decodes. Valid UTF-8 raises this error only if it is ASCII with escapes that are
    not those of ISO-2022-JP.
    """
    for mark, encoding in BOMS if html else (*UTF_32, *BOMS):
        if payload.startswith(mark):
            return decode_as(payload[len(mark) :], encoding)
    if utf_16 := utf_16_in(payload):
        return decode_as(payload, utf_16)
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError:
        decoded = decode_as(payload, _not_utf_8(payload, label, html, url))
        if decoded.encoding == "euc-jp" and decoded.replaced:  # JIS X 0213, under the same label
            more = decode_as(payload, "euc-jis-2004")
            return min(decoded, more, key=attrgetter("replaced"))._replace(encoding="euc-jp")
        return decoded
    if text.isascii():
        labels = f"{label} {payload[:_PRESCAN].decode('ascii')}".lower()
        if b"\x1b" in payload or ("hz-gb-2312" in labels and b"~{" in payload):
            if _ESCAPES.search(payload):
                return decode_as(payload, "iso-2022-jp")
            _declared(payload, label, html)  # raises Undecodable for `replacement`
    return Decoded(text, "utf-8", 0)


def _declared(payload: bytes, label: str | None, html: bool) -> str | None:
    if encoding_of(label) is None:
        label = declared_in(payload) if html else None
    encoding = encoding_of(label)
    if encoding == "replacement":
        raise Undecodable(str(label).strip().lower())
    return encoding


def _not_utf_8(payload: bytes, label: str | None, html: bool, url: str | None) -> str:
    encoding = _declared(payload, label, html)
    if encoding in UTF[1:] and b"<" in payload[:_HEAD] and b"\0" not in payload[:_HEAD]:
        encoding = None  # a page in UTF-16 would have NULs
    declares_utf_8 = encoding == "utf-8"
    parts = (part for line in payload.splitlines() for part in line.split(b"<"))
    sample = b"<".join(part for part in parts if not part.isascii())[:_SAMPLE]
    if encoding is None or declares_utf_8:
        lang = _LANG.search(payload[:_HEAD])
        encoding = _detected(sample, url, lang[1].decode().lower() if lang else "")
    # valid: continuation bytes of valid characters. A pair of surrogates as two characters (CESU-8)
    # is one error; a character cut off at the end is no error. Of sentences in 25 encodings, none
    # in an encoding of one byte per letter has as many valid bytes as errors; of others 2 % do, and
    # 0.5 % have twice as many.
    least = 1 if declares_utf_8 or encoding.startswith(("windows-125", "iso-8859")) else 2
    text = sample.decode("utf-8", "replace")
    valid = len(text.encode()) - len(text) - 2 * text.count("\ufffd")
    cut = _CUT.search(payload[-3:])
    errors = text.count("\ufffd") - 5 * len(_CESU_8.findall(sample)) - bool(cut)
    has_evidence = valid or declares_utf_8 or (cut is not None and len(cut[0]) > 1)
    return "utf-8" if valid >= least * errors and has_evidence else encoding


# Encodings that the bytes declare or show.


def utf_32_in(payload: bytes) -> str | None:
    """Return utf-32le or utf-32be if the bytes begin with its byte order mark, else None."""
    return next((name for mark, name in UTF_32 if payload.startswith(mark)), None)


def utf_16_in(payload: bytes) -> str | None:
    """Return utf-16le or utf-16be if the bytes begin with its byte order mark, or have NULs where
    UTF-16 text has its high bytes. Without a mark, one of two further signs is required: few
    different values or many NULs in the high bytes, or enough low bytes beyond printable ASCII."""
    if marked := next((name for mark, name in BOMS[1:] if payload.startswith(mark)), None):
        return marked
    head = payload[:_HEAD]
    if b"\0" not in head:
        return None
    even, odd = head[::2], head[1::2]
    little = odd.count(0) > even.count(0)
    high, low = (odd, even) if little else (even, odd)
    if low.count(0) * 3 > high.count(0) or high.count(0) * 100 < len(head) or not head:
        return None
    share = high.count(0) / len(high)
    scripts = (len(set(high)) <= min(6, len(high) // 16) and share > 0.05) or share > 0.5
    if not scripts and len(low.translate(None, bytes(range(0x20, 0x7F)))) * 5 < len(low):
        return None
    encoding = "utf-16le" if little else "utf-16be"
    text = head.decode(encoding, "replace")
    return encoding if len(_ODD.findall(text)) * 50 <= len(text) else None


def declared_in(payload: bytes) -> str | None:
    """Return the label of an encoding that a page declares: in a meta tag of the first 1,024 bytes
    (the HTML Standard's prescan), else of the rest of the head, else in the XML declaration."""
    page = payload[:_FIRST].decode("latin-1")
    if label := _in_meta(page[:_PRESCAN], rest=False) or _in_meta(page, rest=True):
        return label
    declaration = _XML.match(page[:_PRESCAN])
    return _not_utf_16(declaration[2]) if declaration else None


def _in_meta(head: str, rest: bool) -> str | None:
    """Return the label of an encoding in a meta tag. If `rest`, scripts and titles are skipped, and
    the search ends at the end of the head."""
    at = 0
    while markup := _MARKUP.search(head, at):
        name, at = (markup[1] or "").lower(), markup.end()
        if name == "meta" and markup[3] and (label := _of_meta(markup[2].lower())):
            return label
        if rest and name not in _OF_HEAD:
            return None
        if rest and name in _RAW:
            end = re.compile(f"</{name}", re.I).search(head, at)
            at = end.start() if end else len(head)
    return None


def _of_meta(attributes: str) -> str | None:
    found: dict[str, str] = {}
    for name, value in _ATTRIBUTE.findall(attributes):
        found.setdefault(name, value[1:-1] if value[:1] in ('"', "'") else value)
    label = found.get("charset")
    if label is None and found.get("http-equiv") == "content-type":
        content = _CONTENT.search(found.get("content", ""))
        label = content[1].strip("\"'") if content else None
    return _not_utf_16(label)


def _not_utf_16(label: str | None) -> str | None:
    """Return a declared label if it is known, else None. For UTF-16 or UTF-32 return utf-8: the
    search for labels reads ASCII, so it finds none in a page that is really UTF-16 or UTF-32."""
    encoding = encoding_of(label)
    if encoding in UTF:
        return "utf-8"
    return "windows-1252" if encoding == "x-user-defined" else label if encoding else None


# Encodings that nothing declares.

_PYTHON = {"cp874": "windows-874"}  # a Python name that chardetng_py returns
_1250, _1257 = ("windows-1250", "iso-8859-2"), ("windows-1257", "iso-8859-13")
# The encodings of a language, as in the HTML Standard's defaults by locale, and its letters beyond
# ASCII (CLDR's main exemplars).
_LETTERS = {
    "cs": (_1250, "áčďéěíňóřšťúůýž"),
    "et": (_1257, "äõöüšž"),
    "hr": (_1250, "čćđšž"),
    "hu": (_1250, "áéíóöőúüű"),
    "lt": (_1257, "ąčęėįšųūž"),
    "lv": (_1257, "āčēģīķļņšūž"),
    "pl": (_1250, "ąćęłńóśźż"),
    "ro": (_1250, "ăâîşţ"),
    "sk": (_1250, "áäčďéíĺľňóôŕšťúýž"),
    "tr": (("windows-1254",), "âçğıîöşûüİ"),
}
# The detector's results for pages in languages that it misses. Such a page has at least five
# different letters beyond ASCII, and all of them are letters of its language.
_INSTEAD = ("windows-1252", "windows-1250", "windows-1258", "iso-8859-2", "iso-8859-4")
_MISSED, _DISTINCT = ("hu", "lt"), 5
_LETTER = re.compile(r"[^\W\d_\0-\x7f]|\ufffd")


def _detected(sample: bytes, url: str | None, language: str) -> str:
    """Return the encoding that chardetng finds (H. Sivonen 2020), or an encoding of the page's
    language if the text then has more letters of the language. If the language is not known, try
    the languages whose encodings chardetng misses most often."""
    from chardetng_py import EncodingDetector

    detector = EncodingDetector()
    detector.feed(sample, last=len(sample) < _SAMPLE)
    name = detector.guess(tld=_top_level_domain(url), allow_utf8=False)
    found = encoding_of(_PYTHON.get(name, name)) or "windows-1252"
    languages = (language,) if language in _LETTERS else ()
    for each in languages or (_MISSED if found in _INSTEAD else ()):
        encodings, letters = _LETTERS[each]
        if found in encodings:
            return found
        texts = {e: decode_as(sample, e).text for e in (found, *encodings)}
        counts = {e: Counter(_LETTER.findall(text)) for e, text in texts.items()}
        own = {e: sum(count[c] for c in letters + letters.upper()) for e, count in counts.items()}
        shares = {e: own[e] / max(sum(count.values()), 1) for e, count in counts.items()}
        best = max(shares, key=shares.__getitem__)
        if languages or (shares[best] == 1 and len(counts[best]) >= _DISTINCT):
            return best
    return found


def _top_level_domain(url: str | None) -> bytes | None:
    """Return a URL's top-level domain in ASCII lower case, as chardetng requires it, or None."""
    try:
        host = urlsplit(url or "").hostname or ""
        name = host.rpartition(".")[2].encode("idna").lower()
    except (ValueError, UnicodeError):
        return None
    return name if re.fullmatch(rb"[a-z0-9-]+", name) else None


# Files that are read in pieces.


def encoding_of_file(head: bytes) -> str:
    """Return the encoding of a file of lines by its first bytes; utf-8 for damaged UTF-8."""
    lines = head[: head.rfind(b"\n") + 1] or head
    return utf_32_in(head) or utf_16_in(head) or decode(lines, html=False).encoding


_MARK = "\udcff"  # the byte 0xFF in Python's strings (PEP 383), which no UTF-8 has
codecs.register_error("marked", lambda error: (_MARK, error.end))  # type: ignore[attr-defined]


def utf_8_of(chunks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Yield the chunks of a file in another encoding as UTF-8. Invalid input becomes the byte 0xFF,
    which is not UTF-8 either, so it is counted when lines are decoded (`replaced_in`)."""
    if encoding in UTF:
        for text in codecs.iterdecode(chunks, encoding, "marked"):
            yield text.encode("utf-8", "surrogateescape")
        return
    rest = b""
    for chunk in chunks:  # no encoding has a newline in a character
        lines, newline, rest = (rest + chunk).rpartition(b"\n")
        yield _marked(lines + newline, encoding)
    yield _marked(rest, encoding)


def _marked(data: bytes, encoding: str) -> bytes:
    text = decode_as(data, encoding).text.replace("\ufffd", _MARK)
    return text.encode("utf-8", "surrogateescape")


def replaced_in(text: str, line: bytes) -> int:
    """Return how many U+FFFD in `text`, decoded from `line`, replace invalid bytes."""
    return text.count("\ufffd") - line.count("\ufffd".encode())
