"""Grapheme clusters (UAX #29): the units that readers perceive as one letter.

A consonant with its vowel signs and tone marks is one cluster, and so is an emoji of several code
points. But Thai vowels that are written next to their consonant are clusters of their own. So
`cluster_flags` marks where clusters begin, and also which vowels depend on a consonant."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from llmcurate.base.kernels import njit
from tokenize_kit.judge.words import code_point
from tokenize_kit.pattern.categories import by_code_point

# Made by scripts/uax29_table.py (its end is marked below); `cluster_classes` unpacks it.
# Unicode (R) Data Files, Copyright (C) Unicode, Inc., Unicode License v3.
UNICODE = "18.0.0"
RUNS = (
    "c-rk(JB(IE6h8B~kN@8Pad+8e7k>74mcX(=zy-lYzz7yZJAp`0Ok52#CMH{`1=Yoj@diUed?Zq6jENR%Wk({3#VT5%1&"
    "zT3jR}Q?CYsogjo&#l`?J{DZ*lI-ojI>Lb7tl{rqIf0rOYTjZ>FhLDKbXk`=j-X^p5r!y{Y{!QeJ^{Bts8pDHXmXWfbl"
    "9<5Xe(oX;}mN=XZsrD^$BH1K^o1MY*qMJ@bKVossYnv_pyC)$0PrUYX<{A8xQYZQ&RtzI=^xiLO(?2>9&Z{~8bFoqVh7"
    "#ne8q+AAq`_5ukg&Ek<m<KH>v22|dE|zbj-}cgnwFA+PCJWN=$cX1!+ERG#*<me7umhQd<I-@S?TkTY+;JTK>)k3T=D*"
    "Lo1X@;m*FnosJrrU9KGPVn7FIIrL%$O3Rn%%48>4EVGvj@5M%pRS5mp(jhiDqvDdxZ$sfSgxy%w)$WEVpeRj|FJu%kJ2"
    "6hn>2II6;BLY6cczN45qT;soHYZ)aqM<b^fhGQ)<b%NMt^dxlk!;T4A$nNpoMuoT{GRQN(MOOWY+gZaO%%!zj3f^gslu"
    "M;&y>Y5GPS=?;-nve-rt8!rvNb%fIchJq7K$gz)ATdD{bhy~ZbD}Y)&`Op`y@hHlZ%BGTN3-bJdOw2SHZOz?Q0xy@EZ0"
    "SyeYK2QjgFnj-lk+eu*^40RGDAHF7!ih3wdzKT17b52e`q)J^+>^(`sn_5d;By-;qzxxx{K9~yim_H@>VeKgW0GzVXEj"
    "sd+NHnk&0u{DIHAK~R_`d0ZP^p-Wsss!hrCQU{ioc1<oy{TxyPtzXmgPyHY>Q$Ql(D*RJr+hDLs7kVxq3ir}M`5Z!hwq"
    "Jp71E?iq_2gvv^M^$_-}+X<<OGIIFi3=QyJ%(kH<!%j#2ob;yBACaomDR`44hQlw-az8D}|rpAS0f($Owc8hzrnfLt%m"
    "+c?jw<(6&Dq0j5<M*5o_xnVH64xNXh)D?pbxWs9);2nKteHuf223v5~M7=lfD7gj;au|LJbeS{4g!4obO}Ll1e-bBRZ&"
    "QI~qaP*YG|k{FZSbYsj_uYIqzrfy<b`ot!kHC$zF8h{37;(2q5`+i4xfe@A8tR+a0DAS2;UT`3pvVn)f~6pAYXNzgu8$"
    "Su9U1pcpKz1eXm@fa!Gw1E);QTw5>Y*HCm%JTB9{uqyIzHE+)v9d+1}vmcJyv0uZj~2G<%NDvP($wCMuBi@)+)^B$w0H"
    "vpFf^)OttC;|8}Q*KItJPHT;gr}}qytqffeoYI~OYrnoK(Hn7rls=%snLGlqwS$C0M6xibr(>Uyr-nI@FEvz_j-P76UL"
    "%~4|@&|Ah768A22k~9pqY}f|2UR#^>?5hTm(()v4G~^nnsMpVPQJuJaLkGYyM`2tf<}1G3|?qjW_m7#u(FGZfxoDLjS+"
    "fs`c-DKj4JLh}hJr!>zo&;T6|a-k^jD+Pk4-|tmXHV*YyDG)|_X{ADe`{zPGV)TS+9Ydh$8?J%0IGe{>XcF8ByGMd;Gs"
    "tEkLYFuiR!TDtH?N|P9WLA~dwGPBQ;uEDxy<5~xY;Zf#LJ*$5k{UCM@-z(>k)y6CDIAMUUniIF7!NtW`;FxCZT$~3H8T"
    "HNEDss8iFnee8OI6cGh*Ukj-F0F%#k}5xu$HR06$w^xZSQ%^OZ%uLIK|`0<6kh$7{prQgJ6Gf!NB91nFSeSSr(8cVmf_"
    "}z%X1l{Jk^e~(7sR7QH1Q<Z(UC#OvluOa71WPV={XDXCuT*MX(0Zw)dh|mfK^PJ7u+)Ukg5e{M&Oa>wD3spi&@c1+Un_"
    "}}$-z?e6BleRgRXMfunq9~ETDTY!sag8tyMvbQZZ<O$Qu7+)qJ`UptmQ*!kCP<1e~|32>|b}cwkXby#kij)kzSeZflcj"
    "nc?zdfZq(=Cn*!Sp9`MWLwJvRIhFxA+Ln|920TW}3_XPMtKt4B!1-g~Lo}-q3a~syzeBfFHBNmfKY+;sgR^J{vM4s#g@"
    "JA8KL`Pwzv?P70}S2jZH0udmNR<2o-@ua7~tnWmASl$>f7bN+T91P"
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
_NON_JOINER = 0x200C  # the only character of class Extend that ends a conjunct
BEGINS, DEPENDS, IS_CHARACTER = 1, 2, 4  # of `cluster_flags`


@lru_cache(maxsize=1)
def cluster_classes() -> np.ndarray:
    """Return uint8[0x110000]: each code point's class, an index in CLASSES, plus flag bits."""
    return by_code_point(RUNS)


