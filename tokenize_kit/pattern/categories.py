"""Properties of code points, as patterns name them: general categories and scripts of Unicode 16.0.

Oniguruma (in `tokenizers` 0.23) and Rust's regex (in tiktoken 0.12) both use Unicode 16.0. The
Unicode version of Python's `unicodedata` depends on the Python release, and text with a letter that
is unknown to it would be cut differently. The tables were therefore read from `tokenizers`, one
category or script at a time over all code points; tests/tokenize_kit/pattern compares some of the
tables again.
"""

from __future__ import annotations

import base64
import zlib
from functools import lru_cache

import numpy as np

NAMES = (
    "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn"
).split()
CODE_POINTS = 0x110000
# White_Space, as \s has it in both engines.
_SPACES = [*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029]
_SPACES += [0x202F, 0x205F, 0x3000]


@lru_cache(maxsize=1)
def categories() -> np.ndarray:
    """Return uint8[0x110000]: each code point's category, an index in NAMES; surrogates are Cn."""
    return by_code_point(CATEGORY_RUNS)


@lru_cache(maxsize=1)
def scripts() -> np.ndarray:
    """Return uint8[0x110000]: each code point's script, an index in SCRIPTS; surrogates are
    Unknown."""
    return by_code_point(SCRIPT_RUNS)


def by_code_point(packed: str) -> np.ndarray:
    """Unpack uint8[0x110000], a value for every code point, from runs of equal values. A run is
    stored as one byte for the value and a varint for the number of code points; all runs are
    compressed by zlib and written in base85."""
    runs = zlib.decompress(base64.b85decode(packed))
    values = np.empty(CODE_POINTS, np.uint8)
    at = position = 0
    while at < len(runs):
        value, length, shift = runs[at], 0, 0
        while True:
            at += 1
            length |= (runs[at] & 0x7F) << shift
            shift += 7
            if runs[at] < 0x80:
                break
        at += 1
        values[position : position + length] = value
        position += length
    return values


@lru_cache(maxsize=16)
def members(name: str) -> np.ndarray:
    r"""Return bool[0x110000]: True for the code points with a property, such as "L", "Lu", "Han",
    or "s" for \s. Raises KeyError for an unknown category or script."""
    if name == "s":
        inside = np.zeros(CODE_POINTS, np.bool_)
        inside[_SPACES] = True
        return inside
    if name in SCRIPTS:
        return scripts() == SCRIPTS.index(name)
    numbers = [k for k, n in enumerate(NAMES) if n == name or (len(name) == 1 and n[0] == name)]
    if not numbers:
        raise KeyError(name)
    return np.isin(categories(), numbers)


def folds(code_point: int) -> set[int]:
    """Return the code points that (?i) treats as equal to this one: its upper and lower case and
    the code points that fold to these."""
    letter = chr(code_point)
    code_points = {code_point, *(ord(c) for c in (letter.lower(), letter.upper()) if len(c) == 1)}
    # Unicode's simple folding of ASCII letters: the long s and the Kelvin sign.
    for other, base in ((0x17F, "s"), (0x212A, "k")):
        if letter.lower() == base:
            code_points.add(other)
    return code_points


