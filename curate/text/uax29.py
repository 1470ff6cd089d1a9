"""Words by Unicode's default word boundaries (UAX #29, section 4.1), and their hashes.

These words are those of `split_word_bounds` in Rust, which bff, Dolma and other tools use. They
differ from those of `text/words.py`: punctuation marks are words too, nothing is folded, and only
pieces of white space alone (property White_Space) are left out. In Han, kana other than katakana,
Thai and similar scripts each character with its marks is a word. Classes are from Unicode version
UNICODE, in a table of the package, so hashes do not depend on the running Python. Rules WB5 to WB13
become a table of states; the state is the class of the character before (rule WB4 skips marks).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from curate.text.hashing import mix
from curate.text.unicode import char_bytes, code_point
from llmcurate.base.kernels import njit
from tokenize_kit.pattern.categories import by_code_point, members

# Made by scripts/uax29_table.py (its end is marked below); `class_table` unpacks it.
# Unicode (R) Data Files, Copyright (C) Unicode, Inc., Unicode License v3.
UNICODE = "18.0.0"
RUNS = (
    "c-n<mONeDh8UCxzU-$gyoO|!N_x5`p-KTqcW_n(kcE))mXzU?65?n+GlS~MRkLX5_0hcZuqWC}pB4R*6H!_H;>}1eIT*"
    "SCgl8phu#cW(DnuRNo!SDM|-R_>KaZ$JGRQ>h8>VJG!>KKX`g3QVwVH`w97!B4#jJB==*2#{DPVtSoE`prsf(3~wbU_A"
    "Kg__?S$yP9LU_2;rw54|};Uh{kFf}I!aUuPMMT}=LzJm`f?H>0|Vek&=&NQS|y?|qq#5};eIx1QzsibKKGH4(}8wn{$V"
    "dr$It)V`Zhjb10IdaspC6@tq$VDx-HTXy9(mK_;9>v!S+F)mlvrVn2d(#^S3Y;$EUcf%Iz(_K)HRz+(!1z_rm2H%S^Rv"
    "3z2Hmu)PB)`;t06a1Gn*)VVBkmJEc2erC`>7b)Iu#IZ;L@Pv;{@cbHKW$2dR;B8u<AEr?@|&doIC?&P@t@mykkfWebgr"
    "JB@Rxq<@>kTvFD@-0vK7fAzM|6NCQjKkPYtf8QQ>Cp~J7>oU<kCI;{Uc`4?Y<0Sf;`-Kf*NrDyBMO~MH`fGthf(E?>48"
    "zI3<dCULjrp8f&MlbOT>FE&^&^@ezMuO0`<m0gL&U_~cW2<yLw7tWdY{j&t!?hF8SGijerIfz{yOUZ<g1wsKu=j8_LnX"
    "p$(WY%ynk1Cx6;2);r<HfNZ)A4_sJ`|UE5eKGJ7mBOLSW*oW8_8+<^W#&#$Z0LS>{wazKR8%cpXBQ_FK$|33N?#T>T%`"
    "b?fT|I1m6`SHAd%EO?;15NBXeDlfw%7bai5|iu`*l6If8Dv+s0OAJgC_@|dUdDP)JGX%z-P9tvuBb0B;9i2ATiR=U6aG"
    "d)QpU|tYS7#bZ6hab1!45K;tBOQADWjjmi30T2&9WTh2skBOyTAs(r{fzUNFw<7>aDeb%s*}CHA(VJPW`%%!PPz>yjx{"
    "KyX^0#K~R{x@SL#ZZTcj&nENg*^dqET{%<`3SWC+@H8Lg5X4>ynv$}@AfzZZL|H)Hjx}m}N~qXFROmQG>Y#)v);0F(G9"
    "(n()TiCZlX)t;x+zm*nc)-HS$6VUkLt(LQSXpSp-J)^Q@nlC4W#X&{5|4_g72|EtaS}|6!Obp!<}HK<@JE$8YdOT6CJp"
    "9$=A_G^jY(F$lrwzSO`wZ_u<cO2$^x8j(fArV+LJ9-sioP_Z6e@@BUuO_ei(s`@E-*=nylnnB{uc%Q|tcaj(tin$Kx5X"
    "Uf{en)Z$J_y-kvtHAC87MJs_p9lLh+auD@80d!+?m9vmucRzZmB+>V45Y<HP`_Q2{bOz`l$<26qJl4KoWLcM7bQ&812)"
    "*F@O+)@PA2l|+`g-miy*iyKl@{_S1NhR9)lXMumn%M`79zo@N&!^+d#5?5(&9%@AMMKHdWU4;0dtey(h?meGq9B?UK$s"
    "3kT?lO#IxT!S<N4f2`;T<{xJbf{-z|g<RA87V7I5P9S&7^%U7Jm%QE;UMrJ#_aN)mKz8)HTYIYY<G_Va<bL&K?`}P}f&"
    "KJ(D6j%kJ|JJe3A!PIJXPRW!Q2WJs6zTwkXOY#YWu8g+FuZNwg+}sWyjmpM2ect0W)%Nbz01ERYTZv#9_`i9Y{$ze1F*"
    "0Os>Os8}QeG9V|7+60yh7X@V`}p4;MVEL-*!`4~#cx9E(Q1APjU5Js|r_a50gB%D%4#yaTHA-ohNIcq--*%jR6*b(FNp"
    "~eNT<n!kK=y%~XzliYgGCXdw%1&ozF~+jz8q=EdnV6xy0y+luhTO>7*M9d1gdagyyN(&PzVFcfw(13l1@O4H5yn>MwjG"
    "xfZox6ot>F=RP7APfCSS6r<(gf_nqwQmYkk4DV~DimUH_l1s`g-G!r;UKO$j;ya{?{{{A=JoHm0+-BuA+{GWLqLvVm6V"
    "zyNd=)Vu)7*alayZfWcq0T%+lfC6K0yo8d``JQla8Jyd$j*ShO8ODy&SKbpaBLHj;rSB<0o;=iH`*)~ODK3H{xg7nUkS"
    "t`7GKXYy7?s#MGXzLzx^)I7b6^hOn?YxAKm=fkJ?|s9cN~70u`AFrmH?#St}bR6M~B}FP_K04vSLJ}TOgQvEHsW{&grP"
    "frFfe~wC7e7>)#+~u>8F3;bX~d3b}KV_o@RX>aD#tgbJX%>6E8kVA*>SdLPAaZ9Cjy7%06T0Qnzdo`PzIP+=#$g`#j9S"
    "f=$%AVfRqWx`mCvA4>!QAWpDp5FKEDIGY7>;I^fF405HQ-KtnrhJ;_rXnTOUyOeG8}gXA$Db%T;@Qd%GGd6yEf76pKP="
    "@7b_Xx^R_K%N+cWzNTKQ|1CXPE=MC^|?K=7u@{VRYkGkS7l_km-Hh+Ob9d8R3R@Lfo%@PtE0_Di_EAg>j6!I2Q2VGp^s"
    "=AnEZC{5kj*MN%&OZNJQ_J0#m9)1-KCQRTLG@LLA@{>40)}j-g$Hy4+t4sDp2pGZZ6;uM2qF0j2?>Y$khANtluE+y!f5"
    "<WaAQ^iEbX<przR#k-KQ7(~SOzFI+AV1D@r?094u7V?FeeM2>PCj5mcNhXBuW|haPJQ^XDyG7|1(3a_LAIHctiD)ht(K"
    "k*&n-=x6NK=XDsEaUG{$mQ@0}r0^IN<`dE-VbTz`J^a9Lo`s;|NBf>hbjFEQ=)Hh%7?`rhs_(rcr(U%1)9py8uqde%%)"
    "BVN}?2X|68qU~9Jt@fRUgZ==Gu1rf>wL4XKZA@850GH-9{Tr=`I*Xr7IS{&J<Uiq`TDoSC#M0vUIMUdGpHJ4KH1f>n>)"
    "f_Cjv(jp!V>r25h@FL+|Ta2bGJyTRDiUx)lJlUvcA(qrU*m6}x9Kh|cggvU^Cl^AU%xp<9*GVWIV~c^?Kw8D+R=m@9{k"
    "1!xL~qj4Yd9fpO^0ruSl9m1lU`d)yH*p1{*p+nyQ^XoXQvAKhJ-61mt0^D?`u?GHvaiO~(<TeP#-S>jL>$%!JEahu=cL"
    "5sK_0#w>qwfa!?!TIU17bMIuK"
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
# More states: REGION and REGIONS are an odd and an even number of regional indicators, IN_LETTERS
# and IN_NUMBER follow a mark in a word, START is the text's start.
REGIONS, IN_LETTERS, IN_NUMBER, START = range(len(CLASSES), len(CLASSES) + 4)
_WIDTH = 32
_JOIN, _LOOK = 32, 64  # flags of an entry: no boundary before; look ahead
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xD1B54A32D192ED03)


@dataclass(frozen=True)
class UaxWords:
    """The words of a batch. `rows` (int64[rows + 1]): the index of each row's first word. `start`,
    `end` (int64[words]): positions in the buffer. `hash` (uint64[words]): of the word's bytes."""

    rows: np.ndarray
    start: np.ndarray
    end: np.ndarray
    hash: np.ndarray


