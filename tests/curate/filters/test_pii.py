"""Personal data: what is replaced in texts of any language, and what is left alone."""

from __future__ import annotations

import io
import ipaddress
import json
import random
import re

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.documents.documents import CORE, PAYLOAD, Documents, documents
from curate.filters.pii import (
    EXAMPLES,
    Pii,
    _without_overlaps,
    cards_in,
    is_public,
    keys_in,
    luhn,
    phones_in,
)
from curate.filters.pii_kernel import find_addresses
from curate.text.buffers import text_buffers
from tests.curate.doubling import grows_linearly
from tests.curate.filters.filter_texts import JUNK, SHARED, applied
from tests.curate.filters.phone_table import NUMBERS, OTHERS
from tests.curate.replayed_edits import replayed

ALL = Pii(phones=True, credit_cards=True)


def found(step: Pii, text: str) -> list[tuple[str, str]]:
    """(rule, what was replaced) in a text; checks that the recorded spans give the new text."""
    docs, _ = applied(step, [text])
    row = docs.split()[0].to_pylist()[0]
    edits = row.get("edits") or []
    assert replayed(text, edits) == row["text"]
    data = text.encode()
    return [(e["rule"], data[e["start"] : e["end"]].decode()) for e in edits]


def marked(text: str) -> tuple[str, list[str]]:
    """The text without « and », and what stands between them."""
    return re.sub("[«»]", "", text), re.findall("«(.*?)»", text, re.DOTALL)


EMAILS = [
    "Write to «jane.doe@mail.example», please.",
    "«jane_doe+news@mail.example.org»",
    "(«JANE@MAIL.EXAMPLE.CO.UK»)",
    "<«a@b.io»>; '«c-d@e-f.com»', \"«x.y@z.org»\"",
    "mailto:«jane@mail.org»?subject=x&to=«joe@mail.org»",
    "«jane@mail.com».",
    "«jane@mail.com».Please write",
    "«jane@mail.com»: hello; «o'brien@mail.ie»",
    "«1234567@qq.com» «007@mail.ru»",
    "联系«zhang.wei@mail.cn»谢谢",
    "メール：«tanaka＠mail.co.jp»まで",
    "お問い合わせは«info@mail.jp»へ",
    "이메일 «kim@mail.kr»로 보내 주세요",
    "อีเมล«somchai@mail.co.th»ครับ",
    "Пишите на «ivan.petrov@mail.ru», жду",
    "«иван@почта.рф» пишите",
    "bei «müller@web.de» oder «info@bücher.de»!",
    "l'adresse d'«info@mail.fr» et l'«amie@mail.fr»",
    "اكتب إلى «ahmad@mail.com.sa» اليوم",
    "«राम@डाटा.भारत» पर लिखें",
    "«用户@例子.中国»",
    "«jane@xn--bcher-kva.example» «jane@mail.xn--p1ai»",
    "jane@@mail «b@mail.com»@c",
    "https://user:«pw@mail.com»/path",
    "«jane@mail.com»(work)",
    "«jane@mail.fr»4 rue du Port",  # where a line end was lost
]
NO_EMAILS = [
    *("user@localhost", "user@host", "@jane", "jane@", "@", "a@b", "a @mail.com", "a@ mail.com"),
    *("icon@2x.png", "logo@3x.webp", "lodash@4.17.21", "git@github.com:owner/name.git"),
    *("https://medium.com/@jane.doe", "@app.route('/x')", "X@W.dot(y) A@B.T", "jane.@mail.com"),
    *(
        "jane@mail..com",
        "jane@-mail.com",
        "jane@mail.c",
        "a@song.mp3",
        "5@3.14",
        "＠wide",
        "jane@.com",
    ),
    "x" * 65 + "@mail.com",
]


@pytest.mark.parametrize("text", EMAILS)
def test_addresses_are_found_in_any_language(text: str) -> None:
    plain, want = marked(text)
    assert found(Pii(), plain) == [("email", w) for w in want]


@pytest.mark.parametrize("text", NO_EMAILS)
def test_not_every_at_sign_is_an_email_address(text: str) -> None:
    assert found(Pii(), text) == []


