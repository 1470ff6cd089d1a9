"""Words as Unicode's default word boundaries cut them (UAX #29, section 4.1), and their hashes.

This is a word table of its own beside `text/words.py`: what bff, Dolma and other tools in Rust call
`split_word_bounds`. Punctuation marks are words too, nothing is folded; only pieces of nothing but
white space (property White_Space) are left out. Han, kana other than katakana, Thai and the like
are one word a character with its marks.

The classes are Unicode's of the version UNICODE, from a table that is part of the package, so that
hashes do not depend on the Python that runs. Rules WB5 to WB13 become a table of states; the class
of the last character that counts (WB4 passes over marks) is the state.
"""

from __future__ import annotations

import sys
import zlib
from base64 import b85decode
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from curate.text.hashing import mix
from curate.text.unicode import char_bytes, code_point
from kernel_cache import njit

# Made by scripts/uax29_table.py (its end is marked below); `class_table` unpacks it.
# Unicode (R) Data Files, Copyright (C) Unicode, Inc., Unicode License v3.
UNICODE = "18.0.0"
RUNS = (
    "c-n<mON?Ac6}?sOR=@k+>+aXx^S3=SZ|t!>{>6ihKZziW6=D>z2vX$4Q6$7Cut7qWShBzhh>uV<2oVV+*dPnB$_`nu2#"
    "Y`#pkzZNBo^Le1%fPCv9LJjzUrBAfUu~pdR4dXukPn`9YYaAkXacdjDzS1qrrNJ(bjdqI@uA?DZVk+MUWF+uplvoF313"
    "@Q1hE3*$U=Oj0Xjdj_Vyu_=pk>OwGwbTu6Um5#u?G@8d&DyT`p#7`#KeGYx4~FW{IYF%R&rj*3=FDrwq*3>wJLMnVcw*"
    "g0KlYp74<Azg!gksP&b$z^~Ya#4$I4gL|jv`)35NAdNdHrN^CY)dQZ-t@+S0;kKk7qAa4Fp|t{4f?1xFn$$uWg8{o{H("
    "6FLAUIx)6FQ|YRHY$%qB`782HgQ%e?0@3RB7<wNT5*+hULmZ9!4=9I&qGL2Bfj27Z3PDejNxo=fnebCUw!C8SVV*+L`Z"
    "PUBoE>EGrsmz4D}_dCbjU%f5##GpU>4|@*Z-?s<eNsn6Nx=gf>i2-~-UWz&9IElXIeqlpcl3)dOQP*Xl{#xLWph0f|!*"
    "H@MIb`ZmV?L*ra|<Rm*Z$yc{fOp=@2CF$zUK7r5HT_L-5GfF&>c^T-sf{`Yn%IP276Ys-x*t_zmB>;`D!Ku&{NjO{iRD"
    "tGNz@x;NKPAt@Q6xxW58A(l;9Nee#NK*EUv*%pOb365W;xr!R94H=sYx^Xn?LP#Niv91tP&@~NEO)bbqGe~kV_F^6rxK"
    "9lFI|8mx1emt+A@-XP|Koff&-+c1F@nBlA#3cJPHX3+r2HBM@fVjar%Fsr=m$BZ{&TXJax3oyEE9%ROxR+q(aqTs}34f"
    "y?DdT1+HE8aJwvm&zf-rhq@r1h0hvsFBWxXLS0_mbo;kW`jQ@DAEG~CdU7mV{dh9cW=o#7NgiM?$o&jN4`b0MDGx?~C!"
    "5S-R0ak4jp?%9u`TTGYsv&p=A_G1%!R}K|~!q;9HJk3Wr1hH3wrlhPe2q}sUQ5I0QV~v`g5-Ro(6*^9lIw)a^b&b8c3<"
    "(7`^=UWqWS+{dZpqYGX86Q)mYw|8qx!LQ)H|e7Xp;QK6mQ>j18KV`|A_dZ;Ct*3Yh42#h5S0$a3|Plc_ZMs#z}?oL<eq"
    "N@^$nPeb)RP@^|3_7J^gqefYB*LT22j<K8Uum_e72_jxbneZ^?}yT6z6J<=`uKJV!xI>gK?X1U(=vQC_9+-vi>=5t!in"
    "X-1VrhVf){z*mNF0i|R#pQhKm%-j+dqf%<1O0HqT}Mdcm6WBa^0@erfwZ^?>UWB=f6Q%#l9L2hRPZH@6S!pZl7xwRzy|"
    "v)p0AVL$wXe8+jn(x5d^p87k>`+Y9&wEV^HH&mf(pupGD*cUXIygn@G0LAR(9S-Cp9@rpnqLJONg`_XJt6k0OntUDBCn"
    ";Q&36iJv<(*d9~%j};xk{B_nK2pNN0$TiJxp}vmc1ah}rPm%p{$?IL=wK92k53*qmWJj;NwWnG?4qW&|?pI&)?$&b~*w"
    "0^p0xK}(Bl4}Apc^8{Qw5F{%&ky?Dx^;Zc~#7#wlBz*{S|R%dti4}cDzkZq^Q{(Fe3+7r^OssHH0lk9Oit-fs~ZP4~Jd"
    "N<T`w}34a~f!BTT95qk`sCfGvmxh>Ada@@WyPotE4m(F-4(5Em7VI-S)?~!dl!YO5BY=9me!b?$-v-Z=FUBOL`9Wg#1Y"
    "FzM2K5y=ieiu&js|XJ-!{a8a>~wY(V=Q~FF|9eDi5c1}pkq*P%8jgj?RSqr_z`rq>zGmN`ws1It6qRu0N1^ZFt$3kZCy"
    "^d1;;?QhDYc*Ex^*5eAS+jYjzoHj%@_5^#$LKA<~j}{eQWt+JlV=gA)fdCFlgq3AhaKuYvp6n9kag9HsKe*elw~CR(Kf"
    "1JG4a^8zSi8(hJ<rLk)STnPLE3XHw+5=utrd&0qGaBjOgHa28t7&}g1c~8KM0I)ffzNZ9v@=%BE-=RjOxCn~ma`b;fvX"
    "DW_9FompRATGQ5FnxH))|=0fjNM02A#nH5r8H3ypQ1CI{YwWSD<Aq0Z74JUCc0!4!;+mUg^kX#fV6cgJ9~h&^U@Yr=uR"
    "1;%yeuo?B6@e}|yK@=Ladk0rM$<jzUns}7i`xAxi)DuD8)Q=WE#W$#7keH6d7?Qn--p!9wK<bRBL3aS}Gg`Mygio$JRn"
    "btFb5bdOw31cnB-YU~Z869JJX5Y7`bl@Pa|D#g6L=QDj1yXdH@@blzij+`)G5YE6$YbIjf1==s=XidQ5kpLFf#_NLaVc"
    "N6J9x3TL!Wfto7v~l%3rrMaoo`&Vt=v;g5Rs$zXJF&qbEmpA2^nX$OS)}XPUwX--V<KPdIdBzl7Th@_Jzx90}nW_K<69"
    "9?Iu|($t-O4Y-)FWUqf{|2Glk;WyA=!UTRn!wHihKZ_G&EjrP8e2g)_wq##{fDyc2K_y@*dL^m+p@Xn*tD@=Xiag-<#~"
    "kwylCeiX#|?Pshb#*G<Km5gWq@L%-GUaM${0W7@MkIvbF%QMZe%EG`TJN-qLhIT_x?n4*7Df=KQq*7FUehnH&icqSdB5"
    "3{jpnl$Ltk$#!{}@W&d|Dbvtq(zzt8Lj|I6yS0ijnFTm`kzm0f0BCPYu7<soqee(tXu10T;Z}w^weOa*5Q9i>u%7flK-"
    "ER!R-VFY);f#IKlY+eNRZej<Q_VBJ&Nut|Gsx)h00|Z!p#R{QpQ#*ZG3Q6#(~M-3uiqj*ISugjGJsv1LDd-Z$*z{&+z|"
    "#l5jc_nwTEXlVB57BdSBN%s9f~j%0XP!tpK3?h8uSr{RLpI*gc0qbcVl?-9y5iPdIc9-Kvxh3$2IE`!F!dD8og=Tsdqk"
    "KvOszjr)-AFf4o?u<s`55Ek9k_X1?ZZX|yR9r^~CU&mpM%^l1e4w)$s;HEo`HSiaV3*G%7w?Q!Oeh}n+&(-c>Dc`)i3("
    "&BkpTnOSeLu**0R|q(7y"
)
# End of the table.

