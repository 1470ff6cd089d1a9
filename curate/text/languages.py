"""Languages: their codes, and profiles of what the rules made for English must know of another.

Codes are a model's label, ISO 639-1 and ISO 639-3 as one another's names. A profile says how the
words of a language are counted, which words and end marks its prose has, and the limits that stand
in for a rule's own. The shipped ones are in profiles.yaml beside this module, with the source of
every figure; benchmarks/language_profiles.py learns others in the same form.

Words of scripts without spaces are counted by dictionaries, where a package of PyPI brings a list
of them (the extra `segment`). Which are used is part of a step's settings as they are written down,
with a hash of each list: what a run counts does not depend on what else is installed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmcurate.base.disk.files import check_regular
from llmcurate.base.errors import UsageError

if TYPE_CHECKING:
    from tokenize_kit.segment.dictionary import Dictionary

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


def script_of(label: str) -> str | None:
    """The ISO 15924 part of `eng_Latn`; None where the label has none."""
    language, _, rest = label.partition("_")
    well_formed = language.isascii() and len(rest) == 4 and rest.isascii() and rest.isalpha()
    return rest if well_formed and rest == rest.capitalize() else None


def iso639_3(label: str) -> str | None:
    """The ISO 639-3 code of `en`, `eng`, `eng_Latn`; None where the label is no code.

    Three letters stand for themselves; only Wikipedia's `als` is another language to ISO.
    """
    wrote = script_of(label)
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


def labels_named(keep: Iterable[str], labels: Iterable[str]) -> frozenset[str]:
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
        same, wrote = comparable(name), script_of(name)
        alike = [x for x in labels if comparable(x) == same]
        # A label without a script is of all of the language's: lid.176's `th` is `tha_Thai`, too.
        matching = [x for x in alike if wrote is None or script_of(x) in (None, wrote)]
        if not matching:
            near = alike or get_close_matches(name, labels, 3, 0.5) or sorted(labels)[:5]
            raise ValueError(
                f"the model has no label for {name!r}; among its {len(labels)}: {', '.join(near)}"
            )
        chosen_labels.update(matching)
    return frozenset(chosen_labels)


# Profiles.

SHIPPED = Path(__file__).with_name("profiles.yaml")
FILE = "profiles.yaml"  # in a folder that holds profiles
ENGLISH = "eng"
AUTO, NONE, ESTIMATE = "auto", "none", "estimate"


@dataclass(frozen=True)
class Profile:
    """One language.

    name: its code as the file has it. clusters: the mean length of a word in grapheme clusters,
    for a script without spaces; 0 for one with spaces. stop_words: the most frequent words.
    end_marks: the characters that end its sentences, closing quotes included; empty where it
    writes none. limits: by step and setting, what stands in for the step's own.
    """

    name: str
    clusters: float = 0.0
    stop_words: tuple[str, ...] = ()
    end_marks: str = ""
    limits: Mapping[str, Mapping[str, float | dict[int, float]]] = field(default_factory=dict)
    words: str = "estimate"  # by which dictionaries a step counts

    @property
    def code(self) -> str:
        """What all labels of the language have in common, as `codes.comparable` says it."""
        return comparable(self.name)

    @property
    def digest(self) -> str:
        """A hash of all that it says."""
        facts = [self.name, self.clusters, self.stop_words, self.end_marks, self.limits]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _profile(path: Path, name: str, values: Any) -> Profile:
    """The profile of an entry of a file; UsageError names what is wrong with it."""
    where = f"{path}: profile {name}"
    if not isinstance(values, dict):
        raise UsageError(f"{where}: is no mapping")
    # `word_length` and `source` are for readers, `reference` for benchmarks/language_profiles.py.
    for key in values.keys() - {
        "source", "word_length", "clusters", "stop_words", "end_marks", "limits", "reference",
    }:  # fmt: skip
        raise UsageError(f"{where}: unknown key {key!r}")
    clusters, words = values.get("clusters", 0.0), values.get("stop_words", [])
    marks, limits = values.get("end_marks", ""), values.get("limits", {})
    if not isinstance(clusters, (int, float)) or not (clusters == 0 or 1 <= clusters <= 20):
        raise UsageError(f"{where}: clusters is a number from 1 to 20")
    if not isinstance(words, list) or not all(isinstance(w, str) and w for w in words):
        raise UsageError(f"{where}: stop_words is a list of words")
    if not isinstance(marks, str):
        raise UsageError(f"{where}: end_marks is a text of characters")
    if not isinstance(limits, dict) or not all(isinstance(x, dict) for x in limits.values()):
        raise UsageError(f"{where}: limits has settings by step")
    return Profile(name, float(clusters), tuple(dict.fromkeys(words)), marks, limits)


@lru_cache(maxsize=8)
def _read(path: Path, stamp: int) -> dict[str, Profile]:
    from llmcurate.base.disk.yaml_file import read_yaml

    try:
        check_regular(path)
        values = read_yaml(path.read_text("utf-8"), f"profiles {path}")[0]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"profiles {path}: {getattr(error, 'strerror', error)}") from None
    if not isinstance(values, dict) or not values:
        raise UsageError(f"profiles {path}: it has no profile, as `th: {{...}}` would be one")
    # YAML's `no`, which it takes for false, is Norwegian.
    names = {("no" if name is False else str(name)): entry for name, entry in values.items()}
    profiles = [_profile(path, name, entry) for name, entry in names.items()]
    return {profile.code: profile for profile in profiles}


def read(path: Path) -> dict[str, Profile]:
    """Profiles by code of a file, or of the file `profiles.yaml` in a folder; UsageError where it
    is not one."""
    path = path.expanduser()
    path = path / FILE if path.is_dir() else path
    try:
        stamp = path.stat().st_mtime_ns
    except OSError as error:
        raise UsageError(f"profiles {path}: {error.strerror}") from None
    return _read(path, stamp)


def shipped() -> dict[str, Profile]:
    """The profiles that come with the package, by code."""
    return _read(SHIPPED, 0)


@dataclass(frozen=True)
class Chosen:
    """Which profile judges a document. by_code: for a label of that code; always: for every
    document, whatever its label; unlabelled: for one without a label."""

    by_code: Mapping[str, Profile] = field(default_factory=dict)
    always: Profile | None = None
    unlabelled: Profile | None = None

    def of(self, label: str | None) -> Profile | None:
        """The profile for a label of the column `lang`; None: the rule's own limits hold."""
        if self.always is not None or label is None:
            return self.always or self.unlabelled
        return self.by_code.get(comparable(label.partition("-")[0]))

    @property
    def profiles(self) -> list[Profile]:
        """All of them, each once, by code."""
        by_code = {p.code: p for p in (*self.by_code.values(), self.always, self.unlabelled) if p}
        return [by_code[code] for code in sorted(by_code)]


