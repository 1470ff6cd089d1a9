"""The characters that ROOTS and Data-Juicer count as special, and strip from the ends of words.

Source: ROOTS' parameters_filtering.py (Laurençon et al. 2022; bigscience-workshop/data-preparation)
and Data-Juicer's special_characters.py, which has the same list: ASCII punctuation, digits, white
space, the characters below, and the emoji of the package `emoji`, here by blocks of Unicode.
"""

from __future__ import annotations

import string

_OTHER_SPECIAL = (
    "\u200a\u3000\ufffc’“”–ー一▬…✦\u00ad�£•€«»°·═×士＾˘⇓↓↑←→（）§″′´¿−±∈\ufeff¢ø‚„½¼¾¹²³―⁃，ˌ¸‹›ʺˈʻ¦‐⠀‰"
    "‑≤≥‖◆●■►▼▲▴∆▻¡★☆✱ːº。¯˜¥ɪ≈†上ン：∼⁄・♡✓⊕․．⋅÷１‟；،、¨ाাी्े◦˚゜ʼ≖¤ッツシ℃√！【】‿∞➤～πه۩☛₨➩☻๑٪"
    "♥ıॽ《‘©﴿٬？▷Г♫∟™ª₪®「—❖」﴾》\u200b\x81\x82\x83\x84\x85\x91\x92\x93\x95\x96\x97\x98\x99\x9c\x9d"
    "‼⁉ℹⓂ▪▫▶◀◻◼◽◾⤴⤵〰〽㊗㊙"  # emoji outside the blocks of _EMOJI
)
_EMOJI = (
    (0x2190, 0x21FF),
    (0x2300, 0x23FF),
    (0x2600, 0x27BF),
    (0x2B00, 0x2BFF),
    (0x1F000, 0x1FAFF),
)
SPECIAL = frozenset(
    {*string.punctuation, *string.digits, *string.whitespace, *_OTHER_SPECIAL}
    | {chr(c) for first, last in _EMOJI for c in range(first, last + 1)}
    | {chr(c) for c in (0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F)}
)