IPS = [
    "from «8.8.8.8», «93.184.216.34» and «1.1.1.1».",
    "http://«8.8.4.4»:8080/ and «151.101.1.69»/24",
    "«66.249.66.1» - - [10/Oct/2000:13:55:36] GET",
    "用户IP：«114.114.114.114»登录",
    "адрес «77.88.8.8», порт 53",
    "«8.8.8.8»-«8.8.8.255»",
    "https://ipinfo.io/«8.8.8.8»",
    "::ffff:«8.8.8.8»",
    "«2a00:1450:4001:81b::200e» and [«2606:4700:4700::1111»]:443",
    "«2620:0:861:ed1a:0:0:0:1»",
]
NO_IPS = [
    *("127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.9.9", "0.0.0.0", "255.255.255.255"),
    *("192.0.2.7", "198.51.100.7", "203.0.113.7", "224.0.0.251", "169.254.1.1", "100.64.0.1"),
    *(
        "version 1.2.3.4",
        "Version: 1.2.3.4",
        "v1.2.3.4",
        "v. 1.2.3.4",
        "versions 1.2.3.4 and 1.2.3.5",
    ),
    *("版本 1.2.3.4", "версия 1.2.3.4", "versión 1.2.3.4", "Build 6.1.7.2", "Firefox 3.0.0.1"),
    *("Chrome/45.0.2.1", "lib-1.2.3.4.jar", "foo_1.2.3.4", "1.2.3.4.tar.gz", "1.2.3.4-rc1"),
    *("1.3.6.1.4.1", "256.1.2.3", "1.2.3.400", "01.42.68.53", "1.2.3", "a1.2.3.4", "1.2.3.4b"),
    *("Section 3.1.2.4", "§ 3.1.2.4", "1.2.3.4 Introduction\ntext", "# 1.2.3.4 Results"),
    *("€ 1.234.123.250", "1.234.123.250 EUR", "12:30:45", "dead::beef", "std::abc", "2001::a"),
    *("2001:db8::1", "fe80::1", "::1", "fd00::1:2:3", "2023:10:11", "20:1a:2b:3c:4d:5e", "ff02::1"),
    *("2001:0:1:2::3", "2002:808:808::1", "2a00:1450:4001:81b::200g"),
]


@pytest.mark.parametrize("text", IPS)
def test_public_ip_addresses_are_found(text: str) -> None:
    plain, want = marked(text)
    assert found(Pii(), plain) == [("ip", w) for w in want]


@pytest.mark.parametrize("text", NO_IPS)
def test_private_addresses_versions_and_sections_are_left(text: str) -> None:
    assert found(Pii(), text) == []


def test_addresses_are_public_as_in_pythons_ipaddress() -> None:
    draw = random.Random(0)
    exempt = [ipaddress.ip_network(n) for n in ("192.0.0.0/24", "192.88.99.0/24")]
    values = [draw.randrange(2**32) for _ in range(20_000)]
    edges = [
        int(ipaddress.ip_address(a)) for a in ("10.0.0.0", "172.32.0.0", "224.0.0.0", "198.20.0.0")
    ]
    for value in values + [e + d for e in edges for d in (-1, 0, 1)]:
        address = ipaddress.IPv4Address(value)
        if any(address in n for n in exempt):  # where Python's versions differ
            continue
        want = address.is_global and not address.is_multicast and not address.is_reserved
        assert is_public(str(address)) == want, address


@pytest.mark.parametrize("text", NUMBERS)
def test_phone_numbers_are_found(text: str) -> None:
    plain, want = marked(text)
    assert found(Pii(phones=True), plain) == [("phone", w) for w in want]


@pytest.mark.parametrize("text", OTHERS)
def test_other_numbers_are_no_phone_numbers(text: str) -> None:
    assert [f for f in found(Pii(phones=True), text) if f[0] == "phone"] == []


def test_phone_numbers_and_cards_are_left_unless_asked_for() -> None:
    text = "Call +1 212 555 0123 or pay with 4012 8888 8888 1881."
    assert found(Pii(), text) == []
    docs, _ = applied(Pii(), [text])
    assert docs.table["pii.phones"].to_pylist() == [None]
    assert docs.table["pii.emails"].to_pylist() == [0]


def test_cards_have_an_issuer_and_a_check_digit() -> None:
    cards = ["4012888888881881", "4012-8888-8888-1881", "3782 822463 10005", "6011000990139424"]
    for card in cards:
        assert found(ALL, f"card {card}, thanks") == [("credit_card", card)]
    for other in ("4012888888881882", "1234567812345670", "40128888888818811", "x4012888888881881"):
        assert found(Pii(credit_cards=True), f"card {other}") == []
    assert luhn("79927398713") and not luhn("79927398710")


