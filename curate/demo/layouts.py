"""Page templates in the manner of several kinds of site, and pages without prose.

What surrounds an article (menus, banners, footers) never ends a line of five words with an end
mark, except comments: so that C4 leaves the article's paragraphs and nothing else, and the same
article in two layouts is the same text afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from curate.demo.texts import Article, Host
from curate.text.near_copies import drawn_number


@dataclass(frozen=True)
class Frame:
    """What a page shows beside its article."""

    host: Host
    charset: str = ""  # for a meta element; empty for none
    day: str = "2025-03-01"
    related: Sequence[str] = ()
    comments: Sequence[str] = ()
    nav: Sequence[str] = field(default=("Home", "Archive", "About", "Contact"))


def page(frame: Frame, lang: str, title: str, body: str) -> str:
    """A whole document around `body`."""
    meta = f'<meta charset="{frame.charset}">\n' if frame.charset else ""
    return (
        f'<!DOCTYPE html>\n<html lang="{lang}">\n<head>\n{meta}'
        f"<title>{escape(title)} | {escape(frame.host.name)}</title>\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="stylesheet" href="/static/site.css">\n'
        "<style>.hidden { display: none } nav li { float: left }</style>\n"
        "<script>window.queue = window.queue || []; function t(){queue.push(1)}</script>\n"
        f"</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def links(names: Sequence[str], kind: str = "") -> str:
    """A list of links, as in a menu."""
    items = "".join(f'<li><a href="/{slug(n)}">{escape(n)}</a></li>' for n in names)
    return f"<ul{f' class={kind!r}' if kind else ''}>{items}</ul>"


def slug(name: str) -> str:
    """A path segment for a name."""
    kept = "".join(c if c.isalnum() and c.isascii() else "-" for c in name.lower())
    return "-".join(filter(None, kept.split("-"))) or "p"


def paragraphs(article: Article) -> str:
    """The article's paragraphs as p elements."""
    return "\n".join(f"<p>{escape(p, quote=False)}</p>" for p in article.paragraphs)


def _header(frame: Frame) -> str:
    return (
        '<div id="cookie-banner" class="cookie-banner" role="dialog">'
        "<span>This site uses cookies to remember your reading list</span>"
        "<button>Accept all</button><button>Settings</button></div>\n"
        f'<header class="site-header"><a href="/" class="logo">{escape(frame.host.name)}</a>'
        f'<span class="tagline">{escape(frame.host.tagline)}</span>\n'
        f'<nav class="main-nav">{links(frame.nav)}</nav></header>'
    )


def _footer(frame: Frame) -> str:
    return (
        f'<footer class="site-footer"><p>&copy; 2025 {escape(frame.host.name)}</p>'
        f"{links(['Imprint', 'Privacy', 'Accessibility', 'RSS'])}</footer>"
    )


def _related(frame: Frame, heading: str) -> str:
    if not frame.related:
        return ""
    return f'<aside class="sidebar"><h3>{heading}</h3>{links(frame.related)}</aside>'


def _comments(frame: Frame) -> str:
    if not frame.comments:
        return ""
    items = "\n".join(
        f'<div class="comment"><span class="user">reader{40 + 7 * n}</span><p>{escape(c)}</p></div>'
        for n, c in enumerate(frame.comments)
    )
    return f'<section id="comments" class="comments"><h3>Comments</h3>\n{items}\n</section>'


def news(article: Article, frame: Frame) -> str:
    """A newspaper: standfirst, byline, picture, most read."""
    body = (
        f"{_header(frame)}\n<main>\n<article>\n<h1>{escape(article.title)}</h1>\n"
        '<p class="byline">By our correspondent, '
        f'<time datetime="{frame.day}">{frame.day}</time></p>\n'
        f'<figure><img src="/img/{article.id}.jpg" alt="">'
        "<figcaption>Photograph: archive</figcaption></figure>\n"
        f"{paragraphs(article)}\n"
        '<div class="share"><a href="#">Share</a> <a href="#">Print</a></div>\n'
        "</article>\n</main>\n"
        f"{_related(frame, 'Most read')}\n{_footer(frame)}"
    )
    return page(frame, article.lang, article.title, body)


