"""Grapheme clusters (UAX #29): where what a reader takes for one letter begins.

A consonant with its vowel signs and tone marks is one cluster, and so is an emoji of several code
points. Not every vowel is in a cluster: the Thai ones that stand beside their consonant are
clusters by themselves, so dependent vowels are marked apart.
"""

from __future__ import annotations

import zlib
from base64 import b85decode
from functools import lru_cache

import numpy as np

from kernel_cache import njit
from tokenize_kit.judge.words import code_point
from tokenize_kit.pattern.categories import CODE_POINTS

# Made by scripts/uax29_table.py (its end is marked below); `cluster_classes` unpacks it.
# Unicode (R) Data Files, Copyright (C) Unicode, Inc., Unicode License v3.
UNICODE = "18.0.0"
RUNS = (
    "c-rk(JB(IE6h8B~kN^I!*=3hq_}O)q@K_+=g5V-xL<^#wKqM$8t_B(tlP%PO>SD%tgCQY45-BvsL<_aDBay^n6|K;M#$"
    "ckxgu+4-O>D@<@0^+aS?uh$ICtjGoY$N=GxHrXl~zV8Wk%^aGea$>$QXt14>l~)+d35Vh7P+)1qITH3_V!nRE0Jvqi9b"
    "UCx`iSp(vOuCoNo-X5?SdbQsVXa32aSYT<tpa|(Udq(Vl!(C#lZWf<ETCJPmOqiDo$4XP2#jR|FAmsG=g3tx(bF|?S)*"
    "oYq^<qHtp_ZG7%&cKewJZMRYW$U$Yv3v*pPLMvV9ZYsKS&)WDMm*QjwuR@e9oCXXJCMmZE)DnD&KP9IJ;&j{-mQ{i{(H"
    "R3pk=jpU9=q4!!ZWnGmQ~zaV4`M_MK>VNvmmWimHLmg7?82X{SU-TxGN#qiJNPm;-C1K335QTD;ySyBMRWqU|Mx9W9}w"
    "8frYoQ57x|v!p5T9mUL%8viw0D=4cu8YMkH9BYxOGsL!_C!lK(cTC7ac5mo4D#jI&L7s&zvg(KYt{VPeF0a*6^iFf6d@"
    "em3j90bsx-Ps4)_0RNUFQLjt>JmiQG21aP(9v0O+T^QUlds3CUmA?ZCWy8zeK2LO0m#lOJaX_!0|x)3b;0-eU&2)Uc+9"
    "4H;0y&>k&G|F_e5eAd%)6z+YLtMlR=}k{z21k5Zr4Lpk<7_cNhleM<_tJ&hRgUMN4!xxx{K9~yjZ?CETX`)H)iXb!%X9"
    "0PhUZfaMIVrvLXKg!F|^o<Hf=}l{tRT<7bO`3wbIPD$KdgEvz%+Ox$gPw6Y^_`|aG(ODm3EvAFT$`*jbe(^0D@;}B@V#"
    "-!Ax&H+eJ!M=wdr4_e<P%+gqBRkk^HVh?KIDPJT{tijKU9<##t^);}+DG|0tIwIp!Oaah9|9_@I+6o$NB@$tP|r$o12_"
    "P4m23ZrRox`n<kgqQBXZ8wR86(0L$9T`|~zOPnSP!PBQU<SE2wumyKa(tGo^l54OckKrdlmpLO$JWn*y#CwVRCvhV7H4"
    "ZEr!zdxAX&cVchR~MVvD2D@lmTysyfA)CJhLLtH_LrK<CEoERN?m78S*$2;_b&7j$q>k;hQ4&F-Q5Xn&UPY<g2c;co)#"
    "LZ%fu8ybbc1zEgfcrKG-&7mBzv+ELxX8m-Y9t<f5-(f=XpR1;*|d+8&_mcL}d0SG&~!L`N*%Hpjw9lF5p;;;PHyvyk4b"
    "--moJq#BuN&tS$l%EnHkHUdI=BaBIFYcpYzorH0Wq5iW5NsQG)6)5f)aXFy(~ejd0O#_%x*I4<-c!;=e32`(`vSkU8Dm"
    "kwhkcI+5Lk3qh!`5^4sxwn!ANyu)ARUj!|yfY>Rjw7dS3~gFKJvJ*ZBm!nTAC|f}j=u0oifc(e_m=7(74l+bF)nQg{pt"
    "0x3%vQWiYggXR-bPHCQFpaD7_<zi6~Rtf}7zu&E*Y#JJ@QXq`<;!1@A_s_+C!sr>*I)y;f*IWZ>akfmg&?LAsc8>(x7L"
    "YAsgf4M3tdwRPZeGOzJ6!o$_VOqrrxLqba+$>|@v}uPh?hahB8)sGj+nHi*AoJdOQaKFz3fCWT<CcO%?xYYLPGUe6YGz"
    "akSIFMH3VG{_=LUC?5yu%A)CR1VkX8}B6@R&aRR;j^zGB3!y8Uttpn3x`0=^Dh$7{prQgJ6Gf!NB9FKJ-eRf5x8cVmfg"
    "guDC1pUl)=@B*&as!+%2`~+rcR1_Ypi+ufC0KH~7v_<r`=nCqf!0eU)u-<(3Brho$E9X;77QP9bpB!ahoSTihklvo|5{"
    "0;LJpRqAGu(A33QdqhV6jYX93;&2{!l8ZgmwcO2wcBB5VAQx%qq}KyP1)g)tdz2{>=L2>|aed0<gcy#kij?j(p&x3!sD"
    "X1M$a;5S3}Nh$>Hmx8DD5Z<F+PGvxewk73&0gsU~Ll2?+YPf$2aQ+zh5KT8i5tirZcj=aL<1~QsgP5!^IE!{#7R3g8Ft"
    "8o{`yqhy=dL0%z|eDVDI~mGF6gy-&Um|EfS><V=JF=`7sSd2Lj"
)
# End of the table.

