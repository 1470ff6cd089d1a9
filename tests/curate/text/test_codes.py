"""Codes: one language under several names."""

from __future__ import annotations

import pytest

from curate.text import languages


@pytest.mark.parametrize(
    ("label", "code", "script"),
    [
        ("en", "eng", None),
        ("eng", "eng", None),
        ("eng_Latn", "eng", "Latn"),
        ("zho_Hant", "zho", "Hant"),
        ("ceb", "ceb", None),
        ("sh", "hbs", None),
        ("als", "gsw", None),  # the Alemannic Wikipedia, in lid.176
        ("als_Latn", "als", "Latn"),  # Tosk Albanian, in NLLB
        ("zh-yue", "yue", None),
        ("zh_min_nan", "nan", None),
        ("zh-classical", "lzh", None),
        ("sr_RS.UTF-8@latin", "srp", "Latn"),
        ("zh-hans-cn", "zho", "Hans"),
        ("ger", "deu", None),
        ("iw", "heb", None),
        ("mo", "ron", None),
        ("zho,eng", "zho", None),  # Common Crawl lists the languages of a page
        ("EN", "eng", None),
        ("spam", None, None),
        ("low_quality", None, None),
        ("xx", None, None),
        ("lang", None, None),
        ("C.UTF-8", None, None),
        ("not_spam", None, None),
        ("", None, None),
        ("_Latn", None, None),
    ],
)
def test_labels_have_codes(label: str, code: str | None, script: str | None) -> None:
    assert (languages.iso639_3(label), languages.script_of(label)) == (code, script)


@pytest.mark.parametrize(
    "label",
    "ace_Arab ace_Latn arb_Latn azj_Latn kas_Deva min_Arab taq_Tfng zsm_Latn zho_Hant".split()
    + "cmn_Hani und_Zyyy zxx_Zyyy aai_Latn crk_Cans srp_Cyrl".split(),
)
def test_labels_of_nllb_and_glotlid_have_code_and_script(label: str) -> None:
    assert languages.iso639_3(label) == label[:3]
    assert languages.script_of(label) == label[4:]


@pytest.mark.parametrize(
    ("labels", "code"),
    [
        ("en eng EN Eng eng_Latn EN_us en-US EN-gb en_US.UTF-8 en-x-y", "eng"),
        ("zh zho chi cmn zh-cmn-Hans-CN zh-guoyu zh-TW zh_TW ZH-tw zho_Hant", "zho"),
        ("cmn_Hani zh_Hant_TW zh-Hant-TW zh_CN.GB18030", "zho"),
        ("als_Latn sq SQ sq_AL sqi_Latn", "sqi"),
        ("als ALS als-CH", "gsw"),
        ("not_spam", "not_spam"),
        ("nb nob nb_NO.utf8 no no-bok", "nor"),
        ("yue zh-yue yue-Hant-HK", "yue"),
        ("th-own.yaml", "th-own.yaml"),
    ],
)
def test_labels_of_one_language_are_alike_in_any_case_and_region(labels: str, code: str) -> None:
    assert {languages.comparable(label) for label in labels.split()} == {code}


@pytest.mark.parametrize(
    ("label", "macro"),
    [
        ("yue", "zho"),
        ("lzh", "zho"),
        ("nn", "nor"),
        ("arz_Arab", "ara"),
        ("ltg", "lav"),
        ("de", None),
    ],
)
def test_a_language_has_its_macrolanguage(label: str, macro: str | None) -> None:
    assert languages.macrolanguage(label) == macro


@pytest.mark.parametrize(
    ("label", "entry"),
    [
        ("zh-CN", "zh_Hans"),
        ("zh_Hant", None),
        ("yue", "zh_Hans"),
        ("arz", "ar"),
        ("nn", "nn"),
        ("nn_NO", "nn"),
        ("no", "nb"),
        ("EN_us", "eng_Latn"),
        ("xx", None),
    ],
)
def test_an_entry_holds_for_its_language_then_for_those_of_its_macrolanguage(
    label: str, entry: str | None
) -> None:
    assert languages.entry_for(label, ["zh_Hans", "ar", "nb", "nn", "eng_Latn"]) == entry


def test_a_macrolanguage_without_a_label_keeps_its_languages() -> None:
    assert languages.labels_named(["sh"], ["hr", "sr", "de"]) == {"hr", "sr"}
    assert languages.labels_named(["sh"], ["hr", "sh"]) == {"sh"}


def test_codes_are_those_of_iso_639() -> None:
    pycountry = pytest.importorskip("pycountry")
    of_iso = {x.alpha_3: x for x in pycountry.languages}
    two = {x.alpha_2: code for code, x in of_iso.items() if hasattr(x, "alpha_2")}
    assert {label: languages.iso639_3(label) for label in two} == two
    bibliographic = {x.bibliographic: c for c, x in of_iso.items() if hasattr(x, "bibliographic")}
    assert {label: languages.iso639_3(label) for label in bibliographic} == bibliographic
    assert {c for c in of_iso if languages.iso639_3(c) != c} == {"als"}  # see above


def test_macrolanguages_stand_for_what_cldr_says() -> None:
    data = pytest.importorskip("langcodes.data_dicts")
    for label, other in data.NORMALIZED_MACROLANGUAGES.items():
        # CLDR has bh as Bhojpuri and Him as Srx, which ISO 639-3 has apart.
        if label not in ("bh", "him"):
            assert languages.comparable(label + "_Zyyy") == languages.comparable(other), label


def test_every_two_letter_code_has_a_three_letter_one() -> None:
    assert len(languages.THREE) == 184
    assert all(len(a) == 2 and len(b) == 3 for a, b in languages.THREE.items())
    assert len(set(languages.THREE.values())) == len(languages.THREE)


@pytest.mark.parametrize("name", ["en", "eng"])
def test_a_language_is_kept_by_any_of_its_codes(name: str) -> None:
    assert languages.labels_named([name], ["de", "en"]) == {"en"}
    assert languages.labels_named([name], ["deu_Latn", "eng_Latn"]) == {"eng_Latn"}


def test_a_language_is_kept_in_all_its_scripts_unless_one_is_named() -> None:
    labels = ["zho_Hans", "zho_Hant", "eng_Latn"]
    assert languages.labels_named(["zh"], labels) == {"zho_Hans", "zho_Hant"}
    assert languages.labels_named(["zho_Hant"], labels) == {"zho_Hant"}


@pytest.mark.parametrize("name", ["th", "tha", "tha_Thai"])
@pytest.mark.parametrize("label", ["th", "tha", "tha_Thai"])
def test_a_language_is_kept_whatever_form_its_label_has(name: str, label: str) -> None:
    assert languages.labels_named([name], ["en", label]) == {label}


def test_a_macrolanguage_stands_for_the_language_that_models_name() -> None:
    assert languages.labels_named(["zh", "ar"], ["cmn_Hani", "arb_Arab"]) == {
        "cmn_Hani",
        "arb_Arab",
    }


def test_a_label_that_the_model_lacks_is_refused_with_near_ones() -> None:
    with pytest.raises(ValueError, match=r"no label for 'eng_Cyrl'.*: eng_Latn"):
        languages.labels_named(["eng_Cyrl"], ["deu_Latn", "eng_Latn"])
    with pytest.raises(ValueError, match=r"no label for 'xx'; among its 2: de, en"):
        languages.labels_named(["xx"], ["de", "en"])