def blog(article: Article, frame: Frame) -> str:
    """A blog: tags, neighbours, comments, a blogroll."""
    body = (
        f'{_header(frame)}\n<div id="content" class="content">\n<article class="post">\n'
        f'<h2 class="entry-title">{escape(article.title)}</h2>\n'
        f'<div class="post-meta">Posted on {frame.day}</div>\n'
        f'<div class="entry-content">\n{paragraphs(article)}\n</div>\n'
        f'<div class="tags">Tags: <a href="/t/1">{escape(article.section)}</a></div>\n</article>\n'
        '<nav class="post-navigation"><a href="#">Older post</a> <a href="#">Newer post</a></nav>\n'
        f"{_comments(frame)}\n</div>\n{_related(frame, 'Elsewhere')}\n{_footer(frame)}"
    )
    return page(frame, article.lang, article.title, body)


def magazine(article: Article, frame: Frame) -> str:
    """An older site laid out with divs and a left column."""
    body = (
        f'<div id="page">\n{_header(frame)}\n'
        f'<div class="left-column menu">{links(frame.nav)}</div>\n'
        f'<div id="main" class="main-column">\n<h1>{escape(article.title)}</h1>\n'
        f"{paragraphs(article)}\n</div>\n{_related(frame, 'In this issue')}\n"
        f"{_footer(frame)}\n</div>"
    )
    return page(frame, article.lang, article.title, body)


def plain(article: Article, frame: Frame) -> str:
    """Almost no layout at all."""
    body = (
        f'<p><a href="/">{escape(frame.host.name)}</a></p>\n<h1>{escape(article.title)}</h1>\n'
        f"{paragraphs(article)}\n<hr>\n<p>{escape(frame.host.tagline)}</p>"
    )
    return page(frame, article.lang, article.title, body)


def recipe(article: Article, frame: Frame) -> str:
    """A recipe: ingredients as a list, the method as prose."""
    items = "".join(f"<li>{escape(i)}</li>" for i in article.extra)
    box = f'<div class="ingredients"><h3>Ingredients</h3><ul>{items}</ul></div>\n' if items else ""
    body = (
        f"{_header(frame)}\n<main>\n<article class='recipe'>\n<h1>{escape(article.title)}</h1>\n"
        f'<p class="rating">Rated 4.6 of 5</p>\n{box}'
        f'<div class="method">\n{paragraphs(article)}\n</div>\n</article>\n'
        f"{_comments(frame)}\n</main>\n"
        f"{_related(frame, 'More like this')}\n{_footer(frame)}"
    )
    return page(frame, article.lang, article.title, body)


def docs(article: Article, frame: Frame) -> str:
    """Documentation: a table of contents, and code in a pre element after the first paragraph."""
    code = escape("\n".join(article.extra), quote=False)
    block = f'<pre class="highlight"><code>{code}</code></pre>\n' if code else ""
    first, *rest = (f"<p>{escape(p, quote=False)}</p>\n" for p in article.paragraphs)
    body = (
        f"{_header(frame)}\n<div class='sidebar toc'>{links(frame.related)}</div>\n"
        f"<main>\n<article>\n<h1>{escape(article.title)}</h1>\n{first}{block}{''.join(rest)}"
        f"</article>\n</main>\n{_footer(frame)}"
    )
    return page(frame, article.lang, article.title, body)


