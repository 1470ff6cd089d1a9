"""Read a tag's attributes, and the hints that class, id, role and itemprop give on its element.

A hint is a word, or part of one, that points to one kind of content. One automaton (Aho and
Corasick 1975) matches all hints in one pass over an attribute's value. The hints are words of
content management systems and microformats, which are English on pages of any language, and a few
words common in German and French themes.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from curate.extract.tags import ATTR, look_up
from llmcurate.base.kernels import njit

# "-" matches the edge of a word: a byte that is not a letter, either end of a value, or the change
# from a lower-case to an upper-case letter.
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
    "cookie": "cookie consent gdpr -dsgvo privacy datenschutz -cmp- -notice- onetrust cybot didomi "
    "usercentrics trustarc truste- borlabs cmplz -cky- klaro iubenda axeptio osano tarteaucitron",
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
    "noscript": "",  # set by the element, as is "unseen"
    "unseen": "",
}
KINDS = tuple(HINTS)
BIT = {name: 1 << number for number, name in enumerate(KINDS)}
_LETTERS = 27  # a to z are 1 to 26, the edge of a word is 0


def automaton() -> tuple[np.ndarray, np.ndarray]:
    """Return (next: int16[states, 27], bits: int64[states]), the automaton that finds the words of
    HINTS in attributes such as class. `next` is the state after each letter. `bits` are the kinds
    of content, such as `nav`, that the words found in a state hint at, one bit each."""
    children: list[dict[int, int]] = [{}]
    bits = [0]
    for kind, words in HINTS.items():
        for word in words.split():
            state = 0
            for letter in word:
                symbol = ord(letter) - 96 if letter.isalpha() else 0
                if symbol not in children[state]:
                    children[state][symbol] = len(children)
                    children.append({})
                    bits.append(0)
                state = children[state][symbol]
            bits[state] |= BIT[kind]
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
            bits[child] |= bits[back]
            queue.append(child)
    return table, np.array(bits, np.int64)


@njit(nogil=True)
def hints_of(data, a, z, table, state_bits):
    """Return the kinds of content that words of the value data[a:z] hint at, one bit per kind."""
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
                bits |= state_bits[state]
            state = np.int64(table[state, b - 64])
            small = False
        else:
            state = np.int64(table[state, 0])
            small = False
        bits |= state_bits[state]
    return bits | state_bits[table[state, 0]]


SPANS = 2 * (len(ATTR) + 1)  # length of `spans`: the value of attribute k starts at its item 2k
_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_CLASS, _ID, _ROLE, _ITEMPROP = (ATTR[n] for n in ("class", "id", "role", "itemprop"))
_STYLE, _HIDDEN, _ARIA = ATTR["style"], ATTR["hidden"], ATTR["aria-hidden"]
_MODE = ATTR["shadowrootmode"]
_OPEN, _CLOSED = (np.frombuffer(word, np.uint8) for word in (b"open", b"closed"))
_OVERLAY = BIT["overlay"]
_SPACE = np.zeros(256, np.bool_)
_SPACE[[9, 10, 12, 13, 32]] = True
_NONE = np.frombuffer(b"display:none", np.uint8)
_INVISIBLE = np.frombuffer(b"visibility:hidden", np.uint8)


@njit(nogil=True)
def same(data, a, z, word):
    """Return True if data[a:z] in lower case equals `word`, given as uint8[]."""
    if z - a != len(word):
        return False
    for k in range(len(word)):
        b = data[a + k]
        if 65 <= b <= 90:
            b += 32
        if b != word[k]:
            return False
    return True


def packed(words: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (bytes, ends) for space-separated lower-case words. `bytes` (uint8[]) has the words
    joined; word k is bytes[ends[k]:ends[k + 1]] (`ends`: int64[words + 1])."""
    names = words.split()
    return np.frombuffer("".join(names).encode(), np.uint8), np.cumsum([0, *map(len, names)])


@njit(nogil=True)
def starts_with(data, a, z, word):
    """Return True if data[a:z] in lower case starts with `word`, given as uint8[]."""
    return z - a >= len(word) and same(data, a, a + len(word), word)


@njit(nogil=True)
def has_word(data, a, z, words, ends):
    """Return True if data[a:z], split at white space, contains one of the words stored in `words`
    and `ends`. The function `packed` makes these two arrays."""
    while a < z:
        e = a
        while e < z and not _SPACE[data[e]]:
            e += 1
        for k in range(len(ends) - 1):
            if same(data, a, e, words[ends[k] : ends[k + 1]]):
                return True
        a = e + 1
    return False