@njit(nogil=True)
def _joined(before, kind):
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
    """Return uint8[bytes + 1], bit flags of each byte of the texts and of the texts' end. BEGINS: a
    cluster or a row begins at the byte (also set at the end); DEPENDS: a mark or dependent vowel
    begins there; IS_CHARACTER: a character begins there. data: uint8[], valid UTF-8; offsets:
    int64[rows + 1]; classes: the result of cluster_classes."""
    first = offsets[0]
    flags = np.zeros(offsets[-1] - first + 1, np.uint8)
    for row in range(len(offsets) - 1):
        i, end = offsets[row], offsets[row + 1]
        before = np.int64(_CONTROL)  # always followed by a break
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
    """Return bool[tokens]: True for tokens that begin or end within a cluster. flags: the result of
    `cluster_flags`; starts, ends: int64[tokens], relative to the first byte of the flags."""
    return (flags[starts] & flags[ends] & BEGINS) == 0


def only_marks(flags: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return bool[tokens]: True for tokens of whole characters that are all marks or dependent
    vowels. The arguments are those of `cluster_cuts`."""
    firm = np.zeros(len(flags) + 1, np.int32 if len(flags) < 1 << 31 else np.int64)
    np.cumsum((flags & (DEPENDS | IS_CHARACTER)) == IS_CHARACTER, out=firm[1:])
    at_characters = (flags[starts] & IS_CHARACTER) > 0
    return at_characters & (ends > starts) & (firm[starts] == firm[ends])
