"""robots.txt by RFC 9309, compared with another parser."""

from __future__ import annotations

from urllib.robotparser import RobotFileParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protego import Protego

from curate.filters.opt_out_robots import (
    MOST_BYTES,
    forbidding,
    groups_of,
    path_of,
    policy_of,
    signals_of,
)


def forbids(text: str | bytes, url: str, agent: str = "GPTBot") -> bool:
    data = text.encode() if isinstance(text, str) else text
    return forbidding(policy_of(data, [agent]), path_of(url)) is not None


def rules(*lines: str) -> str:
    return "User-agent: GPTBot\n" + "\n".join(lines)


@pytest.mark.parametrize(
    ("lines", "path", "forbidden"),
    [
        (["Disallow: /fish"], "/fish.html", True),
        (["Disallow: /fish"], "/Fish.asp", False),
        (["Disallow: /fish"], "/catfish", False),
        (["Disallow: /fish/"], "/fish", False),
        (["Disallow: /*.php"], "/folder/any.php.file.html", True),
        (["Disallow: /*.php$"], "/filename.php?parameters", False),
        (["Disallow: /*.php$"], "/a.php/b.php", True),
        (["Disallow: /fish*.php"], "/fishheads/catfish.php?p", True),
        (["Disallow: /a*b*c$"], "/abc", True),
        (["Disallow: /a*ab$"], "/ab", False),
        (["Disallow: /p", "Allow: /page"], "/page", False),
        (["Disallow: /page", "Allow: /page"], "/page", False),  # of equals the one that allows
        (["Disallow: /page*", "Allow: /page"], "/page", True),
        (["Disallow: /", "Allow: /$"], "/", False),
        (["Disallow: /", "Allow: /$"], "/page", True),
        (["Disallow:"], "/", False),
        (["Disallow: /"], "/robots.txt", False),
        (["Disallow: foo"], "/foo", False),
        (["Disallow: *foo"], "/foo", True),
        (["Disallow: /a?b"], "/a?b=1", True),
        (["Disallow: /x # all of it"], "/xy", True),
        # Percent-encoding: the table of RFC 9309, 2.2.2, and special characters, 2.2.3.
        (["Disallow: /foo/bar/ツ"], "/foo/bar/%E3%83%84", True),
        (["Disallow: /foo/bar/%E3%83%84"], "/foo/bar/ツ", True),
        (["Disallow: /foo/bar/%62%61%7A"], "/foo/bar/baz", True),
        (["Disallow: /foo/bar/baz"], "/foo/bar/%62%61%7a", True),
        (["Disallow: /%7e%7e", "Allow: /~~a"], "/~~a", False),
        (["Disallow: /a%2fb"], "/a%2Fb", True),
        (["Disallow: /a%2Fb"], "/a/b", False),
        (["Disallow: /file-%2A.html"], "/file-*.html", True),
        (["Disallow: /file-%2A.html"], "/file-x.html", False),
        (["Disallow: /foo-%24"], "/foo-$", True),
        (["Disallow: /a$b"], "/a$b", True),
        (["Disallow: /a b"], "/a%20b", True),
        (["Disallow: /100%"], "/100%", True),
    ],
)
def test_the_longest_match_decides(lines: list[str], path: str, forbidden: bool) -> None:
    assert forbids(rules(*lines), f"https://x.test{path}#part") is forbidden


@pytest.mark.parametrize(
    ("text", "agent", "forbidden"),
    [
        ("User-agent: *\nDisallow: /", "GPTBot", True),
        ("User-agent: *\nDisallow: /\nUser-agent: gptbot\nAllow: /", "GPTBot", False),
        ("User-agent: GPTBot\nUser-agent: CCBot\nDisallow: /", "ccbot", True),
        ("User-agent: GPTBot\nDisallow: /a\n\nUser-agent: GPTBot\nDisallow: /p", "GPTBot", True),
        ("User-agent: GPTBot\n\nSitemap: x\n\nDisallow: /", "GPTBot", True),
        ("User-agent: GPTBot\nDisallow:\nUser-agent: *\nDisallow: /", "GPTBot", False),
        ("User-agent: GPTBot\nUser-agent: *", "GPTBot", False),
        ("User-agent: GPTBot/1.1\nDisallow: /", "GPTBot", True),
        ("User-agent: AI2Bot\nDisallow: /", "AI2Bot", True),
        ("User-agent: Bot\nDisallow: /", "GPTBot", False),
        ("Disallow: /", "GPTBot", False),
        ("\ufeffuser-agent : GPTBot\r\rdisallow : /\r", "GPTBot", True),
        ("Useragent: GPTBot\nDissallow: /", "GPTBot", True),
        ("<html><body>User-agent: *<br>Disallow: /</body></html>", "GPTBot", False),
        ("", "GPTBot", False),
        ("\0\xff:\n:::\nUser-agent:\nDisallow: /", "GPTBot", False),
    ],
)
def test_an_agent_goes_by_its_own_groups_else_by_everyones(
    text: str, agent: str, forbidden: bool
) -> None:
    assert forbids(text, "https://x.test/page", agent) is forbidden


def test_text_after_500_kib_is_ignored_and_no_rule_is_cut_in_half() -> None:
    head = b"User-agent: *\nAllow: /private/open\n"
    filler = b"#" * (MOST_BYTES - len(head) - 1 - 12) + b"\n"
    cut = head + filler + b"Disallow: /private/of/all"
    assert len(head + filler) == MOST_BYTES - 12
    assert not forbids(cut, "https://x.test/p")
    assert not forbids(cut, "https://x.test/private/of/all")
    whole = head + filler + b"Disallow: /\n" + b"Disallow: /x\n"
    assert forbids(whole, "https://x.test/p")