def encyclopedia(article: Article, frame: Frame) -> str:
    """An encyclopedia: [edit] after headings, [1] after sentences, a box of facts, references."""
    parts = []
    for n, text in enumerate(article.paragraphs):
        if n:
            parts.append(
                f"<h2><span>Section {n}</span>"
                '<span class="editsection">[<a href="#">edit</a>]</span></h2>'
            )
        marked = escape(text, quote=False).replace(
            ". ", f'.<sup class="reference"><a href="#n{n + 1}">[{n + 1}]</a></sup> ', 1
        )
        parts.append(f"<p>{marked}</p>")
    notes = "".join(
        f'<li id="n{n + 1}">Reader, vol. {n + 3}, p. {17 * n + 5}</li>'
        for n in range(len(article.paragraphs))
    )
    box = (
        f'<table class="infobox"><tr><th>Subject</th><td>{escape(article.section)}</td></tr>'
        f"<tr><th>Revised</th><td>{frame.day}</td></tr></table>"
    )
    body = (
        f'{_header(frame)}\n<main id="content">\n<h1>{escape(article.title)}</h1>\n{box}\n'
        + "\n".join(parts)
        + f'\n<h2>References</h2><ol class="references">{notes}</ol>\n</main>\n'
        f"{_related(frame, 'See also')}\n{_footer(frame)}"
    )
    return page(frame, article.lang, article.title, body)


def forum(article: Article, frame: Frame) -> str:
    """A forum thread: the article is the first post, the comments are the replies."""
    replies = "\n".join(
        f'<div class="post"><div class="author">member{31 + 5 * n}<br>Posts: {12 * n + 9}</div>'
        f'<div class="message"><p>{escape(c)}</p></div></div>'
        for n, c in enumerate(frame.comments)
    )
    body = (
        f"{_header(frame)}\n<main>\n<h1>{escape(article.title)}</h1>\n"
        f'<div class="post"><div class="author">member17<br>Posts: 214</div>\n'
        f'<div class="message">\n{paragraphs(article)}\n</div></div>\n{replies}\n'
        f'<div class="pager">Page 1 of 1</div>\n</main>\n{_footer(frame)}'
    )
    return page(frame, article.lang, article.title, body)


LAYOUTS: dict[str, Callable[[Article, Frame], str]] = {
    "news": news,
    "blog": blog,
    "magazine": magazine,
    "plain": plain,
    "recipe": recipe,
    "docs": docs,
    "encyclopedia": encyclopedia,
    "forum": forum,
}


def render(article: Article, frame: Frame, layout: str = "") -> str:
    """The article as an HTML document in its host's layout, or in the layout named."""
    return LAYOUTS[layout or frame.host.layout](article, frame)


# Pages without prose.


def menu(frame: Frame, topics: Sequence[str]) -> str:
    """A start page that is all navigation."""
    groups = "".join(
        f'<div class="box"><h3>{escape(t)}</h3>{links([f"{t} {w}" for w in _WORDS])}</div>'
        for t in topics
    )
    return page(frame, "en", "Start", f"<nav>{links(frame.nav)}</nav><main>{groups}</main>")


_WORDS = ("today", "this week", "archive", "most read", "by region", "feed")


def link_farm(frame: Frame, topics: Sequence[str], places: Sequence[str]) -> str:
    """Hundreds of links with the same three words."""
    names = [f"cheap {t.lower()} {p}" for t in topics for p in places]
    return page(frame, "en", "Links", f"<h1>Best links</h1>{links(names, 'links')}")


def search(frame: Frame, query: str, titles: Sequence[str]) -> str:
    """A page of search results with cut snippets."""
    hits = "".join(
        f'<div class="hit"><a href="/{slug(t)}">{escape(t)}</a>'
        f"<p>{escape(' '.join((t + ' and other pages about ' + query).split()[:9]))} ...</p></div>"
        for t in titles
    )
    body = (
        f'<form action="/search"><input name="q" value="{escape(query)}"><button>Go</button></form>'
        f"<p>{len(titles)} results for {escape(query)}</p><main>{hits}</main><p>1 2 3 Next</p>"
    )
    return page(frame, "en", f"Search: {query}", body)


def gallery(frame: Frame, places: Sequence[str]) -> str:
    """Pictures with captions."""
    shots = "".join(
        f'<figure><img src="/g/{slug(p)}.jpg" alt="{escape(p)}"><figcaption>{escape(p)}, view {n}'
        "</figcaption></figure>"
        for n, p in enumerate(places)
    )
    return page(frame, "en", "Gallery", f"<h1>Gallery</h1><main>{shots}</main>")