def file_of(setting: str) -> Path | None:
    """The file that a setting names; None where it is auto, none or a language."""
    if setting in (AUTO, NONE) or (comparable(setting) in shipped() and "/" not in setting):
        return None
    path = Path(setting).expanduser()
    return path / FILE if path.is_dir() else path


@lru_cache(maxsize=1)
def _auto() -> Chosen:
    return Chosen({code: p for code, p in shipped().items() if code != ENGLISH})


def chosen(setting: str) -> Chosen:
    """What a setting `profile` means. UsageError where it names neither a language nor a file."""
    if setting == NONE:
        return Chosen()
    if setting == AUTO:
        return _auto()
    path = file_of(setting)
    if path is None:
        return Chosen(always=shipped()[comparable(setting)])
    if not path.exists():
        names = ", ".join(sorted(p.name for p in shipped().values()))
        raise UsageError(
            f"profile {setting}: no language with a profile ({names}), and no file or folder"
        )
    of_file = read(path)
    everyone = {**_auto().by_code, **of_file}
    return Chosen(everyone, unlabelled=next(iter(of_file.values())) if len(of_file) == 1 else None)


# Dictionaries.


@dataclass(frozen=True)
class Source:
    """A list of words: the package that brings it, its file there (a word begins each line), and
    the scripts that it cuts."""

    package: str
    file: str
    scripts: tuple[str, ...]


# Khmer, Burmese and Japanese have no plain list on PyPI that is kept.
SOURCES = {
    "tha": Source("pythainlp", "corpus/words_th.txt", ("Thai",)),
    "lao": Source("laonlp", "corpus/lo_spellcheck_dict.txt", ("Lao",)),
    "zho": Source("jieba", "dict.txt", ("Han",)),
}


def list_of(code: str) -> Path | None:
    """The list of a language, where its package is installed; the package is not loaded."""
    source = SOURCES.get(code)
    try:
        spec = find_spec(source.package) if source else None
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / source.file if source else Path(folder)
        if path.is_file():
            return path
    return None


@lru_cache(maxsize=8)
def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def effective(words: str, codes: Iterable[str]) -> str:
    """A setting `words` as it is here and now: auto becomes `estimate`, or `tha=HASH,zho=HASH` of
    the lists there are for these languages. UsageError where a named list is another or absent."""
    if words == AUTO:
        paths = {code: list_of(code) for code in sorted(set(codes))}
        dictionaries = [f"{code}={_digest(path)}" for code, path in paths.items() if path]
        return ",".join(dictionaries) or ESTIMATE
    for code in named(words):
        dictionary_for(words, code)
    return words


def named(words: str) -> dict[str, str]:
    """The languages that a setting names, and the hash that each list must have, if any."""
    if words in (AUTO, ESTIMATE):
        return {}
    pairs = (entry.strip().partition("=") for entry in words.split(","))
    return {comparable(code): digest for code, _, digest in pairs}


def dictionary_for(words: str, code: str) -> Dictionary | None:
    """The dictionary for a language by a setting that is effective; None: its words are estimated.
    UsageError where the list is absent or another."""
    digests = named(words)
    if code not in digests:
        return None
    path = list_of(code)
    if path is None:
        raise UsageError(
            f"words: no dictionary for {code}: pip install 'llmcurate[segment]', or words: estimate"
        )
    if digests[code] and digests[code] != _digest(path):
        raise UsageError(
            f"words: {path} is another list than the run had ({digests[code]}): install the version"
            f" of {SOURCES[code].package} that it had, or take words: auto for a new run"
        )
    return _words(path, code)


@lru_cache(maxsize=4)
def _words(path: Path, code: str) -> Dictionary:
    from tokenize_kit.segment.dictionary import dictionary_of

    lines = path.read_text("utf-8-sig").splitlines()
    words = {line.split()[0] for line in lines if line.strip()}
    return dictionary_of(words, _digest(path), path, SOURCES[code].scripts)