def test_invalid_bytes_are_compared_as_they_are() -> None:
    assert forbids(b"User-agent: *\nDisallow: /\xff\xfe", "https://x.test/%FF%fe/a")


PIECES = st.lists(st.sampled_from(["/", "a", "b", "*", "%61", "~"]), max_size=6).map("".join)
PATTERNS = st.tuples(PIECES, st.sampled_from(["", "", "$"])).map(lambda p: f"/{p[0]}{p[1]}")
PATHS = st.lists(st.sampled_from("/ab~"), max_size=8).map(lambda p: "/" + "".join(p))
RULES = st.tuples(st.sampled_from(["Allow", "Disallow"]), PATTERNS).map(": ".join)
GROUPS = st.tuples(
    st.lists(st.sampled_from(["GPTBot", "CCBot", "*"]), min_size=1, max_size=2),
    st.lists(RULES, min_size=1, max_size=4),
)
FILES = st.lists(GROUPS, max_size=4).map(
    lambda groups: "\n".join(
        line for names, lines in groups for line in (*(f"User-agent: {n}" for n in names), *lines)
    )
)


@settings(max_examples=400)
@given(FILES, PATHS, st.sampled_from(["GPTBot", "CCBot", "ClaudeBot"]))
def test_any_file_forbids_what_protego_forbids(text: str, path: str, agent: str) -> None:
    url = f"https://x.test{path}"
    assert forbids(text, url, agent) is not Protego.parse(text).can_fetch(url, agent)


def test_the_standard_librarys_parser_is_of_an_older_standard() -> None:
    """Why it is not used: the first rule decides, not the longest, and `*` is a letter."""
    for lines, path in ((["Allow: /", "Disallow: /p"], "/p"), (["Disallow: /*.php"], "/a.php")):
        old = RobotFileParser()
        old.parse(rules(*lines).splitlines())
        assert old.can_fetch("GPTBot", f"https://x.test{path}")
        assert forbids(rules(*lines), f"https://x.test{path}")


@given(st.binary(max_size=300))
def test_no_bytes_are_too_odd(data: bytes) -> None:
    groups_of(data)
    forbidding(policy_of(b"User-agent: *\nDisallow: " + data, ["a"]), path_of("https://x.test/a"))


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://x.test", "/"),
        ("https://x.test?q=/a", "/?q=/a"),
        ("https://x.test/a?b#c", "/a?b"),
        ("https://x.test/ä", "/ä"),
    ],
)
def test_a_path_has_its_query_and_no_fragment(url: str, path: str) -> None:
    assert path_of(url) == path


SIGNALS = {
    "denied to all": ("User-agent: *\nContent-Signal: search=yes, ai-train=no\nAllow: /", "*"),
    "granted": ("User-agent: *\nContent-Signal: search=no, ai-train=yes", None),
    "not named": ("User-agent: *\nContent-Signal: ai-input=no", None),
    "odd spelling": ("USER-AGENT:*\ncontent-signals :AI-Train = NO # why", "*"),
    "before all groups": ("Content-Signal: ai-train=no\nUser-agent: GPTBot\nAllow: /", "*"),
    "own group lifts it": (
        "User-agent: *\nContent-Signal: ai-train=no\nUser-agent: GPTBot\nDisallow: /x\n"
        "User-agent: CCBot\nAllow: /",
        None,
    ),
    "own group of one": ("User-agent: ccbot\nContent-Signal: ai-train=no", "CCBot"),
    "no before yes": (
        "User-agent: *\nContent-Signal: ai-train=yes\nContent-Signal: ai-train=no",
        "*",
    ),
    "after the rules": ("User-agent: *\nDisallow:\nContent-Signal: ai-train=no", "*"),
    "another value": ("User-agent: *\nContent-Signal: ai-train=maybe, =no, no", None),
    "no bytes to read": ("Content-Signal: \u00e9\ud7ff=no", None),
}


@pytest.mark.parametrize("text,who", SIGNALS.values(), ids=SIGNALS)
def test_a_signal_speaks_to_agents_as_rules_do(text: str, who: str | None) -> None:
    signal = signals_of(text.encode(), ("GPTBot", "CCBot"), ("ai-train",))
    assert (signal or "").partition(":")[0] == (who or "")


def test_names_of_uses_and_agents_are_compared_in_any_case() -> None:
    text = b"User-Agent: gptBOT\nCONTENT-SIGNAL: Ai-Train=NO"
    assert signals_of(text, ("GPTbot",), ("AI-train",)) == "GPTbot: Content-Signal: Ai-Train=NO"
    assert policy_of(b"USER-AGENT: GPTBOT\nDISALLOW: /a", ["gptBot"]) == (
        ("gptBot", ("Disallow: /a",)),
    )  # fmt: skip


def test_a_signal_is_no_rule_and_ends_no_list_of_agents() -> None:
    text = b"User-agent: a\nContent-Signal: ai-train=no\nUser-agent: b\nDisallow: /"
    ((agent, rules),) = policy_of(text, ["a"])
    assert (agent, rules[0]) == ("a", "Disallow: /")


def test_an_allowed_index_page_does_not_allow_its_folder() -> None:
    text = rules("Disallow: /", "Allow: /index.html")
    assert forbids(text, "https://x.test/") and not forbids(text, "https://x.test/index.html?a")