__all__ = ["CLASSES", "PICTOGRAPH", "UNICODE", "UaxWords", "class_table", "uax_words"]

CLASSES = (
    *("Other", "CR", "LF", "Newline", "Extend", "Format", "ZWJ", "WSegSpace", "ALetter"),
    *("Hebrew_Letter", "MidLetter", "MidNum", "MidNumLet", "Single_Quote", "Double_Quote"),
    *("Numeric", "Katakana", "ExtendNumLet", "Regional_Indicator"),
)
OTHER, CR, LF, NEWLINE, EXTEND, FORMAT, ZWJ, SPACE, LETTER = range(9)
HEBREW, MID_LETTER, MID_NUM, MID_BOTH, SINGLE, DOUBLE = range(9, 15)
NUMERIC, KATAKANA, JOINER, REGION = range(15, 19)
# Added to a class: Extended_Pictographic (WB3c), and White_Space.
PICTOGRAPH, WHITE = 32, 64
_KIND = 31
# States beside the classes: an odd number of regional indicators is REGION, an even one is
# REGIONS; behind a mark in a word, which only a letter or a number follows; the text's start.
REGIONS, IN_LETTERS, IN_NUMBER, START = range(len(CLASSES), len(CLASSES) + 4)
_WIDTH = 32
_JOIN, _LOOK = 32, 64  # beside the next state: no boundary; the rule looks ahead
_WHITE_SPACE = (
    *((9, 13), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A)),
    *((0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)),
)
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xD1B54A32D192ED03)