def timetable(frame: Frame, places: Sequence[str], line: int) -> str:
    """A table of departures."""
    hours = range(5, 23, 2)
    rows = "".join(
        f"<tr><th>{escape(p)}</th>"
        + "".join(f"<td>{h:02d}:{(drawn_number(line, h) + 9 * n) % 60:02d}</td>" for h in hours)
        + "</tr>"
        for n, p in enumerate(places)
    )
    body = f"<h1>Line {line}</h1><table><caption>Weekdays</caption>{rows}</table>"
    return page(frame, "en", f"Line {line}", body)


def category(frame: Frame, products: Sequence[Sequence[str]]) -> str:
    """A shop's list of products."""
    cards = "".join(
        f'<div class="card"><h4>{escape(n)}</h4><span class="price">&euro; {p}</span>'
        "<button>Add to basket</button></div>"
        for n, p in products
    )
    return page(frame, "en", "All products", f"<nav>{links(frame.nav)}</nav><main>{cards}</main>")


def product(frame: Frame, name: str, price: str) -> str:
    """One product with a table of its features."""
    weight = 100 + drawn_number(name) % 1900
    body = (
        f"<nav>{links(frame.nav)}</nav><main><h1>{escape(name)}</h1><p>&euro; {price}</p>"
        f"<table><tr><td>Weight</td><td>{weight} g</td></tr><tr><td>Guarantee</td><td>5 years</td>"
        f"</tr><tr><td>In stock</td><td>{drawn_number(name, 's') % 40}</td></tr></table>"
        "<p>Sent within two working days</p><button>Add to basket</button></main>"
    )
    return page(frame, "en", name, body)


def calendar(frame: Frame, titles: Sequence[str]) -> str:
    """A blog's archive: a title for each day."""
    names = [f"{n + 1:02d} March {t}" for n, t in enumerate(titles)]
    return page(frame, "en", "Archive", f"<h1>March 2025</h1>{links(names)}")


def sign_in(frame: Frame) -> str:
    """A form."""
    body = (
        '<h1>Sign in</h1><form method="post"><label>Name <input name="n"></label>'
        '<label>Password <input type="password" name="p"></label><button>Sign in</button></form>'
        f"{links(['Forgotten password', 'Create an account', 'Help'])}"
    )
    return page(frame, "en", "Sign in", body)


def all_fillers(
    frames: dict[str, Frame],
    titles: Sequence[str],
    topics: Sequence[str],
    places: Sequence[str],
    products: Sequence[Sequence[str]],
) -> Iterator[tuple[str, str, str]]:
    """Every filler page as (host, path, html)."""
    farm, shop = "www.bestlinks4u.example", "shop.kettleandcord.example"
    trains, blog = "www.slowtrains.example", "www.fieldnotes.example"
    yield farm, "", menu(frames[farm], topics)
    yield "www.thelanternpost.example", "", menu(frames["www.thelanternpost.example"], topics[:9])
    yield (
        "board.kitchentalk.example",
        "index.php",
        menu(frames["board.kitchentalk.example"], topics[4:8]),
    )
    for n in range(4):
        yield farm, f"links{n + 1}.htm", link_farm(frames[farm], topics[5 * n : 5 * n + 6], places)
    for query in ("bread", "river", "lamp"):
        host = "www.everydaymatters.example"
        results = titles[drawn_number(query) % 20 :][:10]
        yield host, f"search?q={query}", search(frames[host], query, results)
    yield trains, "gallery/1", gallery(frames[trains], places)
    yield trains, "gallery/2", gallery(frames[trains], places[::-1][:8])
    for line in (3, 7, 12):
        yield trains, f"times/{line}", timetable(frames[trains], places[line % 4 :], line)
    for n in range(3):
        yield shop, f"all?page={n + 1}", category(frames[shop], products[5 * n : 5 * n + 6])
    for name, price in products[:8]:
        yield shop, f"p/{slug(name)}", product(frames[shop], name, price)
    yield blog, "2025/03/", calendar(frames[blog], titles[:31])
    yield "app.cloudledger.example", "login", sign_in(frames["app.cloudledger.example"])