CATEGORY_RUNS = (
    "c-q}rOQ>W=8ScO8uR7;cci--Fx~uQKegAvs&YhW?naoTwnMWpSOa>*vkPzd-goyaSDENS6Aqct|VlbN^inxg&sKIpviN"
    ";kBABYMOG`J86Zd@oKD-9^>_y6Z~&z%ROc{o8A)u&EXoxlF~tJk+@RQn0WkXERs24g_AD^u+nU%TFXh?NzZQXhlx*5Iw"
    "7_5JvcCY<p*rA$mCtj;mhw}z6#X~3CM!rqvYuc^1%P_Ll1hN$de_ZklOI`?1SaLc)0&h_bWFE8iqp1bTjx99v~-LXMq?"
    "vb<8dw*XyrEU)-e@*4I7)8g67F)h-{|+o|_-4v}FkSIsT6pLkMjakmoYED2iUSF%eIz^uJj}f4Tg%fL&x#Hh)hdHmhiA"
    "}dvy@8j6rFe@IFKoX!d+9IyEn-;uEBtWcU24ONJrGWiOX(+)o^@30s0VJH%Lm}5N58O^yg9iA3P&Yhkgy;R(sy|#3^KW"
    "M`jm@KT^ZHg+l#ah~5Q<Cw9ujKEp=q6~T8nLA(_<#PNfn&m=3@-ybTE)3x`&C(y+4EU+i6QovdW;_8tQuLqAAu;so4UY"
    "im}z;qHq#Yb>%ZBAi365kvs>OB;FC?n&|DQ3XdnKy?$@JLqysRSktV}^NwK>|;rSlHK?;S`3xOBrD|tY7(nRbcKWF2zg"
    "}>>AHNbyWPKox1?lEe9ZpLUzIm0~C3z6u47wC`#Z6=zu1vgH`E$7<*xbC58dAvvZ0gZX_8&8ipNWl0t?waOTR??uA9hw"
    "LKI|VURDPSfg8tz)i7LI=$h>csgm<oXvIJ^FUZ30iuuI=x%Y0(IlUIjuYq$BxrlUucdVrW8C5ud<1X6C&djI*$IW=7Ia"
    "EcQ!29QR)l_B1SMTUVOa1Y>emHkv6V~*3p3z00OfAU`6G}?s|~cEf)#6KA93@7H>t{|ksYra(7)EnPq8gb(u}W_7L`~j"
    "5jQ%;Sq6L}C>Dh<v?)TH%bGOvkV8w(0(XO`^JJ$hgN${rHVla>JV;|3`1yLI8A%3q8TTZ}F3@6VhNA;iDz^?o8&|-epw"
    "`bJ^a1UlP%d#A6lGV3%!bQR@Qra25>y^3XMknoXmbu;IRzdnSD1&v_#9))|1v4>vV#xOsDp?hj*hB5B7XnOnIgH)4BPp"
    "U?z#U8d+HM2(#_wgrc_sH3Z{>9lGwW+prg0}@t-X-<9bFsSDJC;?%G!#lo#AUzep;csIG&;3M&rM7`C#v`Dxt?MJ$b)z"
    "WOQ66WJ^t9FGa3j>r{3KYWl%A@TuunKQT{fG;~{FM;or#QVf_8Zdol9T6G<9L1}5;w_VCpN~Pm=BgnHJ9&p!Lu-}rVSJ"
    "{u)<W8+;#C4pQcc&}b<~CWd917y6vlFs%8hTd^P#nc(8=GtVv$p*a#ee!mbcUwnCyV9dGTZRrBey&8g#sb=RXLplx9o5"
    "4!9L|uQd2rJE|<=gx*m>K2euaLPQjXiZ?U`S{}^WREH$cF@HM^p$R+wP&oI$9%rxNsQxc#DAibd7^sIz8_V}DLtPHrUC"
    "|v^E(d&|RuE1rGnyiMUB1H%Me|X3Z_LYHm?D1c*@xSi_2*##jUAyn8`8+xFV*ELt<gN7x~p`j=Dw?aV}7&lYjxPCI?Zq"
    "bSqQ9DvzLTSN%uXa)Xw0WhvFyuWfX>R22}VkkP&<!WmGJAQTuq!boCt>bjY#SzO@6sq0RgmBP%Vg(QKQwx>N|6(zw#Ro"
    "hnXP5je3N8ke~-h&Bq0eOS{u+58EY%S9l_Q*0GBdk;3Zn)Q6RiTPbJ%YDh|)_iZ8<?rct6~@g?nIFdUm1Q8g(nwqRSQB"
    "*C?7Px_GtTE-^ZBd7xa^zTm$PmAebnU>O$JplUx#dV8`0|Hy%SyS;V;S9d6~r{Lw%F#xi`F?S8ZwEf^R);4K0BGMU>Sy"
    "t^4>E(P)6ID`;L+Ss=a22-~eSnBIH)ZReGCL<Wnu&SEYWQ5|qo8n~ME+>q)a@&|wEDbyZ2c@AkkD1-b0$vls>{gO2~r|"
    "OEb&+c*{_(kbZRT``Y<U@9q_m+-l%_r{Hlzi$uLJTs2_aW8r7Ko2x?*p3HB+iMq^R8&}HqHpnNR+lx36mP-ZOpI3^Et="
    "QoyzC<t4}F*e=QM@&w_`CHOlc5T23MB&~iYg|4m_Q!ck}lwG!sFLebKU@2s>Kic(HjeKoyWS?k|S_4a$)W9~}(7jWlSk"
    "8$Y6)z0vR+r_mdbUQ9SDcSoL3y+gr1TC4!(wx;cjmnsdN4e;%<cWN`W|WkUPsVZ3WXe*>&~St{X~Jr$9198ohvcu1gbS"
    "rNZ=#IwT_WeY6wTK|EdlU7l5`}Ts-+da4OYBZYHlf7WjJXX+a|6sQ6A%L%zjY-^2xU7(t^lRS1Y7tjaADX_uI4|GtjAD"
    "AfZK&?#9xs(9tO}da6`D!gL=WXv@I1K#R-7nV)(9`SmI?-J9gG@y7X+{F0WZpO9TDWPqR^?Ech{CFEgQVz%Q`(^|&-C#"
    "TLJkNF%vy;)ERqW&37wDK9(Mcc~-W5+cOT;Kh>08`ru#Cl&NM^GPj(JtcufEwK)?S}w!Me1?TGY4j`rG4C<Zm;G9X&i^"
    "Q+J{8?0$-gL(-Q=4Z75GbIRZGtzoog)%C7-XfGg!m$CnY-R%C}ihfsjhA{~drs;V>ab#-zX$Y-P^VAGBHI3)3?DHS9z3"
    "Y4_xvkk4Qcv?YKDs`5-K?Sj;G;5{Es7$LM*Y^(7VZOH&WDo14dxxdu)2gUF)Q~-tXuU$ai%<!?6W&SHL;C}#A^GpAPR^"
    "i1rL1`rn*Mr>O71Y4Rno`0hJuE$RYf3`yb7;ffJ0@f<U~hvNP%Z5q6kq=pp2Ds2zi_wyEH~xb_2I91Z@_vHCwc>-?Rn{"
    ">=KZQ8iO~JHV`(GhYBGE!1^HK6zT$a-VEpkuyw#;f*VVe_yufukP5kv?~=2<Q!=DeQl!WS18lo3#F#Z6^=7c!Fi?*+ld"
    "^I0JS7AhzFv_UST_Tz?By)b+e}HjO*{+z#C4Dv(mBROyNFeVOf`OY#(E}<fEuT1+4cjJX_dK$<JzxKqpzWuwYr`(*IU-"
    "L#{_HeKvAo}QhNq)1J)zMod<%dp+eCr@C2Y#*um|<zzi1zsUDD82g>a}m_WR)T@5pD?H*cPhZ}F(Q?8Sh>q#xqT$jhq!"
    "7y=G=}cK|XmA&ODZlI=1rE9rw6CJ|a_agldf%?J-7%<?x;pERaoZznJA*o4y*f&WcoP-1w>s9_K5H#&`}*c(%Qz8@>m1"
    "seRTYIy$lr!H?wW<&X1&VV-rKRy$|Yk|kNZ}d4`sqfm!*4bky7TE&P+vkL)>y-8!kb(Owdl)Eg1AHOv7Yj-CB95w@usH"
    "fr3qyU3aYPxVRRT3$E==wtbk^*+YT|5^|?~aa~J5P!gz>Fu1k>P9;992x7){X?<a`kmC6UtL2R>Xz36pP}E7DA>LnGdk"
    ">=4=GURFQL&&hNCK)8ZFgw1Bh18F85UX8Lho8Cz%B%+O*389rh&Dk4Q}jCY+FOm?G>#l_%qHrI?#UY85+$RKz48}$U;+"
    "*nX28$d$nttaxN!ukTL}APZsjA>S0k_`}`x4UrhPK05#;N%lX(k7b7^WukC{p{*>j}GrWcR5hj3}e=_7}S=2u*;_<tsZ"
    "3ro?>X{Os2!%G(JWL8+IBDB4Da{%1Ci1jLl6u&KuL_P-v}qOQ|53hMOgQl@h+>qL=Wqxf1te&8u)?q02<f~~$q^XCAMf"
    "zccn`2%8TBnEBape-HBVPyk|jUk<*|l8iCYm5Sp6Szf@~@^XZhV$e%Ub3-}Q1&xB=+H^W;y<t@$s&+RCk4RS~j}abAWp"
    "!x-~c;QV&U`5i$c%xB>u20HQsQl)iyoO*MbV`vm;Y;ONPX=;U`PhgGup1U+l&-LvbsKB1<m2FH}t{{c8&VcV$=T{tpFV"
    "`C)9q~V&*?(r`$$Xx}S>$ggts%M+tRaeUsk%3k=SzZ5q^U%T@|#xIYjaGk-XeJV+hjka^avvohXO*;pvl%mMs2Z$t(uP"
    "o7`TK9$@88!AXR;RLH{kW9xGId<VA0`!OJ*L{A2ApRJiO&Z-;gOoYYaM;>nj|dK>B(<Rl2__oU-m)5s6o&o?>{3y+yPu"
    "w)~$cDHHy-iFJ)=Pw<LJ?{KB?}4YVYbcrTQn*@9BLIHU<zvG6A?OD36%4X*NKzW+Z;;%QH)Uu?pqNN=R&talDgTY8A^#"
    "TM5T@!akNFJdAB2_;tcg0Z=Pgod7dRsw$*?<Hb8=h$wZnBQSkMo_Z5%A@`aTZpJzoLB`Tbzv7fOEdmkw#b54ORM-z#m8"
    "9*5n0=dCcLmsq|z;jgp&q0c|x1!*sC%dftF6l%6L|B#%g@G{Al{_Z#a@lTjr`};3!;!N5"
)


