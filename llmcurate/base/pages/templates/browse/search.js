const box=document.getElementById('find'),all=[...document.querySelectorAll('details.doc')];
const matches=document.getElementById('matches');
document.getElementById('search').hidden=false;
box.addEventListener('input',()=>{const words=box.value.toLowerCase();let n=0;
for(const d of all){const hit=!words||d.textContent.toLowerCase().includes(words);
d.hidden=!hit;n+=hit}
matches.textContent=words?n+' of '+all.length:''});
