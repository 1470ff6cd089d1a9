"""Keys and tokens that open something: patterns so particular that what they match is hardly else.

Source: the plugins of detect-secrets (github.com/Yelp/detect-secrets), with which BigCode looked
for keys (bigcode-dataset, pii/utils/keys_detection.py); those of GitLab, Google, OpenAI and PyPI
are of the forms that these services state. Its detectors by entropy and by the word `password`
are left out: they need a model against false alarms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# (what stands in every match, the pattern). The first is looked for before the pattern runs.
_NOT_BEFORE, _NOT_BEHIND = rb"(?<![A-Za-z0-9_])", rb"(?![A-Za-z0-9_])"


def _pattern(source: bytes) -> re.Pattern[bytes]:
    return re.compile(_NOT_BEFORE + b"(?:" + source + b")" + _NOT_BEHIND)


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
PATTERNS = tuple((needle, _pattern(source)) for needle, source in _PLAIN)
# jwt.py; both parts are JSON objects, so they begin with what `{"` is in base64. A part is looked
# at once, from its beginning: a token may begin behind each of many hyphens.
_TWO_PARTS = re.compile(
    rb"(?<![A-Za-z0-9_-])([A-Za-z0-9_-]+)(?=\.(eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+)?))"
)
_FIRST_PART = re.compile(_NOT_BEFORE + rb"eyJ[A-Za-z0-9_-]{8}")
# private_key.py: the key goes, its frame stays. The longest RSA keys have 12,900 characters.
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
    """(start, end) of the keys in a text in UTF-8; one may overlap another."""
    for needle, pattern in PATTERNS:
        if needle in text:
            for match in pattern.finditer(text):
                yield match.start(), match.end()
    yield from _web_tokens(text)
    yield from _private_keys(text)
