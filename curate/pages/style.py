"""The look of report.html and stats.html: one accent colour, light and dark, screen and paper."""

STYLE = """
:root{--paper:#fbfaf8;--card:#fff;--ink:#1d242b;--muted:#5b6670;--line:#e2e0db;--accent:#0b6b8a;
--gone:#b9b3a8;--soft:#eaf2f5;--cut:#fbe3d6;--cutline:#9a3b0a;--put:#d9ebf7;--putline:#0b4a8a;
color-scheme:light dark}
@media (prefers-color-scheme:dark){:root{--paper:#14181c;--card:#1b2026;--ink:#e6e8ea;
--muted:#9aa5ae;--line:#323a42;--accent:#4fb3d3;--gone:#5d6369;--soft:#1d2f37;--cut:#4a2615;
--cutline:#f5a97f;--put:#12344f;--putline:#8cc7f5}}
*{box-sizing:border-box}
html{scroll-behavior:smooth;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
.page{display:grid;grid-template-columns:13rem minmax(0,60rem);
grid-template-rows:auto 1fr auto;column-gap:3rem;justify-content:center;
max-width:82rem;margin:0 auto;padding:2.5rem 1.25rem 4rem}
header,main,footer{grid-column:2;min-width:0}
nav{grid-column:1;grid-row:1/span 3;font-size:.9rem}
nav ol{list-style:none;margin:0;padding:0;position:sticky;top:2.5rem}
nav a{display:block;padding:.2rem .6rem;color:var(--muted);text-decoration:none;
border-left:2px solid var(--line)}
nav a:hover,nav a:focus{color:var(--accent);border-color:var(--accent)}
a{color:var(--accent)}
h1{font-size:1.75rem;line-height:1.2;margin:0 0 .25rem;letter-spacing:-.01em}
h2{font-size:1.25rem;margin:3rem 0 .5rem;padding-top:.75rem;border-top:1px solid var(--line)}
h3{font-size:1rem;margin:0 0 .35rem;overflow-wrap:anywhere}
p{margin:.5rem 0}.lead,.about,figcaption,.note{color:var(--muted)}
.lead{max-width:46rem}.about,figcaption,.note{font-size:.875rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));gap:.75rem;
margin:1.25rem 0}
.tile{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.7rem .9rem}
.tile b{display:block;font-size:1.4rem;line-height:1.25;font-weight:600;
font-variant-numeric:tabular-nums}
.tile span{color:var(--muted);font-size:.85rem}
.wide{overflow-x:auto;margin:.75rem 0}
table{border-collapse:collapse;width:100%;font-size:.875rem}
th{color:var(--muted);font-weight:500;text-align:left;vertical-align:bottom}
th,td{padding:.4rem .7rem .4rem 0;border-bottom:1px solid var(--line);vertical-align:top}
th:last-child,td:last-child{padding-right:0}
th.n,td.n{width:1%;text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td:first-child{min-width:11rem}td:last-child:not(.n){min-width:9rem}
.matrix td:last-child{min-width:0}
td small{color:var(--muted);display:block;font-size:.8rem;line-height:1.4}
.bar{background:var(--line);height:.6rem;min-width:5rem;margin-top:.45rem;border-radius:1px;
overflow:hidden}
.bar{display:flex}.bar i{background:var(--accent)}.bar i+i{background:var(--gone)}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),1fr));gap:1rem}
.card{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.9rem 1rem;
min-width:0;break-inside:avoid}
figure{margin:0}svg{display:block;width:100%;max-width:31rem;height:auto}
svg *{stroke-linejoin:round;stroke-linecap:butt}
svg text{font-family:inherit}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--paper);
border-left:2px solid var(--line);margin:.4rem 0;padding:.45rem .7rem;
font:.8rem/1.5 ui-monospace,"SFMono-Regular",Menlo,Consolas,monospace}
code,.name{overflow-wrap:anywhere}
code{font:.875em ui-monospace,"SFMono-Regular",Menlo,Consolas,monospace}
details{margin:.5rem 0}summary{cursor:pointer;color:var(--accent);font-size:.875rem}
.key i{display:inline-block;width:.7rem;height:.7rem;margin:0 .3rem 0 .8rem;vertical-align:-1px}
.key i:first-child{margin-left:0}
.stays{background:var(--accent)}.goes{background:var(--gone)}
del,.cut{background:var(--cut);color:var(--cutline);text-decoration:line-through;padding:0 .1em}
ins,.put{background:var(--put);color:var(--putline);text-decoration:underline;padding:0 .1em}
.cards+h3,.wide+h3{margin-top:1.25rem}
.tokens sub{font-size:.6rem;font-weight:600}.t0{background:#0b8bb540}.t1{background:#d98a1a45}
.t2{background:#4d9a3a45}.t3{background:#9a55b040}
.sides{display:grid;grid-template-columns:1fr 1fr;gap:.75rem}
.sides>div{min-width:0}
.matrix td,.matrix th{padding:.25rem .35rem;text-align:right;font-size:.75rem;border:0;
white-space:nowrap;font-variant-numeric:tabular-nums}
.matrix th:first-child,.matrix td:first-child{text-align:left;position:sticky;left:0;
background:var(--paper)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.3rem 1.25rem;font-size:.9rem}
dt{font-weight:600}dd{margin:0;color:var(--muted);min-width:0;overflow-wrap:anywhere}
footer{color:var(--muted);font-size:.85rem;margin-top:3rem}
@media (max-width:70rem){.page{display:block;max-width:64rem;padding:1.5rem 1rem 3rem}
nav ol{position:static;display:flex;flex-wrap:wrap;gap:.1rem .2rem;margin:1rem 0}
nav a{border:0;padding:.15rem .5rem .15rem 0}}
@media (max-width:40rem){.sides{grid-template-columns:1fr}dl{grid-template-columns:1fr;gap:0}
dd{margin-bottom:.6rem}h1{font-size:1.4rem}.tile b{font-size:1.15rem}}
@media print{:root{--paper:#fff;--card:#fff}body{font-size:11px}.page{display:block;padding:0}
nav,summary{display:none}.wide{overflow:visible}h2{break-after:avoid}}
"""
