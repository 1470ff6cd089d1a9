"""The plan of the demonstration web: its pages, and what a pipeline should do with each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle

from curate.demo.layouts import Frame, all_fillers, render, slug
from curate.demo.texts import (
    Article,
    Host,
    letter_soup,
    load_articles,
    load_hosts,
    load_words,
    near_duplicate,
    share_passage,
    word_salad,
)
from curate.text.near_copies import drawn_number, jaccard

SIMILARITIES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_NEAR_PER_LEVEL = 4
_CLUSTERS = (2, 2, 2, 2, 3, 3, 4, 4)  # documents with equal text, the original included
_PASSAGES = (1, 2, 1, 1, 2, 1, 1, 2)  # paragraphs shared
_RECRAWLS = 5
_NEAR_WORDS = 170  # a near duplicate needs room for small steps
_OLD = 120  # days between two crawls of a URL

# What should happen to a planted section (curate/demo/score.py says who may see to it).
_PLANTED = {
    "short": "dropped:quality",
    "js_required": "dropped:quality",
    "policy": "dropped:quality",
    "lorem": "dropped:quality",
    "curly": "dropped:quality",
    "pii": "replaced:pii",
    "casino": "dropped:url",
    "near_miss": "kept",
}
_JUNK = "dropped:quality"
# Blocked by the lists of curate/demo/demonstration.py: a domain with its subdomains, a word.
BLOCKED_DOMAINS = ("luckyspins.example",)
BLOCKED_WORDS = ("casino", "sex")  # the second must not block Essex or a sextet
_BLOCKED_HOSTS = {
    "casino-bonus": "www.townsquare.example",  # by the word in its address
    "casino-slots": "games.luckyspins.example",
    "essex-sextet": "www.townsquare.example",
}

# (charset, where it is declared) by language, taken in turn.
_CHARSETS: dict[str, tuple[tuple[str, str], ...]] = {
    "en": (
        ("utf-8", "header"),
        ("utf-8", "meta"),
        ("iso-8859-1", "header"),
        ("utf-8", "header"),
        ("windows-1252", "meta"),
        ("utf-8", "none"),
    ),
    "de": (("utf-8", "header"), ("iso-8859-1", "header"), ("windows-1252", "meta")),
    "fr": (
        ("windows-1252", "header"),
        ("utf-8", "meta"),
        ("windows-1252", "none"),
        ("iso-8859-1", "meta"),
    ),
    "es": (("utf-8", "none"), ("iso-8859-1", "header")),
    "th": (("utf-8", "header"), ("windows-874", "header"), ("windows-874", "meta")),
    "zh": (("utf-8", "meta"), ("gb18030", "header"), ("gb18030", "meta"), ("gb18030", "none")),
    "ja": (
        ("shift_jis", "header"),
        ("utf-8", "header"),
        ("shift_jis", "meta"),
        ("shift_jis", "none"),
    ),
    "ru": (("koi8-r", "header"), ("utf-8", "meta"), ("koi8-r", "meta"), ("koi8-r", "none")),
}
_CODECS = {"windows-874": "cp874"}  # names that HTTP uses and Python does not know
_CODINGS = ("", "", "gzip", "", "chunked", "", "gzip chunked", "", "gzip")


def codec(charset: str) -> str:
    """Python's name of a charset as HTTP spells it."""
    return _CODECS.get(charset.lower(), charset)


@dataclass(frozen=True)
class Page:
    """One HTML document, before it has an address in time."""

    key: str
    url: str
    html: str
    lang: str
    kind: str
    expect: str
    text: str = ""  # the article's own text; empty for pages without one
    charset: str = "utf-8"
    declared: str = "header"
    coding: str = ""
    source: str = ""  # key of the original
    cluster: str = ""
    similarity: float | None = None
    planted: Mapping[str, object] = field(default_factory=dict)
    age: int = 0  # days before the crawl