CLASSES = (
    *("Other", "CR", "LF", "Control", "Extend", "ZWJ", "Regional_Indicator", "Prepend"),
    *("SpacingMark", "L", "V", "T", "LV", "LVT"),
)
_OTHER, _CR, _LF, _CONTROL, _EXTEND, _ZWJ, _REGION, _PREPEND, _SPACING = range(9)
_L, _V, _T, _LV, _LVT = range(9, 14)
_ENDS = (_CR, _LF, _CONTROL)
# Added to a class: Extended_Pictographic; Indic_Conjunct_Break Consonant and Linker; marks and
# dependent vowels (Indic_Syllabic_Category).
PICTOGRAPH, CONSONANT, LINKER, DEPENDENT = 16, 32, 64, 128
_NON_JOINER = 0x200C  # the one Extend that ends a conjunct
BEGINS, DEPENDS, IS_CHARACTER = 1, 2, 4  # of `cluster_flags`


@lru_cache(maxsize=1)
def cluster_classes() -> np.ndarray:
    """uint8[0x110000]: the class of every code point, a position in CLASSES, with its bits.

    RUNS has a LEB128 number (how far from the last run's start) and a class for each run.
    """
    table = np.zeros(CODE_POINTS, np.uint8)
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
    return table


@njit(nogil=True)
def _joined(before, kind):
    """Whether there is no break between two classes (GB3 to GB9b)."""
    if before in _ENDS or kind in _ENDS:
        return before == _CR and kind == _LF
    if before == _PREPEND or kind in (_EXTEND, _ZWJ, _SPACING):
        return True
    if before == _L:
        return kind in (_L, _V, _LV, _LVT)
    if before in (_LV, _V):
        return kind in (_V, _T)
    return before in (_LVT, _T) and kind == _T


@njit(cache=True, nogil=True)
def cluster_flags(data, offsets, classes):
    """uint8[bytes + 1]: what stands at each byte from the first row on: BEGINS a cluster,
    DEPENDS (a mark or a dependent vowel), IS_CHARACTER (the first byte of one). The end of a row
    begins a cluster.

    data: uint8[], valid UTF-8; offsets: int64[rows + 1]; classes: cluster_classes().
    """
    first = offsets[0]
    flags = np.zeros(offsets[-1] - first + 1, np.uint8)
    for row in range(len(offsets) - 1):
        i, end = offsets[row], offsets[row + 1]
        before = np.int64(_CONTROL)  # a break stands behind it
        regions = 0  # regional indicators in a row
        conjunct = 0  # 1: a consonant and marks; 2: with a linker among them (GB9c)
        picture = 0  # 1: a pictograph and what extends it; 2: with a joiner at the end (GB11)
        while i < end:
            code, size = code_point(data, i)
            bits = np.int64(classes[code])
            kind = bits & 15
            joined = _joined(before, kind)
            if not joined and before not in _ENDS and kind not in _ENDS:
                joined = (
                    (conjunct == 2 and bits & CONSONANT > 0)
                    or (picture == 2 and bits & PICTOGRAPH > 0)
                    or (kind == _REGION and regions % 2 == 1)  # GB12
                )
            regions = regions + 1 if kind == _REGION else 0
            if bits & CONSONANT:
                conjunct = 1
            elif conjunct and bits & LINKER:
                conjunct = 2
            elif (kind != _EXTEND and kind != _ZWJ) or code == _NON_JOINER:
                conjunct = 0
            if bits & PICTOGRAPH:
                picture = 1
            elif picture == 1 and kind == _ZWJ:
                picture = 2
            elif picture != 1 or kind != _EXTEND:
                picture = 0
            flags[i - first] = IS_CHARACTER | (not joined) | (DEPENDS if bits & DEPENDENT else 0)
            before = kind
            i += size
        flags[end - first] |= BEGINS
    return flags


def cluster_cuts(flags: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """bool[tokens]: which begin or end within a grapheme cluster.

    flags: `cluster_flags`; starts, ends: int64[tokens], from its first byte on.
    """
    return (flags[starts] & flags[ends] & BEGINS) == 0


def only_marks(flags: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """bool[tokens]: which are whole characters, all of them marks or dependent vowels. Arguments as
    of `cluster_cuts`."""
    firm = np.zeros(len(flags) + 1, np.int32 if len(flags) < 1 << 31 else np.int64)
    np.cumsum((flags & (DEPENDS | IS_CHARACTER)) == IS_CHARACTER, out=firm[1:])
    at_characters = (flags[starts] & IS_CHARACTER) > 0
    return at_characters & (ends > starts) & (firm[starts] == firm[ends])