def test_the_same_address_gets_the_same_replacement_within_a_document() -> None:
    text = "a@x.com b@x.com A@x.com c@x.com; 8.8.8.8 9.9.9.9 8.8.8.8"
    docs, _ = applied(Pii(), [text, "b@x.com"])
    first, second = EXAMPLES["email"]
    assert docs.text.to_pylist() == [
        f"{first} {second} {first} {first}; 192.0.2.1 198.51.100.1 192.0.2.1",
        first,  # every document begins anew, so that batches and workers do not matter
    ]


def test_tokens_are_those_of_dolma() -> None:
    text = "a@x.com 8.8.8.8 2a00:1450:4001:81b::200e +1 212 555 0123"
    docs, _ = applied(Pii(phones=True, replacement="token"), [text])
    assert docs.text.to_pylist() == [
        "|||EMAIL_ADDRESS||| |||IP_ADDRESS||| |||IP_ADDRESS||| |||PHONE_NUMBER|||"
    ]


def test_replacements_are_reserved_examples_and_stay_in_a_second_pass() -> None:
    for kind in ("ipv4", "ipv6"):
        assert not any(ipaddress.ip_address(a).is_global for a in EXAMPLES[kind])
    assert all(re.fullmatch(r".*@example\.(com|org)", a) for a in EXAMPLES["email"])
    assert all(re.fullmatch(r"\+1-202-555-01\d\d", a) for a in EXAMPLES["phone"])
    text = "a@x.com b@x.com 8.8.8.8 2a00:1450:4001:81b::200e +1 212 555 0123, 4012888888881881"
    for replacement in ("example", "token"):
        step = Pii(phones=True, credit_cards=True, replacement=replacement)
        once = applied(step, [text])[0].text.to_pylist()[0]
        assert found(step, once) == []


def test_columns_count_what_was_found() -> None:
    text = "a@x.com, b@x.com from 8.8.8.8, Tel. 555-0123, card 4012888888881881"
    docs, _ = applied(ALL, [text, None, ""])
    names = ("emails", "ips", "phones", "credit_cards")
    columns = [docs.table[f"pii.{n}"].to_pylist() for n in names]
    assert columns == [[2, 0, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0]]
    assert found(ALL, text)[0] == ("email", "a@x.com")


def test_too_many_drop_the_document_with_its_own_text() -> None:
    texts = [" ".join(f"n{i}@x.com" for i in range(n)) for n in (5, 6)]
    docs, rules = applied(Pii(max_found=5), texts)
    assert rules == [set(), {"too_much_pii"}]
    kept, rejected = docs.split()
    assert rejected["text"].to_pylist() == [texts[1]]
    assert (rejected["value"].to_pylist(), rejected["threshold"].to_pylist()) == ([6.0], [5.0])
    assert "x.com" not in kept["text"].to_pylist()[0]


def test_of_overlapping_findings_the_earlier_rule_then_the_first_position_wins() -> None:
    mail, later, number = (0, 4, 9, 1, "email"), (0, 7, 12, 1, "email"), (0, 2, 6, 4, "phone")
    assert _without_overlaps([later, mail]) == [mail]
    assert _without_overlaps([number, mail, later]) == [mail]
    assert _without_overlaps([mail, (0, 9, 12, 4, "phone")]) == [mail, (0, 9, 12, 4, "phone")]
    assert _without_overlaps([mail, (1, 5, 8, 4, "phone")]) == [mail, (1, 5, 8, 4, "phone")]


def test_a_number_within_an_address_belongs_to_the_address() -> None:
    assert found(ALL, "+12125550123@mail.com") == [("email", "12125550123@mail.com")]
    assert found(ALL, "http://8.8.8.8/ 8.8.8.8.8") == [("ip", "8.8.8.8")]


def test_documents_do_not_run_into_each_other() -> None:
    texts = ["jane@", "mail.com", "1.2.3", ".4", "+1 212 ", "555 0123", "8.8.8.8", "0"]
    docs, _ = applied(ALL, texts)
    assert docs.text.to_pylist() == [*texts[:6], "192.0.2.1", "0"]


def test_payloads_and_null_texts_stay_null() -> None:
    columns = {"id": ["a", "b"], "text": [None, "a@x.com"], "payload": [b"p", None]}
    docs = documents(columns, (*CORE, *PAYLOAD)).within("pii")
    assert Pii().apply(docs).text.to_pylist() == [None, EXAMPLES["email"][0]]


def test_empty_batch_junk_and_slices() -> None:
    assert len(applied(ALL, [])[0]) == 0
    assert applied(ALL, [*JUNK, None])[0].text.to_pylist() == [*JUNK, None]
    whole = documents({"text": ["a@x.com", "b", "8.8.8.8", None, "c"]})
    part = Documents(whole.table.slice(1, 3)).within("pii")
    assert Pii().apply(part).text.to_pylist() == ["b", "192.0.2.1", None]