@lru_cache(maxsize=1)
def class_table() -> np.ndarray:
    """Return each code point's word break class, with PICTOGRAPH and WHITE: uint8[0x110000]."""
    table = by_code_point(RUNS)
    table[members("s")] |= WHITE
    return table


@lru_cache(maxsize=1)
def state_table() -> np.ndarray:
    """Return the table of next states by state and class, uint8[states * 32]. A next state has the
    flag _JOIN if there is no boundary before the character, and the flag _LOOK if that depends on
    the next characters."""
    table = np.zeros((START + 1, _WIDTH), np.uint8)
    letters, words = (LETTER, HEBREW), (LETTER, HEBREW, NUMERIC, KATAKANA, JOINER)
    for kind in range(len(CLASSES)):
        table[:, kind] = kind  # WB999, WB3a, WB3b
    for state in range(START + 1):
        if state in (CR, LF, NEWLINE, START):
            table[state, [EXTEND, FORMAT, ZWJ]] = OTHER
        else:  # WB4; after a mark a space no longer joins one
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
    b = data[i]
    if b < 0x80:
        return np.int64(kinds[b]), np.int64(1)
    code = np.int64(code_point(data, i, stop))
    if code < 0 or code > 0x10FFFF:
        return np.int64(OTHER), np.int64(1)
    return np.int64(kinds[code]), np.int64(char_bytes(b))


@njit(nogil=True)
def _look_ahead(data, i, stop, kinds, state, kind):
    """Return the state table's entry for a punctuation mark within a word. The character after the
    mark decides which entry this is."""
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
    """Find the words of data[start:stop] and return their number. Their positions are written to
    `starts` and `ends` (int64[]), their hashes to `out` (uint64[]); each array needs stop - start +
    1 entries. `kinds` and `states` come from `class_table` and `state_table`."""
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
            entry = np.int64(_look_ahead(data, i + n, stop, kinds, state, kind & _KIND))
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
    # Upper bounds; untouched memory costs nothing.
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
    """Return the words of `(data: uint8[], offsets: int64[rows + 1])`."""
    return UaxWords(*_table(data, offsets, class_table(), state_table()))