@dataclass(frozen=True)
class UaxWords:
    """rows: int64[rows + 1], the first word of each row; start, end: int64[words], byte positions
    in the buffer; hash: uint64[words], of the word's bytes."""

    rows: np.ndarray
    start: np.ndarray
    end: np.ndarray
    hash: np.ndarray


@lru_cache(maxsize=1)
def class_table() -> np.ndarray:
    """uint8[0x110000]: the word break class of every code point, with PICTOGRAPH and WHITE.

    RUNS has a LEB128 number (how far from the last run's start) and a class for each run.
    """
    table = np.zeros(sys.maxunicode + 1, np.uint8)
    packed = zlib.decompress(b85decode(RUNS))
    at = i = 0
    while i < len(packed):
        shift = 0
        while packed[i] > 127:
            at += (packed[i] & 127) << shift
            shift += 7
            i += 1
        at += packed[i] << shift
        table[at:] = packed[i + 1]
        i += 2
    for first, last in _WHITE_SPACE:
        table[first : last + 1] |= WHITE
    return table


@lru_cache(maxsize=1)
def state_table() -> np.ndarray:
    """uint8[states * 32]: for a state and a class the next state, with _JOIN where there is no
    boundary before the character and _LOOK where that depends on what comes behind it."""
    table = np.zeros((START + 1, _WIDTH), np.uint8)
    letters, words = (LETTER, HEBREW), (LETTER, HEBREW, NUMERIC, KATAKANA, JOINER)
    for kind in range(len(CLASSES)):
        table[:, kind] = kind  # WB999, WB3a, WB3b
    for state in range(START + 1):
        if state in (CR, LF, NEWLINE, START):
            table[state, [EXTEND, FORMAT, ZWJ]] = OTHER
        else:  # WB4; behind a mark a space no longer joins one
            table[state, [EXTEND, FORMAT, ZWJ]] = (OTHER if state == SPACE else state) | _JOIN
    table[CR, LF] = LF | _JOIN  # WB3
    table[SPACE, SPACE] = SPACE | _JOIN  # WB3d
    for state in (*letters, NUMERIC, IN_LETTERS):
        for kind in letters:  # WB5, WB10, WB7, WB7c
            table[state, kind] = kind | _JOIN
    for state in (*letters, NUMERIC, IN_NUMBER):
        table[state, NUMERIC] = NUMERIC | _JOIN  # WB8, WB9, WB11
    for state in letters:  # WB6, WB7a, WB7b
        table[state, [MID_LETTER, MID_BOTH, SINGLE]] |= _LOOK
    table[HEBREW, DOUBLE] |= _LOOK
    table[NUMERIC, [MID_NUM, MID_BOTH, SINGLE]] |= _LOOK  # WB12
    table[KATAKANA, KATAKANA] = KATAKANA | _JOIN  # WB13
    for kind in words:
        table[kind, JOINER] = JOINER | _JOIN  # WB13a
        table[JOINER, kind] = kind | _JOIN  # WB13b
    table[REGION, REGION] = REGIONS | _JOIN  # WB15, WB16
    table[REGIONS, REGION] = REGION
    return table.reshape(-1)