PIECES = [
    *(
        "@",
        "＠",
        ".",
        "..",
        ":",
        "::",
        "-",
        "+",
        "(",
        ")",
        "/",
        " ",
        "\n",
        "\u00a0",
        "\u2011",
        "'",
        "’",
    ),
    *(
        "jane",
        "mail",
        "com",
        "jp",
        "例子",
        "мир",
        "müller",
        "рф",
        "中国",
        "8.8.8.8",
        "1.2.3.4",
        "255",
    ),
    *(
        "2a00",
        "1450",
        "4001",
        "81b",
        "200e",
        "+1",
        "+49",
        "00",
        "0",
        "1",
        "212",
        "555",
        "0123",
        "30",
    ),
    *(
        "Tel",
        "电话",
        "version",
        "4012888888881881",
        "4012 8888",
        "\x00",
        "🙂",
        "é",
        "\ufffd",
        "ﬀ",
        "\ud7ff",
    ),
    *("jane@mail.com", "2a00:1450:4001:81b::200e", "+1 212 555 0123", "(212) 555-0123"),
]
mixtures = st.lists(st.sampled_from(PIECES), max_size=16).map("".join) | st.text(max_size=60)


@settings(deadline=None, max_examples=500)
@given(st.lists(mixtures, max_size=5))
def test_the_recorded_spans_give_the_new_text(values: list[str]) -> None:
    docs, _ = applied(ALL, values)
    kept = docs.split()[0].to_pylist()
    for text, row in zip(values, kept, strict=True):
        edits = row.get("edits") or []
        assert replayed(text, edits) == row["text"]
        counted = sum(row[f"pii.{n}"] for n in ("emails", "ips", "phones", "credit_cards"))
        assert len(edits) == counted
        alone = applied(ALL, [text])[0].text.to_pylist()
        assert alone == [row["text"]], "a document's text does not depend on its batch"


def candidates(text: str) -> list[tuple[str, str]]:
    """What the kernel should take up, by regular expressions."""
    behind = r"[A-Za-z0-9_-]+\.|[A-Za-z0-9_-]*[\x80-\U0010ffff]"
    signs = rf"(?<=[A-Za-z0-9_+\x80-\U0010ffff-])@(?={behind})|＠"
    matches = [(m.start(), "email", m.group()) for m in re.finditer(signs, text)]
    quad = r"(?<![A-Za-z0-9_.])\d{1,3}(?:\.\d{1,3}){3}(?![A-Za-z0-9_]|\.\d)"
    matches += [(m.start(), "ipv4", m.group()) for m in re.finditer(quad, text, re.ASCII)]
    for m in re.finditer(r"(?<![A-Za-z0-9_:])[0-9a-fA-F]{4}:[0-9a-fA-F:]*", text, re.ASCII):
        behind = text[m.end() : m.end() + 1]
        word = behind.isascii() and (behind.isalnum() or behind == "_")
        if m.group().count(":") > 1 and not word and len(m.group()) <= 45:
            matches.append((m.start(), "ipv6", m.group()))
    return [(kind, what) for _, kind, what in sorted(matches)]


@settings(deadline=None, max_examples=500)
@given(mixtures)
def test_the_kernel_takes_up_every_candidate(text: str) -> None:
    data, offsets = text_buffers(pa.array([text], pa.large_string()))
    kinds = ("email", "ipv4", "ipv6")
    taken = [
        (kinds[k], bytes(data[a:z]).decode())
        for _, a, z, k in find_addresses(data, offsets).T.tolist()
    ]
    assert taken == candidates(text)


def test_nothing_is_found_in_novels() -> None:
    texts = []
    for path in sorted((SHARED / "corpora" / "longtext").glob("*-novels.jsonl.zst")):
        with path.open("rb") as file:
            lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8")
            texts += [json.loads(line)["text"] for line in lines]
    if not texts:
        pytest.skip("no shared texts")
    docs, _ = applied(ALL, texts)
    assert docs.edits == ()


