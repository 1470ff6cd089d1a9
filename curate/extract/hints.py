"""What class, id, role and itemprop say of an element: parts of words, each standing for a kind.

One automaton (Aho and Corasick 1975) finds all of them in one pass over a value. Words are those of
content management systems and microformats, which are English whatever the page is; the few German
and French ones are common in themes made there.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from kernel_cache import njit

# "-" stands for the edge of a word: any byte that is no letter, the ends of a value, and the place
# between a small and a capital letter.
HINTS: dict[str, str] = {
    "body": "articlebody article-body article-content article-text articletext articlecontent "
    "entry-content entrycontent post-content postcontent post-body postbody story-body storybody "
    "storycontent blog-content single-content page-content post-text posttext news-text newstext "
    "body-text bodytext body-copy td-post-content mw-parser-output mw-content e-content text-body "
    "richtext rich-text rte-text -prose- wysiwyg copy-text article-main content-body contentbody "
    "articlesection -csc-textpic textblock text-block paragraph -rte- article--body",
    "content": "content main- article entry- -post- -story- -text -blog hentry -body inhalt "
    "contenu -news beitrag artikel",
    "comment": "comment disqus -reply respond kommentar -discuss -feedback guestbook -livefyre "
    "trackback pingback -reactions -leserbrief",
    "nav": "-nav navi menu breadcrumb pagin -pager -crumb -toc- -tabs- sitemap skip- -skip "
    "navbar toolbar -topbar -prev- -next- -jump",
    "side": "sidebar -aside -rail- widget secondary right-col rightcol left-col leftcol "
    "complementary -side- marginal randspalte -spalte- -gadget",
    "footer": "foot -bottom copyright colophon imprint impressum contentinfo -legal -credits-",
    "header": "header -banner masthead logo -branding -top- -hero-",
    "share": "share social sharing twitter facebook addthis shariff -follow whatsapp -bookmark "
    "-tweet instagram sharedaddy -like- -print- -email- addtoany -rating -voting -vote- -stars",
    "related": "related recommend teaser popular similar outbrain taboola -more- -also- "
    "mehr- -latest -recent trending -promo featured -archive -readmore -carousel -slider "
    "-list-item -card- -tile -jp-relatedposts crp_related -yarpp -next-article weitere "
    "-aehnlich -linklist",
    "advert": "-ad- -ads- advert sponsor anzeige werbung -dfp -promo -affiliate -adsense "
    "-banner-ad -google- shop- product- -price -cart- warenkorb",
    "cookie": "cookie consent gdpr -dsgvo privacy datenschutz -cmp- -notice-",
    "meta": "meta byline author -date- datum -tags- -tag- categor posted -info- publish -time- "
    "dateline -credit -views -views-count -autor vcard -bio- profile -stats timestamp "
    "entry-utility -source- -keywords -labels- rubrik",
    "form": "newsletter subscri login log-in signup sign-up search -form registr abonn paywall "
    "-abo- suche contact kontakt",
    "caption": "caption figure gallery bildunter -photo -image- -img- thumbnail -media- -video "
    "slideshow -wp-caption bildtext",
    "overlay": "hidden -hide- invisible modal popup overlay sr-only screen-reader tooltip "
    "visually-hidden lightbox dialog -print-only noprint no-print -alert",
    "title": "title headline -heading -head- -lead- -intro- -summary teasertext -deck- -standfirst "
    "-subtitle -kicker -dachzeile -vorspann -excerpt",
}
KINDS = tuple(HINTS)
BIT = {name: 1 << number for number, name in enumerate(KINDS)}
_LETTERS = 27  # a to z, and the edge of a word as 0


def automaton() -> tuple[np.ndarray, np.ndarray]:
    """(next: int16[states, 27], found: int64[states]): bits of all words that end in a state."""
    children: list[dict[int, int]] = [{}]
    found = [0]
    for kind, words in HINTS.items():
        for word in words.split():
            state = 0
            for letter in word:
                symbol = ord(letter) - 96 if letter.isalpha() else 0
                if symbol not in children[state]:
                    children[state][symbol] = len(children)
                    children.append({})
                    found.append(0)
                state = children[state][symbol]
            found[state] |= BIT[kind]
    table = np.zeros((len(children), _LETTERS), np.int16)
    fail = [0] * len(children)
    queue = deque([0])
    while queue:
        state = queue.popleft()
        for symbol in range(_LETTERS):
            child = children[state].get(symbol)
            back = int(table[fail[state], symbol]) if state else 0
            if child is None:
                table[state, symbol] = back
                continue
            table[state, symbol] = child
            fail[child] = back
            found[child] |= found[back]
            queue.append(child)
    return table, np.array(found, np.int64)


@njit(nogil=True)
def hints_of(data, a, z, table, found):
    """Bits of the kinds whose words stand in the value data[a:z]."""
    bits = np.int64(0)
    state = np.int64(table[0, 0])
    small = False
    for i in range(a, z):
        b = data[i]
        if 97 <= b <= 122:
            state = np.int64(table[state, b - 96])
            small = True
        elif 65 <= b <= 90:
            if small:
                state = np.int64(table[state, 0])
                bits |= found[state]
            state = np.int64(table[state, b - 64])
            small = False
        else:
            state = np.int64(table[state, 0])
            small = False
        bits |= found[state]
    return bits | found[table[state, 0]]