@njit(nogil=True)
def _class_at(data, i, stop, kinds):
    """(class with its bits, bytes) of the character at i; of what is not UTF-8: Other, 1."""
    b = data[i]
    if b < 0x80:
        return np.int64(kinds[b]), np.int64(1)
    code = np.int64(code_point(data, i, stop))
    if code < 0 or code > 0x10FFFF:
        return np.int64(OTHER), np.int64(1)
    return np.int64(kinds[code]), np.int64(char_bytes(b))


@njit(nogil=True)
def _ahead(data, i, stop, kinds, state, kind):
    """The entry of the state table for a mark in a word, whose next character that counts is at i
    or behind it."""
    following = np.int64(OTHER)
    while i < stop:
        entry, n = _class_at(data, i, stop, kinds)
        following = entry & _KIND
        if following != EXTEND and following != FORMAT and following != ZWJ:
            break
        i += n
    if state == NUMERIC:
        return IN_NUMBER | _JOIN if following == NUMERIC else kind
    if kind == DOUBLE:
        return IN_LETTERS | _JOIN if following == HEBREW else kind
    if following == LETTER or following == HEBREW:
        return IN_LETTERS | _JOIN
    return kind | _JOIN if state == HEBREW and kind == SINGLE else kind


@njit(nogil=True)
def uax_hashes(data, start, stop, kinds, states, starts, ends, out):
    """Words of data[start:stop]: their positions and hashes are put into starts, ends: int64[] and
    out: uint64[], each of stop - start + 1 or more. Returns their number.

    Both tables come from `class_table` and `state_table`. No branch depends on where
    words end, which cannot be predicted.
    """
    words = np.int64(0)
    state = np.int64(START)
    joined = False  # the last character was a ZWJ
    solid = np.int64(0)  # the piece holds more than white space
    value = _FIRST
    first = i = start
    while i < stop:
        b = data[i]
        n = np.int64(1)
        if b < 0x80:
            kind = np.int64(kinds[b])
            entry = np.int64(states[(state << 5) | (kind & _KIND)])
            joined = False
        else:
            kind, n = _class_at(data, i, stop, kinds)
            entry = np.int64(states[(state << 5) | (kind & _KIND)])
            if joined and kind & PICTOGRAPH:
                entry |= _JOIN  # WB3c
            joined = kind & _KIND == ZWJ
        if entry & _LOOK:
            entry = np.int64(_ahead(data, i + n, stop, kinds, state, kind & _KIND))
        join = (entry >> 5) & 1
        state = entry & _KIND
        starts[words] = first
        ends[words] = i
        out[words] = value
        words += solid & (1 - join)
        first = first if join else i
        value = value if join else _FIRST
        solid = (solid & join) | (1 - ((kind >> 6) & 1))
        for k in range(n):
            value = (value ^ np.uint64(data[i + k])) * _PRIME
        i += n
    starts[words] = first
    ends[words] = stop
    out[words] = value
    words += solid
    for k in range(words):
        out[k] = mix(out[k])
    return words


@njit(cache=True, nogil=True)
def _table(data, offsets, kinds, states):
    rows = len(offsets) - 1
    size = offsets[rows] - offsets[0]
    row_words = np.empty(rows + 1, np.int64)
    # Upper bounds; memory that is never touched is never used.
    start = np.empty(size + 1, np.int64)
    end = np.empty(size + 1, np.int64)
    value = np.empty(size + 1, np.uint64)
    words = 0
    for r in range(rows):
        row_words[r] = words
        words += uax_hashes(
            data,
            offsets[r],
            offsets[r + 1],
            kinds,
            states,
            start[words:],
            end[words:],
            value[words:],
        )
    row_words[rows] = words
    return row_words, start[:words], end[:words], value[:words]


def uax_words(data: np.ndarray, offsets: np.ndarray) -> UaxWords:
    """The words of `(data: uint8[], offsets: int64[rows + 1])`."""
    return UaxWords(*_table(data, offsets, class_table(), state_table()))