# Values of `class` that mark a column of line numbers next to code.
_NUMBERS, _NUMBER_ENDS = packed(
    "gutter linenos lineno linenumber line-number linenodiv rouge-gutter blob-num hljs-ln-numbers "
    "crayon-nums ln lnt react-syntax-highlighter-line-number"
)


@njit(nogil=True)
def numbers_lines(data, seen, spans):
    a, z = spans[2 * _CLASS], spans[2 * _CLASS + 1]
    return seen >> _CLASS & 1 and has_word(data, a, z, _NUMBERS, _NUMBER_ENDS)


@njit(nogil=True)
def _declares(data, a, z, word):
    for i in range(a, z - len(word) + 1):
        if (data[i] | 32) != word[0]:
            continue
        j, k = i, 0
        while j < z and k < len(word):
            b = data[j]
            if not _SPACE[b]:
                if (b | 32 if 65 <= b <= 90 else b) != word[k]:
                    break
                k += 1
            elif j - i > 64:  # no real style has that many blanks, and they cost time
                break
            j += 1
        if k == len(word):
            return True
    return False


@njit(nogil=True)
def read_name(data, i, z):
    """Return (the index after the tag name that starts at i, the 64-bit hash of the name)."""
    key = _BASIS
    while i < z:
        b = data[i]
        if _SPACE[b] or b == 47 or b == 62:
            break
        if 65 <= b <= 90:
            b += 32
        key = (key ^ np.uint64(b)) * _PRIME
        i += 1
    return i, key


@njit(nogil=True)
def read_attributes(data, i, z, spans, keys, values, states, state_bits):
    """Read the attributes from data[i] to the tag's end, and write the start and end of each value
    to `spans` (int64[SPANS]). Return (index after the tag, or -1 if the page ends inside it; the
    attributes, one bit each; the kinds of content, such as `nav`, that the values hint at, one bit
    each; True if the element is hidden)."""
    seen, hints, hidden = np.int64(0), np.int64(0), False
    while True:
        while i < z and (_SPACE[data[i]] or data[i] == 47):
            i += 1
        if i >= z:
            return -1, seen, hints, hidden
        if data[i] == 62:
            return i + 1, seen, hints, hidden
        key = _BASIS
        first = i
        while i < z:
            b = data[i]
            # A "=" at the start of a name is part of the name.
            if _SPACE[b] or b == 47 or b == 62 or (b == 61 and i > first):
                break
            if 65 <= b <= 90:
                b += 32
            key = (key ^ np.uint64(b)) * _PRIME
            i += 1
        while i < z and _SPACE[data[i]]:
            i += 1
        a = e = i
        if i < z and data[i] == 61:
            i += 1
            while i < z and _SPACE[data[i]]:
                i += 1
            if i >= z:
                return -1, seen, hints, hidden
            quote = data[i]
            if quote == 34 or quote == 39:
                i += 1
                a = i
                while i < z and data[i] != quote:
                    i += 1
                if i >= z:
                    return -1, seen, hints, hidden
                e = i
                i += 1
            else:
                a = i
                while i < z and not _SPACE[data[i]] and data[i] != 62:
                    i += 1
                e = i
        attribute = look_up(keys, values, key)
        if attribute == 0 or seen >> attribute & 1:  # a repeated attribute is ignored
            continue
        seen |= 1 << attribute
        spans[2 * attribute] = a
        spans[2 * attribute + 1] = e
        if attribute <= _ITEMPROP:  # class, id, role, itemprop
            hints |= hints_of(data, a, e, states, state_bits)
        elif attribute == _STYLE:
            hidden = hidden or _declares(data, a, e, _NONE) or _declares(data, a, e, _INVISIBLE)
        elif attribute == _HIDDEN:
            hidden = True
        elif attribute == _ARIA and e - a == 4:  # "true"
            hints |= _OVERLAY


@njit(nogil=True)
def is_shadow_root(data, seen, spans):
    """Return True if a template declares a shadow root (HTML, 4.12.3)."""
    a, z = spans[2 * _MODE], spans[2 * _MODE + 1]
    return seen >> _MODE & 1 != 0 and (same(data, a, z, _OPEN) or same(data, a, z, _CLOSED))


@njit(nogil=True)
def shape_of(data, tag, seen, spans):
    """Return a hash of an element's tag and digit-free class, equal for repeated elements."""
    key = (_BASIS ^ np.uint64(tag)) * _PRIME
    if seen >> _CLASS & 1:
        for i in range(spans[2 * _CLASS], spans[2 * _CLASS + 1]):
            b = data[i]
            if not 48 <= b <= 57:
                key = (key ^ np.uint64(b | 32)) * _PRIME
    return np.int64(key >> np.uint64(1))
