"""General categories of Unicode 16.0 as runs, as the regex engine in `tokenizers` 0.23 has them.

Asked there one category after the other over all code points; tests/tokenize_kit/test_patterns.py
asks again for letters and marks.

Each run is one byte for the category (its place in categories.NAMES) and its length in code points
as a varint; zlib, then base85.
"""

from __future__ import annotations

RUNS = (
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