class _Site:
    """Hosts by section, and what is taken in turn while pages are laid out."""

    def __init__(self, hosts: Sequence[Host], comments: Sequence[str]) -> None:
        self.hosts = {h.host: h for h in hosts}
        sections = sorted({s for h in hosts for s in h.sections})
        self._turns = {s: cycle([h for h in hosts if s in h.sections]) for s in sections}
        self._charsets = {lang: cycle(choices) for lang, choices in _CHARSETS.items()}
        self._codings = cycle(_CODINGS)
        self._comments = comments
        self._titles: list[str] = []

    def host_for(self, section: str) -> Host:
        """The next host that carries a section."""
        return next(self._turns[section])

    def lay_out(
        self,
        article: Article,
        host: Host,
        kind: str,
        expect: str,
        *,
        key: str = "",
        layout: str = "",
        quiet: bool = True,
        **more: object,
    ) -> Page:
        """The article as a page of a host; without readers' comments where `quiet`."""
        layout = layout or (host.layout if host.layout != "shop" else "plain")
        charset, declared = self._charset(article)
        comments = () if quiet else self._some_comments(article.id)
        frame = Frame(
            host,
            charset if declared == "meta" else "",
            f"2025-02-{1 + drawn_number(article.id) % 28:02d}",
            tuple(self._titles[-6:]),
            comments,
        )
        self._titles.append(article.title)
        page = Page(
            key=key or article.id,
            url=address(article, host, layout),
            html=render(article, frame, layout),
            lang=article.lang,
            kind=kind,
            expect=expect,
            text=article.text,
            charset=charset,
            declared=declared,
            coding=next(self._codings),
        )
        return replace(page, **more)  # type: ignore[arg-type]

    def _charset(self, article: Article) -> tuple[str, str]:
        if article.lang not in self._charsets:
            return "utf-8", "header"
        charset, declared = next(self._charsets[article.lang])
        try:
            article.text.encode(codec(charset))
        except UnicodeEncodeError:
            return "utf-8", "header"
        return charset, declared

    def _some_comments(self, key: str) -> tuple[str, ...]:
        count = drawn_number(key, "comments") % 5
        pool = sorted(self._comments, key=lambda c: drawn_number(key, c))
        return tuple(pool[:count])


def address(article: Article, host: Host, layout: str) -> str:
    """A URL in the manner of the layout."""
    name, n = slug(article.id), drawn_number(article.id) % 9000 + 1000
    path = {
        "news": f"{slug(article.section)}/{name}-{n}",
        "blog": f"2025/02/{name}/",
        "recipe": f"recipes/{name}",
        "docs": f"guide/{name}.html",
        "encyclopedia": f"wiki/{name.replace('-', '_')}",
        "forum": f"viewtopic.php?t={n}",
    }.get(layout, f"{slug(article.section)}/{name}.html")
    scheme = "http" if layout in ("plain", "magazine") else "https"
    return f"{scheme}://{host.host}/{path}"


def plan_pages() -> list[Page]:
    """Every HTML document, originals before their copies; the same on every call."""
    articles = load_articles()
    hosts = load_hosts()
    site = _Site(hosts, load_words("comments"))
    english = [a for a in articles if a.lang == "en" and a.section not in _PLANTED]
    by_address = [a for a in articles if a.section in ("casino", "near_miss")]
    blocked = {a.id for a in by_address}
    pages = [
        *_english(site, english),
        *_foreign(site, [a for a in articles if a.lang != "en"]),
        *_planted(site, [a for a in articles if a.section in _PLANTED and a.id not in blocked]),
        *_gibberish(site, english),
        *_fillers(hosts, english),
        *_by_address(site, by_address),
    ]
    keys = [p.key for p in pages]
    if len(set(keys)) != len(keys):
        raise ValueError("two pages of the demonstration web have the same key")
    return pages


def _english(site: _Site, articles: Sequence[Article]) -> Iterator[Page]:
    drawn = iter(sorted(articles, key=lambda a: drawn_number(a.id, "draw")))
    mixed = [next(drawn) for _ in _PASSAGES]
    donors = [next(drawn) for _ in _PASSAGES]
    copied = [next(drawn) for _ in _CLUSTERS]
    recrawled = [next(drawn) for _ in range(_RECRAWLS)]
    rest = list(drawn)
    roomy = [a for a in rest if len(a.text.split()) >= _NEAR_WORDS]
    near = roomy[: _NEAR_PER_LEVEL * len(SIMILARITIES)]

    clusters = {a.id: f"text-{n + 1:02d}" for n, a in enumerate(copied)}
    clusters |= {a.id: f"url-{n + 1:02d}" for n, a in enumerate(recrawled)}
    clusters |= {a.id: f"near-{n + 1:02d}" for n, a in enumerate(near)}
    clusters |= {a.id: f"passage-{n + 1:02d}" for n, a in enumerate(donors)}
    shared_with = dict(zip((a.id for a in mixed), donors, strict=True))
    originals: dict[str, Page] = {}
    for article in articles:
        if article.id in shared_with:
            continue
        host = site.host_for(article.section)
        cluster = clusters.get(article.id, "")
        page = site.lay_out(article, host, "clean", "kept", quiet=bool(cluster), cluster=cluster)
        originals[article.id] = page
        yield page

    for article, donor, count in zip(mixed, donors, _PASSAGES, strict=True):
        both, shared = share_passage(article, donor, count)
        yield site.lay_out(
            both,
            site.host_for(article.section),
            "substring_dup",
            "cut:substring",
            source=donor.id,
            cluster=clusters[donor.id],
            planted={
                "passage": shared.passage,
                "chars": shared.chars,
                "bytes": shared.bytes,
                "words": shared.words,
            },
        )
    yield from _exact(site, copied, clusters)
    yield from _near(site, near, clusters)
    for article in recrawled:
        first = replace(article, paragraphs=(*article.paragraphs[:2], _UNFINISHED))
        yield site.lay_out(
            first,
            site.hosts[originals[article.id].url.split("/")[2]],
            "url_dup",
            "dropped:exact_url",
            key=f"{article.id}/old",
            source=article.id,
            cluster=clusters[article.id],
            age=_OLD + drawn_number(article.id) % 30,
        )


