"""Codes of languages: a model's label, ISO 639-1 and ISO 639-3 as one another's names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

# ISO 639-1 to ISO 639-3 (https://iso639-3.sil.org/code_tables/639/data), sh included, which
# ISO 639-1 gave up and models still use.
_TWO_TO_THREE = """
aa:aar ab:abk ae:ave af:afr ak:aka am:amh an:arg ar:ara as:asm av:ava ay:aym az:aze ba:bak
be:bel bg:bul bi:bis bm:bam bn:ben bo:bod br:bre bs:bos ca:cat ce:che ch:cha co:cos cr:cre
cs:ces cu:chu cv:chv cy:cym da:dan de:deu dv:div dz:dzo ee:ewe el:ell en:eng eo:epo es:spa
et:est eu:eus fa:fas ff:ful fi:fin fj:fij fo:fao fr:fra fy:fry ga:gle gd:gla gl:glg gn:grn
gu:guj gv:glv ha:hau he:heb hi:hin ho:hmo hr:hrv ht:hat hu:hun hy:hye hz:her ia:ina id:ind
ie:ile ig:ibo ii:iii ik:ipk io:ido is:isl it:ita iu:iku ja:jpn jv:jav ka:kat kg:kon ki:kik
kj:kua kk:kaz kl:kal km:khm kn:kan ko:kor kr:kau ks:kas ku:kur kv:kom kw:cor ky:kir la:lat
lb:ltz lg:lug li:lim ln:lin lo:lao lt:lit lu:lub lv:lav mg:mlg mh:mah mi:mri mk:mkd ml:mal
mn:mon mr:mar ms:msa mt:mlt my:mya na:nau nb:nob nd:nde ne:nep ng:ndo nl:nld nn:nno no:nor
nr:nbl nv:nav ny:nya oc:oci oj:oji om:orm or:ori os:oss pa:pan pi:pli pl:pol ps:pus pt:por
qu:que rm:roh rn:run ro:ron ru:rus rw:kin sa:san sc:srd sd:snd se:sme sg:sag sh:hbs si:sin
sk:slk sl:slv sm:smo sn:sna so:som sq:sqi sr:srp ss:ssw st:sot su:sun sv:swe sw:swa ta:tam
te:tel tg:tgk th:tha ti:tir tk:tuk tl:tgl tn:tsn to:ton tr:tur ts:tso tt:tat tw:twi ty:tah
ug:uig uk:ukr ur:urd uz:uzb ve:ven vi:vie vo:vol wa:wln wo:wol xh:xho yi:yid yo:yor za:zha
zh:zho zu:zul
"""
THREE = dict(pair.split(":") for pair in _TWO_TO_THREE.split())
TWO = {three: two for two, three in THREE.items()}

# lid.176 has the codes of Wikipedias: there als is Alemannic (gsw), and bh is Bihari, for which
# only ISO 639-2 has a code. With a script (als_Latn, as in NLLB) als is ISO's Tosk Albanian.
_WIKIPEDIA = {"als": "gsw", "bh": "bih"}

# Individual languages that models with scripts (NLLB, OpenLID, GlotLID) name where ISO 639-1 has
# the macrolanguage (https://iso639-3.sil.org/code_tables/macrolanguage_mappings/data).
MACROLANGUAGE = {
    "als": "sqi",
    "arb": "ara",
    "ayr": "aym",
    "azj": "aze",
    "cmn": "zho",
    "ekk": "est",
    "gaz": "orm",
    "khk": "mon",
    "kmr": "kur",
    "lvs": "lav",
    "npi": "nep",
    "ory": "ori",
    "pbt": "pus",
    "pes": "fas",
    "plt": "mlg",
    "quy": "que",
    "swh": "swa",
    "uzn": "uzb",
    "ydd": "yid",
    "zsm": "msa",
}
# A language with a script, a region or both: BCP 47's `zh-Hant-TW`, and with underscores.
_TAG = re.compile(r"([A-Za-z]{2,3})(?:[-_][A-Z][a-z]{3})?(?:[-_][A-Za-z]{2})?")


def script(label: str) -> str | None:
    """The ISO 15924 part of `eng_Latn`; None where the label has none."""
    language, _, rest = label.partition("_")
    well_formed = language.isascii() and len(rest) == 4 and rest.isascii() and rest.isalpha()
    return rest if well_formed and rest == rest.capitalize() else None


def iso639_3(label: str) -> str | None:
    """The ISO 639-3 code of `en`, `eng`, `eng_Latn`; None where the label is no code.

    Three letters stand for themselves; only Wikipedia's `als` is another language to ISO.
    """
    wrote = script(label)
    language = label[: -len(wrote) - 1] if wrote else label
    if not wrote and language in _WIKIPEDIA:
        return _WIKIPEDIA[language]
    if language in THREE:
        return THREE[language]
    three = len(language) == 3 and language.isascii() and language.isalpha() and language.islower()
    return language if three else None


def comparable(label: str) -> str:
    """The code that labels of one language share: the macrolanguage's, else the label itself. Of
    `zh-TW` and `EN_us` the language alone counts, in any case."""
    tag = _TAG.fullmatch(label)
    code = iso639_3(label) or (iso639_3(tag[1].lower()) if tag else None)
    return label if code is None else MACROLANGUAGE.get(code, code)


def chosen(keep: Iterable[str], labels: Iterable[str]) -> frozenset[str]:
    """The labels that `keep` names: by the label itself, or by a code of its language.

    Raises:
        ValueError: a name stands for none of the labels; the message says which are near.
    """
    labels = list(labels)
    chosen_labels: set[str] = set()
    for name in keep:
        if name in labels:
            chosen_labels.add(name)
            continue
        same, wrote = comparable(name), script(name)
        alike = [x for x in labels if comparable(x) == same]
        # A label without a script is of all of the language's: lid.176's `th` is `tha_Thai`, too.
        matching = [x for x in alike if wrote is None or script(x) in (None, wrote)]
        if not matching:
            near = alike or get_close_matches(name, labels, 3, 0.5) or sorted(labels)[:5]
            raise ValueError(
                f"the model has no label for {name!r}; among its {len(labels)}: {', '.join(near)}"
            )
        chosen_labels.update(matching)
    return frozenset(chosen_labels)