@pytest.mark.slow  # test_runs.py has it of a run with other filters
def test_a_run_gives_the_same_bytes_for_any_number_of_workers(bench, make_pages) -> None:
    rows = make_pages(200)
    for i, row in enumerate(rows):
        row["text"] += f" Write to n{i}@mail.test from 8.8.{i}.8 or call +49 30 23125 {i:03}."
    source = bench.jsonl("in.jsonl", rows)
    steps = [
        {"url_filter": {"exclude": ["nowhere.test"]}},
        {"document_length": {"min": 5}},
        {"pii": {"phones": True}},
    ]
    for workers in (1, 2):
        read = {"partition_bytes": 8192, "batch_rows": 50}
        bench.run(steps, source, out=f"out-{workers}", workers=workers, read=read)
    assert bench.bytes_of("out-1") == bench.bytes_of("out-2")
    kept = bench.rows("out-1")
    assert len(kept) == 200 and all(len(r["edits"]) == 3 for r in kept)
    before = {r["id"]: r["text"] for r in rows}
    assert all(replayed(before[r["id"]], r["edits"]) == r["text"] for r in kept)


LONG = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" * 2
KEYS = [
    "key = '«AKIA" + "Q" * 16 + "»'",
    "«ghp_" + LONG[:36] + "» and «glpat-" + LONG[:20] + "»",
    "«xoxb-123-456-abcDEF»",
    "«https://hooks.slack.com/services/T0/B1/xyz»",
    "«sk_live_" + LONG[:24] + "»",
    "«SG." + LONG[:22] + "." + LONG[:43] + "»",
    "//registry.npmjs.org/:_authToken=«npm_" + LONG[:36] + "»",
    "AccountName=a;AccountKey=«" + LONG[:86] + "==»;Suffix=b",
    "«AIza" + LONG[:35] + "»",
    "«eyJhbGciOiJI.eyJzdWIiOiIx.abc-_»",
    "-----BEGIN RSA PRIVATE KEY-----«\n" + LONG[:64] + "\n»-----END RSA PRIVATE KEY-----",
]
NO_KEYS = [
    "AKIA" + "Q" * 17,
    "xAKIA" + "Q" * 16,
    "sha1: " + "a1b2" * 10,
    "ghp_short",
    "-----BEGIN PUBLIC KEY-----\n" + LONG[:64] + "\n-----END PUBLIC KEY-----",
    "-----BEGIN PRIVATE KEY-----\n<your key here>\n-----END PRIVATE KEY-----",
    "integrity=sha512-" + LONG[:86] + "==",
]


@pytest.mark.parametrize("text", KEYS)
def test_keys_whose_form_says_what_they_are_go(text: str) -> None:
    plain, keys = marked(text)
    assert found(Pii(keys=True), plain) == [("key", key) for key in keys]


@pytest.mark.parametrize("text", NO_KEYS)
def test_hashes_public_keys_and_placeholders_stay(text: str) -> None:
    assert found(Pii(keys=True), text) == []


def test_keys_are_not_looked_for_by_default_and_are_tags_as_in_starcoder() -> None:
    key = "ghp_" + LONG[:36]
    assert found(Pii(), key) == []
    docs, _ = applied(Pii(keys=True, replacement="tag"), [f"{key} jane@mail.com"])
    assert docs.text[0].as_py() == "<KEY> <EMAIL>"


def test_hostile_frames_of_keys_take_linear_time() -> None:
    hostile = ["-----BEGIN PRIVATE KEY-----" * 20_000, "sk-" * 50_000 + "T3BlbkFJ", "eyJ" * 50_000]
    assert applied(Pii(keys=True), hostile)[1] == [set()] * 3


@pytest.mark.parametrize("unit", ["1234 ", "(1) ", "1.", "+49 30 1234567 ", "4111 1111 1111 1111;"])
def test_numbers_without_end_take_linear_time(unit: str) -> None:
    def work(text: str) -> None:
        for judge in (phones_in, cards_in):
            judge("", text, "")

    assert grows_linearly(work, lambda n: unit * (n // len(unit)), 4_000)


JWT = re.compile(
    rb"(?<![A-Za-z0-9_])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+)?"
)
PARTS_OF_KEYS = [b"eyJ", b"eyJhbGciOiJ", b".", b"-", b"_", b"a", b" ", b"12345678"]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from(PARTS_OF_KEYS), max_size=16).map(b"".join))
def test_web_tokens_are_those_of_the_plain_pattern(text: bytes) -> None:
    ours = set(keys_in(text))
    assert {match.span() for match in JWT.finditer(text)} <= ours
    assert all(JWT.match(text, start) for start, _ in ours)


def test_keys_that_begin_again_and_again_take_linear_time() -> None:
    def keys(text: bytes) -> list[tuple[int, int]]:
        return list(keys_in(text))

    assert grows_linearly(keys, lambda n: b"-eyJ" * (n // 4) + b".eyJ", 4_000)