_UNFINISHED = "The rest of this page is still being written and will follow within a few weeks."


def _exact(site: _Site, copied: Sequence[Article], clusters: Mapping[str, str]) -> Iterator[Page]:
    for article, size in zip(copied, _CLUSTERS, strict=True):
        for n in range(1, size):
            yield site.lay_out(
                article,
                site.host_for("mirror"),
                "exact_dup",
                "dropped:exact_text",
                key=f"{article.id}/copy{n}",
                source=article.id,
                cluster=clusters[article.id],
            )


def _near(site: _Site, near: Sequence[Article], clusters: Mapping[str, str]) -> Iterator[Page]:
    synonyms, addenda = load_words("synonyms"), load_words("addenda")
    for article, target in zip(near, cycle(SIMILARITIES)):
        copy = near_duplicate(article, target, synonyms, addenda)
        yield site.lay_out(
            copy,
            site.host_for("mirror"),
            "near_dup",
            "dropped:near",
            key=f"{article.id}/near",
            source=article.id,
            cluster=clusters[article.id],
            similarity=target,
            planted={"jaccard": round(jaccard(article.text, copy.text), 4)},
        )


def _foreign(site: _Site, articles: Sequence[Article]) -> Iterator[Page]:
    for article in articles:
        host = site.host_for(article.lang)
        yield site.lay_out(article, host, "wrong_language", "dropped:language")


def _planted(site: _Site, articles: Sequence[Article]) -> Iterator[Page]:
    layouts = {"curly": "docs", "js_required": "plain"}
    hosts = cycle(
        site.hosts[name]
        for name in (
            "www.everydaymatters.example",
            "app.cloudledger.example",
            "welltrodden.example",
            "forum.mendbench.example",
            "www.harbourmuseum.example",
        )
    )
    for article in articles:
        yield site.lay_out(
            article,
            next(hosts),
            article.section,
            _PLANTED[article.section],
            layout=layouts.get(article.section, ""),
            planted={"pii": [dict(p) for p in article.planted]} if article.planted else {},
        )


def _gibberish(site: _Site, articles: Sequence[Article]) -> Iterator[Page]:
    for n in range(10):
        key, marks = f"gibberish-{n}", n % 2 == 1
        lines = letter_soup(key, 7, marks) if n < 5 else word_salad(key, articles, 7, marks)
        article = Article(key, "gibberish", "en", lines[0][:30], lines)
        yield site.lay_out(article, site.hosts["www.bestlinks4u.example"], "gibberish", _JUNK)


def _by_address(site: _Site, articles: Sequence[Article]) -> Iterator[Page]:
    for article in articles:
        host = site.hosts[_BLOCKED_HOSTS.get(article.id, "www.luckyspins.example")]
        expect = _PLANTED[article.section]
        kind = "clean" if expect == "kept" else "blocked_url"
        yield site.lay_out(article, host, kind, expect)


def _fillers(hosts: Sequence[Host], articles: Sequence[Article]) -> Iterator[Page]:
    frames = {h.host: Frame(h) for h in hosts}
    pages = all_fillers(
        frames,
        [a.title for a in articles],
        load_words("topics"),
        load_words("places"),
        load_words("products"),
    )
    for host, path, html in pages:
        url = f"https://{host}/{path}"
        yield Page(url, url, html, "en", "boilerplate", _JUNK)
