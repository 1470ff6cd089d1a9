"""Main text of pages in five languages: what decides is structure, not words of one language."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from curate.extract.blocks import main_text


@dataclass(frozen=True)
class Words:
    """What a page is made of. menu, teasers: with blanks between; date: as written there."""

    title: str
    paragraphs: tuple[str, str, str]
    menu: str
    more: str
    teasers: tuple[str, str, str]
    date: str
    footer: str


WORDS = {
    "de": Words(
        "Die alte Mühle am Bach mahlt wieder",
        (
            "Nach zwölf Jahren Stillstand dreht sich das Rad der alten Mühle seit Samstag wieder. "
            "Mehr als zweihundert Besucher kamen, um den ersten Sack Mehl zu sehen.",
            "Der Müller, der das Handwerk von seinem Großvater lernte, hat das Getriebe aus Eichen"
            "holz selbst gebaut. „Das Schwerste war, das Wasser wieder herzuleiten“, sagt er.",
            "Im Herbst soll in der Mühle eine Bäckerei eröffnen. Die Gemeinde gibt für den Umbau "
            "achtzigtausend Euro, den Rest haben die Einwohner gesammelt.",
        ),
        "Start Politik Wirtschaft Sport Wetter",
        "Lesen Sie auch",
        (
            "Stadtrat streitet über neue Parkgebühren",
            "Handballer verlieren das vierte Spiel in Folge",
            "Bahn sperrt Strecke für sechs Wochen",
        ),
        "12.03.2024",
        "Impressum | Datenschutz | © 2024 Talbote",
    ),
    "fr": Words(
        "Le vieux moulin du ruisseau tourne de nouveau",
        (
            "Après douze ans d'arrêt, la roue du vieux moulin tourne de nouveau depuis samedi. "
            "Plus de deux cents visiteurs sont venus voir le premier sac de farine.",
            "Le meunier, qui a appris le métier de son grand-père, a construit lui-même les "
            "engrenages en chêne. « Le plus dur a été de ramener l'eau », dit-il.",
            "À l'automne, une boulangerie doit ouvrir dans le moulin. La commune donne "
            "quatre-vingt mille euros pour les travaux, les habitants ont réuni le reste.",
        ),
        "Accueil Politique Économie Sports Météo",
        "À lire aussi",
        (
            "Le conseil municipal débat du stationnement payant",
            "Quatrième défaite de suite pour les handballeuses",
            "La ligne de train fermée pendant six semaines",
        ),
        "12/03/2024",
        "Mentions légales | Contact | © 2024 Le Courrier",
    ),
    "th": Words(
        "กังหันน้ำเก่าริมลำธารกลับมาหมุนอีกครั้ง",
        (
            "หลังจากหยุดไปนานสิบสองปี กังหันน้ำเก่าริมลำธารกลับมาหมุนอีกครั้งตั้งแต่วันเสาร์ที่ผ่านมา "
            "มีผู้มาเยี่ยมชมมากกว่าสองร้อยคนเพื่อดูแป้งถุงแรกที่โม่เสร็จ",
            "เจ้าของโรงโม่ซึ่งเรียนวิชานี้มาจากคุณปู่ได้สร้างเฟืองจากไม้โอ๊กด้วยมือของตนเอง "
            "เขาบอกว่าส่วนที่ยากที่สุดคือการนำน้ำกลับมาที่เดิม และต้องใช้เวลาเกือบสามปี",
            "ในฤดูใบไม้ร่วงจะมีร้านขนมปังเปิดในโรงโม่แห่งนี้ เทศบาลให้เงินสนับสนุนการปรับปรุงแปดหมื่นยูโร "
            "ส่วนที่เหลือชาวบ้านในหมู่บ้านช่วยกันรวบรวมมา",
        ),
        "หน้าแรก การเมือง เศรษฐกิจ กีฬา อากาศ",
        "ข่าวที่เกี่ยวข้อง",
        (
            "สภาเมืองถกเถียงเรื่องค่าจอดรถใหม่",
            "ทีมแฮนด์บอลแพ้เป็นนัดที่สี่ติดต่อกัน",
            "รถไฟปิดเส้นทางนานหกสัปดาห์",
        ),
        "12 มี.ค. 2567",
        "ติดต่อเรา | นโยบาย | © 2024 ข่าวเช้า",
    ),
    "ja": Words(
        "小川の古い水車が再び回り始めた",
        (
            "十二年間止まっていた古い水車が、土曜日から再び回り始めた。最初の小麦粉の袋を見ようと、"
            "二百人を超える人々が村を訪れた。",
            "祖父から仕事を学んだ粉屋の主人は、樫の木の歯車を自分の手で作った。「一番大変だったのは、"
            "水をもう一度引いてくることでした」と彼は話している。",
            "秋には水車小屋にパン屋が開店する予定だ。改修のために町は八万ユーロを出し、残りは住民が"
            "三年かけて集めたという。",
        ),
        "ホーム 政治 経済 スポーツ 天気",
        "関連記事",
        (
            "市議会、新しい駐車料金で対立",
            "ハンドボール、四連敗を喫する",
            "鉄道、六週間の運休を発表",
        ),
        "2024年3月12日",
        "お問い合わせ | 規約 | © 2024 谷の新聞",
    ),
    "ar": Words(
        "الطاحونة القديمة على الجدول تدور من جديد",
        (
            "بعد اثني عشر عاماً من التوقف، عادت عجلة الطاحونة القديمة إلى الدوران منذ يوم السبت. "
            "وجاء أكثر من مئتي زائر لرؤية أول كيس من الدقيق.",
            "وقد صنع الطحان، الذي تعلم المهنة من جده، التروس من خشب البلوط بيديه. وقال: «كان أصعب "
            "ما في الأمر أن نعيد الماء إلى مجراه»، واستغرق ذلك ثلاث سنوات.",
            "ومن المقرر أن يفتح مخبز في الطاحونة في الخريف. وتدفع البلدية ثمانين ألف يورو لأعمال "
            "الترميم، أما الباقي فقد جمعه سكان القرية.",
        ),
        "الرئيسية السياسة الاقتصاد الرياضة الطقس",
        "اقرأ أيضا",
        (
            "المجلس البلدي يناقش رسوم المواقف الجديدة",
            "فريق كرة اليد يخسر للمرة الرابعة على التوالي",
            "إغلاق خط القطار لمدة ستة أسابيع",
        ),
        "12 مارس 2024",
        "اتصل بنا | الخصوصية | © 2024 صحيفة الوادي",
    ),
}


def semantic(lang: str, w: Words) -> str:
    menu = "".join(f"<li><a href='/{k}'>{word}</a></li>" for k, word in enumerate(w.menu.split()))
    teasers = "".join(
        f"<li><time>{w.date}</time> <a href='/a{k}'>{t}</a></li>" for k, t in enumerate(w.teasers)
    )
    body = "".join(f"<p>{text}</p>" for text in w.paragraphs)
    return (
        f"<!DOCTYPE html><html lang={lang}><head><title>{w.title}</title></head><body>"
        f"<header><nav><ul>{menu}</ul></nav></header><main><article><h1>{w.title}</h1>{body}"
        f"</article><aside><h2>{w.more}</h2><ul>{teasers}</ul></aside></main>"
        f"<footer><p>{w.footer}</p></footer></body></html>"
    )


def divisions(lang: str, w: Words) -> str:
    """The same page without an element or a class that says what it is."""
    menu = " | ".join(f"<a href='/{k}'>{word}</a>" for k, word in enumerate(w.menu.split()))
    teasers = "".join(
        f"<div class=b{k}><a href='/a{k}'>{t}</a><br>{w.date}</div>"
        for k, t in enumerate(w.teasers)
    )
    body = "".join(f"<div class=z>{text}</div>" for text in w.paragraphs)
    return (
        f"<html lang={lang}><title>{w.title}</title><body><div class=q>{menu}</div>"
        f"<div class=y><h1>{w.title}</h1>{body}</div><div class=x><div class=u>{w.more}</div>"
        f"{teasers}</div><div class=q>{w.footer}</div></body></html>"
    )


@pytest.mark.parametrize("page", [semantic, divisions], ids=["elements", "divisions"])
@pytest.mark.parametrize("lang", WORDS)
def test_paragraphs_are_main_text_and_other_articles_are_not(
    lang: str, page: Callable[[str, Words], str]
) -> None:
    words = WORDS[lang]
    text = main_text(page(lang, words))
    assert all(paragraph in text for paragraph in words.paragraphs)
    assert not any(teaser in text for teaser in words.teasers)
    assert words.footer not in text
