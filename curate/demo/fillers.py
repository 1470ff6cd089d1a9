"""Pages without prose: menus, link lists, shops, search results, galleries, timetables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from curate.demo.layouts import Frame, links, page, slug
from curate.text.near_copies import number


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
        + "".join(f"<td>{h:02d}:{(number(line, h) + 9 * n) % 60:02d}</td>" for h in hours)
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
    weight = 100 + number(name) % 1900
    body = (
        f"<nav>{links(frame.nav)}</nav><main><h1>{escape(name)}</h1><p>&euro; {price}</p>"
        f"<table><tr><td>Weight</td><td>{weight} g</td></tr><tr><td>Guarantee</td><td>5 years</td>"
        f"</tr><tr><td>In stock</td><td>{number(name, 's') % 40}</td></tr></table>"
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
        results = titles[number(query) % 20 :][:10]
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
