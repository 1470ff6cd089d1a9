"""Scripts of Unicode 16.0 as runs, as the regex engine in `tokenizers` 0.23 has them.

Asked there one script after the other over all code points;
tests/tokenize_kit/test_pattern_scripts.py asks again for two. The form is that of category_runs.py:
a byte for the script (its place in NAMES), the length in code points as a varint; zlib, base85.
"""

from __future__ import annotations

NAMES = (
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

RUNS = (
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