SCRIPTS = (
    "Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak "
    "Bengali Bhaiksuki Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian "
    "Caucasian_Albanian Chakma Cham Cherokee Chorasmian Common Coptic Cuneiform Cypriot "
    "Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan Egyptian_Hieroglyphs "
    "Elbasan Elymaic Ethiopic Garay Georgian Glagolitic Gothic Grantha Greek Gujarati "
    "Gunjala_Gondi Gurmukhi Gurung_Khema Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew "
    "Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese "
    "Kaithi Kannada Katakana Kawi Kayah_Li Kharoshthi Khitan_Small_Script Khmer Khojki Khudawadi "
    "Kirat_Rai Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani Makasar "
    "Malayalam Mandaic Manichaean Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui "
    "Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean "
    "Nag_Mundari Nandinagari New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki "
    "Ol_Onal Old_Hungarian Old_Italic Old_North_Arabian Old_Permic Old_Persian Old_Sogdian "
    "Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya Pahawh_Hmong Palmyrene "
    "Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada "
    "Shavian Siddham SignWriting Sinhala Sogdian Sora_Sompeng Soyombo Sundanese Sunuwar "
    "Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Tangsa Tangut "
    "Telugu Thaana Thai Tibetan Tifinagh Tirhuta Todhri Toto Tulu_Tigalari Ugaritic Unknown Vai "
    "Vithkuqi Wancho Warang_Citi Yezidi Yi Zanabazar_Square"
).split()

