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
        ("zh-yue", None, None),
        ("spam", None, None),
        ("EN", None, None),
        ("not_spam", None, None),
        ("", None, None),
        ("_Latn", None, "Latn"),
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
        ("en eng EN Eng eng_Latn EN_us en-US EN-gb", "eng"),
        ("zh zho cmn zh-TW zh_TW ZH-tw zho_Hant cmn_Hani zh_Hant_TW zh-Hant-TW", "zho"),
        ("als_Latn sq SQ sq_AL sqi_Latn", "sqi"),
        ("als ALS als-CH", "gsw"),
        ("not_spam", "not_spam"),
        ("en-x-y", "en-x-y"),
        ("th-own.yaml", "th-own.yaml"),
    ],
)
def test_labels_of_one_language_are_alike_in_any_case_and_region(labels: str, code: str) -> None:
    assert {languages.comparable(label) for label in labels.split()} == {code}


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
