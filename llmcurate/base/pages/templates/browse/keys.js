const shown=()=>[...document.querySelectorAll('.hit h2 a')];
addEventListener('keydown',event=>{
if(event.ctrlKey||event.metaKey||event.altKey||event.isComposing)return;
if(event.target.closest('input:not([type=submit]),select,textarea')){
if(event.key==='Escape')event.target.blur();
return}
const step={j:1,k:-1}[event.key],links=step?shown():[];
if(links.length){const to=links[Math.max(0,links.indexOf(document.activeElement)+step)];
if(to){to.focus();to.closest('.hit').scrollIntoView({block:'nearest'});event.preventDefault()}
return}
for(const own of document.querySelectorAll('[aria-keyshortcuts]'))
if(own.getAttribute('aria-keyshortcuts').split(' ').includes(event.key)){
event.preventDefault();
if(own.matches('input'))own.focus();else own.click();
if(own.matches('summary'))own.parentElement.scrollIntoView({block:'nearest'});
return}});