SCRIPT_RUNS = (
    "c-nndTWnOv8P3d{``&!_c<uEb99Uy^*UMSJW(~280mmm`Lh67aBw$Ez5^`;l)(vSBha}*p5JE^COvv?vgj7}4N>y9>lvc"
    "eww3Sk+MSZBMs4sn}6!oF1s;UqD&dGw>sOrOa{(t^6|35STZANbjv)Upmq0kw^4BNE`^Tdyp?hQ?CCZ%qvJz6rfC@IL83"
    "K%63(O4FZMX7}t=}4CvaxaLQ%za3iQGhh61m_G4!Wrm<F<>E~Of8f}qzOg%gjY+bY)z;K$@iR2L!90Sd0MH}=c`EHw*m4"
    "#b*vxqSO((uF38(y|8xST%0nngx{Z3d{B1QOpV2a(^$ZBlf%GKNM&2d_6y?%$>v97QWd?cSnH+aOR=C%S1*5|M73x)}NB"
    "$aQh3i(#`hNw*v0dR>F>QobrheHaB1-)-^~=;P(|*~j%jw6mK&H&Sl#{TdIdhcHaldo4J4d~_NJhOm>dm=zxq?j?*X2#{"
    "7RfJKP>a-GG)SW{_eiQ@aF2^g7>nlhIg<Y^BE8rOb14O}MEO!X(Ez#R*2f0yB^mQ_Nf6Xq@+fnMsWHqM!_*k&iH5n8VYe"
    "=$*06*{M7)guD<r3=GsXW?YwDC9p5kg#S%?LW7n-0JG%4*YaJ2=SV@77dipOHXfwkaKPFrsbfjRg_7gkJgl?ncxFbQ4f+"
    "acp|#M6fp)S58hUzmWnupGvP-k6FD%%cmoHZDl4IP{KKS%6q6U=ng=QHzyEbzT-ihyqVhpq+xK^L=%??0@{D%|fltZzg="
    "GLKarrZpbzZvT@#gAP4pAHm#mbz<#+6?#p6rtCnyZT97<LC!L`)&PXJ;?1$Xq!HRG|YI%UAcA$m)Uf2hUFdN6=ZDZ<hV`"
    "yVAwYMc->4tp8L}IoCW0nigCZJ~J7C*y+$;h)K5NC6cXA`i_((c(bWG#=tnuM^bCr912a9rb-^-#BD2=(CV91Cn^kseVe"
    "9XK_XYAr?3Z8f1SLe-?E*TO={%!x24nV~_X$d8vqZ8V&hr8f2qp1oA4Q>Wf9t|3p^I#T+sl#b_!QZs4PSC|bt$t9*q6Cp"
    "zreKlu>DJZ=RnHr%B>_aM)Y-2)q5{+S>W|ipkCfalYt@<51Jumg&7!~c)(*1oiq2KWY%ntiM!~W)a*l$Xt-xP&*xN%(n4"
    "|2ZVkDh?}8|+0gxGIp<tpTG%bOdhAs7mbwhGuIRWcYaqIY|GF+@a-&f|)ErRQGc;4M|@Y;POvHmGRW0)x5rKq{8tYeOUw"
    "_t<j^w{6+EMDHrO)LAX0sU;LItOK!&A14s9SvphOeEo3RsK_Ya}8m3<=(>;vv*Ve;%Zk$NM%KMx8wb&%)mm@JRs?5WUJG"
    "h?M=)u@14{_~Qnr~$YT3Ir!#v%XJ&Csu!d)wg^7`QsFJ0@h6gl<WM2J_cw+qsv`c`w(jUYtg<+76={;Q6uOQ}(Uk2nwN%"
    "q+!AwpvMMSp99?NfULt)kE22Tg+5X{A=LnECE%-uT0?Y-S~@57jofQ9VZcySS0|!upbhQUFR;XjN2iswq#IS0o4pQpK+O"
    "#ko@TF_OhQa@7n3wM$<-$_l%>%#`4r4JZzAWprCX`NEMtyVbh##QOx#MJH3dvMrWuS!mcxBSt?GpNMb_hc-4O4I$Jk&VO"
    "Jh~{&KFic$y$7pyZ;Jh5tgrn)4UdmW^pM2afwNMiJQ8_4Sa5_-d>C3_8+h*Y;S|N-GL5S6X7bt#nw)qsFUaJED@Ycp5yh"
    "rG1j|J`FH2x-0foZI-YGEZ^d=y(_K(ci=A1RI|WAX^!I5P`&uCP^^Y+%$2ez<6*<Og8)IuAHOAQG$6VM?_>cPVclE;9m4"
    "s^!K$-RiR`UjDs2S#v^Gp-$XAC5tv9a?@AqF2_gA`#uY^~u@*YN1Q1*qN}oL-5KMRZYL<{>WgLb)s%ZiPW*JkF_KUxl_W"
    "XHjVHLdy!4UTO!76up}gH*JP@6A$=e2kaMVu!W7Hr3ub$y>OqO;kD3$#MUN=trZL(r1uWeF$a09gY@P>cDeBlFvqD^q^!"
    "uxwa8>F(p5#yB`=E1q?#zY^*`KMkyj&Oa)u-nXC&U`CH5|NL5O$RF#c<7)W;GIk-PU!h<i<Rzcm5pEf4RD;{%Y#3+UOu6"
    "^Z>(Gf$!UwINuqkw4UeF3|}oGB89tu83tDanA=+NPZxEuJ3aVpTY6DQ@=Z=(q|}q595b<n!~KP!wGbLlWTor3aQ41uhwA"
    "aJ$zrB>OuMxS4gmfCdxz_UV`bn+lSmu2kcHGoTd||X?nT@H7)AA3ul^o{mi(2j{8^CsRg^AhUFI+iP1)g(LSir9Cq#CGi"
    "I@h)S}3qw=tW21R_h9Wq&I0tCp_2k-G7!1MkK+@-XEu3|v{adI&#H*;n{Zm|;T9u=&i$*I8??b5(~W<5=*H@^U*$ryk`F"
    "kMfOjv>D$~H&apU*@we-ZG&+a4|-Q4M$d`+MIbi|Bm#EsbN{HoIX7=@zN*l-S)6n6=dB|Q&<O2}@Dw9r@a?GkW(EavgN*"
    "hFA3>bp+<#Kx`KF!+VD_-&dzkz^?14Q|_x?k-{wH%ne@|h1jSjCdLG=^ZsQ)h5PI}pdhIubG)*LN)FLu`qeG^(s<2b5$q"
    "sN%0LI+L=y^9^?W<tiDOUBfQZn&ro$Nfp@O>v9k)lnaJ#bZ9p<2j%8vEN3D7o$)0#7PsG6a0B1gO8ms4~xCxccPEe`Whi"
    ")%7gc@@#coHEGO{j5w^D@?D9wG`Xdq_$#?Q-e18b$`vM=UdsgA9c&G^DA%Ra+-0Qh~fi|MY%^g4EzVB#2-woSg+&}|2NS"
    "v|s7HsFKe<Bp8s?PX5F4({&!FN4AlZzM@VbuB0pguSM^SJgevSHV4U9%V2ZsglPvSG&jTF!q-YQBH;J@h?Wd-Pn0v4ZjX"
    "w!nIw9gJd-iYGDD<kQ;1d7*!AQ_@H;N3V-H@&_3BWc1qPD<h)3PNNG+vuSDOYAll&jv|uO^l7Z<@fzV%B3_$4C|=@h6yI"
    "4KcY;rTE#U`0@?iyk<gtQdWu$}e4j~hKYT&)*;4K4xN(8?wzzja|@tYs=mPNOo!Mv#bRp8}+CH@VPL|s7"
)
