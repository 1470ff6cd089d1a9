# ruff: noqa: E501 - letters of other scripts count more columns than they take
"""The shares of texts, of repeated texts and of menus that stay under `fineweb2`, by language.

    python -m benchmarks.languages [--web OUT] [--set STEP.KEY=VALUE ...]

Genuine texts: those that the shipped profiles were fitted to (every other document of longtext/),
the others (held out), as they are, wrapped at a column, as one line; news (NTREX, sentences put
together, never fitted to); with --web, an OUT of `extract` then `language` on real pages. Damaged
ones: the held-out texts with lines, blocks or all of it repeated, and menus in their place. The
recipe's steps that judge single documents run, language first; dedup does not.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import random
import textwrap
from collections.abc import Iterator
from pathlib import Path

from benchmarks.shared_texts import need, sized

FILES = {
    "en": "en-novels",
    "th": "th-thaigov",
    "zh": "zh-modern",
    "ja": "ja-aozora",
    "de": "de-novels",
    "fr": "fr-novels",
    "ru": "ru-novels",
    "hi": "indic-stories",
    "ta": "indic-stories",
    "bn": "indic-stories",
}
SIZE, MOST = 4000, sized(150, 3)  # characters of a text, texts of a kind
UNSPACED = ("th", "zh", "ja")
# Written for this script: what sites have in their menus.
MENUS = {
    "en": "Home|About us|Contact|News and events|Products|Services|Careers|Our team|Privacy policy"
    "|Sitemap|Sign in|Register|Shopping cart|Help|FAQ|Downloads|Press releases|Investors|Gallery"
    "|Blog|Partners|Support|Opening hours|Terms of use|Newsletter|Search|Events calendar|Projects"
    "|Publications|Directions",
    "th": "หน้าแรก|เกี่ยวกับเรา|ติดต่อเรา|ข่าวประชาสัมพันธ์|ประกาศจัดซื้อจัดจ้าง|ผลิตภัณฑ์|บริการประชาชน|ร่วมงานกับเรา"
    "|โครงสร้างองค์กร|นโยบายความเป็นส่วนตัว|แผนผังเว็บไซต์|เข้าสู่ระบบ|สมัครสมาชิก|ตะกร้าสินค้า|ช่วยเหลือ|คำถามที่พบบ่อย"
    "|ดาวน์โหลดเอกสาร|ภาพกิจกรรม|กฎหมายและระเบียบ|วิสัยทัศน์และพันธกิจ|ประวัติความเป็นมา|ผู้บริหาร|ร้องเรียนร้องทุกข์"
    "|สถิติผู้เข้าชม|เว็บบอร์ด|ปฏิทินกิจกรรม|ค้นหา|แผนที่|รายงานประจำปี|ข้อมูลข่าวสาร",
    "zh": "首页|关于我们|联系我们|新闻中心|产品展示|服务项目|人才招聘|组织机构|隐私政策|网站地图|登录|注册|购物车"
    "|帮助中心|常见问题|资料下载|通知公告|政策法规|图片新闻|友情链接|企业文化|在线留言|招标信息|信息公开"
    "|办事指南|领导信箱|专题专栏|统计数据|搜索|设为首页",
    "ja": "ホーム|会社概要|お問い合わせ|ニュース|製品情報|サービス|採用情報|組織図|プライバシーポリシー"
    "|サイトマップ|ログイン|会員登録|カート|ヘルプ|よくある質問|資料ダウンロード|お知らせ|アクセス|ギャラリー"
    "|ブログ|利用規約|検索|イベント情報|株主の皆様へ|事業内容|店舗一覧|関連リンク|年間予定|広報誌|入札情報",
    "de": "Startseite|Über uns|Kontakt|Aktuelles|Produkte|Leistungen|Karriere|Unser Team|Datenschutz"
    "|Impressum|Anmelden|Registrieren|Warenkorb|Hilfe|Häufige Fragen|Downloads|Pressemitteilungen"
    "|Anfahrt|Galerie|Blog|Partner|Öffnungszeiten|AGB|Newsletter|Suche|Veranstaltungen|Projekte"
    "|Termine und Fristen|Rathaus|Ortsplan",
    "fr": "Accueil|Qui sommes-nous|Contact|Actualités|Produits|Nos services|Recrutement|Notre équipe"
    "|Mentions légales|Plan du site|Connexion|Inscription|Panier|Aide|Foire aux questions"
    "|Téléchargements|Communiqués de presse|Galerie|Blog|Partenaires|Horaires|Conditions générales"
    "|Lettre d'information|Recherche|Agenda|Projets|Publications|Accès|Mairie|Démarches",
    "ru": "Главная|О компании|Контакты|Новости и акции|Продукция|Услуги|Вакансии|Структура"
    "|Политика конфиденциальности|Карта сайта|Вход|Регистрация|Корзина|Помощь|Вопросы и ответы"
    "|Скачать|Пресс-центр|Документы|Галерея|Блог|Партнёры|Часы работы|Условия|Подписка|Поиск"
    "|Календарь событий|Проекты|Отзывы|Доставка|Оплата",
    "hi": "मुखपृष्ठ|हमारे बारे में|संपर्क करें|समाचार|उत्पाद|सेवाएं|करियर|गोपनीयता नीति|साइट मानचित्र|लॉगिन|पंजीकरण"
    "|कार्ट|सहायता|सामान्य प्रश्न|डाउनलोड|प्रेस विज्ञप्ति|गैलरी|ब्लॉग|निविदाएं|खोज|कार्यक्रम|परियोजनाएं|प्रकाशन"
    "|सूचना का अधिकार|फोटो",
    "ta": "முகப்பு|எங்களை பற்றி|தொடர்பு|செய்திகள்|தயாரிப்புகள்|சேவைகள்|வேலைவாய்ப்பு|தனியுரிமை|தளவரைபடம்|உள்நுழை"
    "|பதிவு|உதவி|கேள்விகள்|பதிவிறக்கம்|படங்கள்|வலைப்பதிவு|தேடல்|நிகழ்வுகள்|திட்டங்கள்|வெளியீடுகள்",
    "bn": "প্রচ্ছদ|আমাদের সম্পর্কে|যোগাযোগ|সংবাদ|পণ্য|সেবা|চাকরি|গোপনীয়তা নীতি|সাইট ম্যাপ|লগইন|নিবন্ধন|সাহায্য"
    "|প্রশ্ন|ডাউনলোড|বিজ্ঞপ্তি|ছবি|ব্লগ|অনুসন্ধান|অনুষ্ঠান|প্রকল্প|প্রকাশনা|দরপত্র",
}


def longtext(lang: str, half: int) -> Iterator[str]:
    """Texts of every other document, or of those between, cut at lines."""
    import zstandard

    (path,) = need(f"longtext/{FILES[lang]}.jsonl.zst")
    with path.open("rb") as file:
        stream = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8")
        rows = [row for row in map(json.loads, stream) if row["lang"] == lang]
    for row in rows[half::2]:
        lines, size, cut = [], 0, 0
        for line in row["text"].split("\n"):
            lines.append(line)
            size += len(line) + 1
            if size >= SIZE and cut < 3:
                yield "\n".join(lines)
                lines, size, cut = [], 0, cut + 1
        if size > SIZE // 4 and cut < 3:
            yield "\n".join(lines)


def news(lang: str) -> Iterator[str]:
    """Twelve sentences a text, as lines, as one paragraph, and as paragraphs of three."""
    with gzip.open(need("langid/langid-dev.jsonl.gz")[0], "rt", encoding="utf-8") as file:
        rows = map(json.loads, file)
        texts = [r["text"] for r in rows if r["lang"] == lang and r["source"].startswith("NTREX")]
    space = "" if lang in ("zh", "ja") else " "
    for i in range(0, len(texts) - 11, 12):
        twelve = texts[i : i + 12]
        yield "\n".join(twelve)
        yield space.join(twelve)
        yield "\n\n".join(space.join(twelve[k : k + 3]) for k in range(0, 12, 3))


def pages(out: Path, lang: str) -> Iterator[str]:
    """The texts of real pages of a language that have a thousand characters."""
    import pyarrow.parquet as pq

    for path in sorted((out / "corpus").glob("part-*.parquet")):
        table = pq.read_table(path, columns=["text", "lang"])
        for text, label in zip(*(table[n].to_pylist() for n in ("text", "lang")), strict=True):
            if label == lang and len(text) >= (300 if lang in UNSPACED else 1000):
                yield text


def wrapped(text: str, lang: str) -> str:
    """Its paragraphs as lines of one width."""
    width = 40 if lang in UNSPACED else 80
    lines = [textwrap.wrap(x, width) for x in text.split("\n")]
    return "\n".join(line for part in lines for line in part)


def damaged(texts: list[str], lang: str) -> Iterator[tuple[str, str]]:
    """(what was done, text)."""
    space = "" if lang in ("zh", "ja") else " "
    for text in texts:
        lines = [x for x in text.split("\n") if x.strip()]
        one = space.join(lines)
        yield "lines twice", "\n".join(x for x in lines for _ in (1, 2))
        yield "line x 50", "\n".join([max(lines, key=len)] * 50)
        yield "block x 5", "\n".join(lines[: max(3, len(lines) // 5)] * 5)
        yield "text x 3", "\n".join([text] * 3)
        yield "in a line x 3", space.join([one[: len(one) // 2]] * 3)
    rng = random.Random(0)
    items = MENUS[lang].split("|")
    for _ in range(min(len(texts), 40)):
        menu = [rng.choice(items) for _ in range(rng.randint(60, 150))]
        once = rng.sample(items, len(items))
        for name, mark in (("lines", "\n"), ("bars", " | "), ("bullets", "\n- "), ("blanks", " ")):
            yield f"menu, {name}", mark.join(menu)
            yield f"menu once, {name}", mark.join(once)
        yield "menu line x 20", "\n".join([" | ".join(once[:8])] * 20)


def judged(texts: list[str], lang: str, steps: list) -> tuple[int, dict[str, int]]:
    """(how many stay, documents by rule)."""
    from curate.documents.documents import documents

    if not texts:
        return 0, {}
    docs = documents({"id": [str(i) for i in range(len(texts))], "text": texts})
    for step in steps:
        docs = step.apply(docs.within(step.label))
    rules: dict[str, int] = {}
    for drop in docs.drops:
        rules[drop.name] = rules.get(drop.name, 0) + len(drop.rows)
    return int((~docs.marked()).sum()), rules


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--web", type=Path, help="OUT of `extract` and `language` on real pages")
    parser.add_argument("--set", action="append", default=[], dest="sets")
    parser.add_argument("--langs", default=",".join(FILES))
    parser.add_argument("--words", default="estimate", help="auto: by installed dictionaries")
    parser.add_argument("--rules", action="store_true", help="each kind, and what dropped how many")
    options = parser.parse_args()

    from curate.steps.contracts import Step
    from curate.steps.recipe import load

    genuine = ("fitted", "held out", "wrapped", "one line", "news", "pages")
    print("| % that stay |", " | ".join(genuine), "| repeated | menus |")
    print("|---" * (len(genuine) + 3), "|", sep="")
    for lang in options.langs.split(","):
        counting = ("gopher_quality", "gopher_repetition", "fineweb_quality")
        words = (f"{step}.words={options.words}" for step in counting)
        recipe = load("fineweb2", (f"language.keep=[{lang}]", *words, *options.sets))
        apart = ("extract", "url_filter", "pii")
        steps = [s for s in recipe.steps if isinstance(s, Step) and s.name not in apart]
        held_out = list(longtext(lang, 1))[:MOST]
        kinds: dict[str, list[str]] = {
            "fitted": list(longtext(lang, 0))[:MOST],
            "held out": held_out,
            "wrapped": [wrapped(x, lang) for x in held_out],
            "one line": [x.replace("\n", " ") for x in held_out],
            "news": list(news(lang)),
            "pages": list(pages(options.web, lang)) if options.web else [],
        }
        for name, text in damaged(held_out[:60], lang):
            kinds.setdefault(name, []).append(text)
        shares: dict[str, list[int]] = {}
        for name, texts in kinds.items():
            kept, rules = judged(texts, lang, steps)
            group = name if name in genuine else "menus" if "menu" in name else "repeated"
            share = shares.setdefault(group, [0, 0])
            share[0] += kept
            share[1] += len(texts)
            if options.rules and texts:
                first = sorted(rules.items(), key=lambda x: -x[1])[:5]
                dropped = ", ".join(f"{rule} {n}" for rule, n in first)
                print(f"  {lang}, {name}: {kept} of {len(texts)} stay; {dropped}")
        cells = [f"{100 * k / n:.0f} of {n}" if n else "-" for k, n in shares.values()]
        print("|", " | ".join([lang, *cells]), "|", flush=True)


if __name__ == "__main__":
    main()
