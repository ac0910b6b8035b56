'use strict';
// Pages work without this script. It adds keys, folding and updates of the end of a session.
const $ = (s, e = document) => e.querySelector(s), $$ = (s, e = document) => [...e.querySelectorAll(s)];
const place = $('[data-session]'), session = place && place.dataset.session, live = $('[data-live]'), status = $('#live');

// The row that keys act on.
let at = -1;
function rows() { return $$('.row'); }
function move(by) {
  const all = rows();
  if (!all.length) return;
  at = Math.max(0, Math.min(all.length - 1, at + by));
  all.forEach((e, i) => e.classList.toggle('at', i === at));
  all[at].scrollIntoView({ block: 'nearest' });
  const link = $('a', all[at]);
  if (link) link.focus({ preventScroll: true });
}
function number() {
  const e = rows()[at] || $('.turn[id]');
  return e && /^turn-\d+$/.test(e.id) ? e.id.slice(5) : '';
}
// A jump leads on from the place that the last one led to, unless keys moved to another row since.
function jump(kind, back) {
  if (!session) return;
  if (kind === 'error' && !$('#totals .errors')) { say('Nothing failed or was denied.'); return; }
  const id = decodeURIComponent(location.hash.slice(1)), place = document.getElementById(id), row = rows()[at];
  const after = place && (!row || row.contains(place)) ? '&after=' + encodeURIComponent(id) : '';
  location.href = session + '/next?kind=' + kind + '&from=' + (number() || 0) + after + (back ? '&back=1' : '');
}
// The failure that the page was opened at is counted on from, unless keys moved to another place since.
function failure(by) {
  const e = $('[data-failure]');
  if (e && at < 0) location.href = session + '/next?failure=' + (+e.dataset.failure + by);
  else jump('error', by < 0);
}
function fold(all) {
  const inside = all ? $$('.part details') : $$('.part details', rows()[at] || document);
  const open = !inside.every(d => d.open);
  inside.forEach(d => { d.open = open; });
}
async function copy() {
  try { await navigator.clipboard.writeText(new URL(number() && session ? session + '/t/' + number() : location.href, location.href)); say('The link is copied.'); } catch (e) { say('The browser does not permit copying.'); }
}
function say(text) { if (status) status.textContent = text; }

// The places of the text that was searched for, as ranges.
const sought = (new URLSearchParams(location.search).get('find') || '').toLowerCase();
let hit = -1;
function hits() {
  const found = [], walk = document.createTreeWalker($('#turns') || document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); sought && node; node = walk.nextNode()) {
    const text = node.data.toLowerCase();
    for (let i = text.indexOf(sought); i >= 0; i = text.indexOf(sought, i + sought.length)) {
      const r = new Range();
      r.setStart(node, i);
      r.setEnd(node, Math.min(node.length, i + sought.length));
      found.push(r);
    }
  }
  return found;
}
function nextHit(by) {
  const all = hits();
  hit = hit < 0 && by < 0 ? all.length - 1 : hit + by;
  if (!all[hit]) { location.href = session + '/next?kind=hit&q=' + encodeURIComponent(sought) + '&from=' + (number() || 0) + (by < 0 ? '&back=1' : ''); return; }
  for (let e = all[hit].startContainer.parentElement; e; e = e.parentElement) if (e.tagName === 'DETAILS') e.open = true;
  all[hit].startContainer.parentElement.scrollIntoView({ block: 'center' });
  CSS.highlights.set('hit', new Highlight(all[hit]));
}
if (sought && session && CSS.highlights) CSS.highlights.set('hits', new Highlight(...hits()));

let prefix = false;
const keys = {
  j: () => move(1), k: () => move(-1), u: () => { location.href = session && location.pathname !== session ? session : '/sessions'; },
  '/': () => $('[type=search]').focus(), e: () => jump('error'), E: () => jump('error', true), a: () => jump('denial'), A: () => jump('denial', true),
  c: () => jump('compaction'), C: () => jump('compaction', true), n: () => sought ? nextHit(1) : failure(1), N: () => sought ? nextHit(-1) : failure(-1), x: () => fold(false), X: () => fold(true), y: copy,
  w: () => $$('.waterfall').forEach(d => { d.open = !d.open; }), i: () => { if (number()) location.href = session + '/t/' + number() + '/context'; },
  Escape: () => document.activeElement.blur(), '.': () => { follow = true; scrollTo(0, document.body.scrollHeight); }, '?': () => $('#help').showModal(), g: () => { prefix = true; setTimeout(() => { prefix = false; }, 1200); },
};
const pages = { s: '/sessions', n: '/now', t: '/stats' };
function stored() { try { return localStorage.getItem('keys') !== 'off'; } catch (e) { return true; } }
$('#keys').checked = stored();
$('#keys').addEventListener('change', e => { try { localStorage.setItem('keys', e.target.checked ? 'on' : 'off'); } catch (err) { /* for this page only */ } });
document.addEventListener('keydown', e => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest('input,select,textarea,dialog')) return;
  if (e.key !== '?' && !$('#keys').checked) return;
  const does = prefix && pages[e.key] ? () => { location.href = pages[e.key]; } : keys[e.key];
  if (!does) return;
  prefix = false;
  e.preventDefault();
  does();
});

// The outline: what is not in it is read when it is unfolded or looked for, and a place that the page has is no new page.
const nav = $('nav.outline'), page = async to => new DOMParser().parseFromString(await (await fetch(to)).text(), 'text/html');
if (nav) nav.addEventListener('click', async e => {
  const d = e.target.matches('li > details > summary') && e.target.parentElement, more = d && d.dataset.more;
  if (!more) return;
  delete d.dataset.more;
  try {
    const list = $('#entries > ol', await page(more));
    $$(':scope > ol, :scope > .more', d).forEach(o => o.remove());
    if (list) d.append(list);
  } catch (err) { d.dataset.more = more; }
});
document.addEventListener('click', e => {
  const a = e.target.closest('.outline a[data-id]');
  if (!a || e.ctrlKey || e.metaKey || e.shiftKey || !document.getElementById(a.dataset.id) || a.pathname !== session && a.pathname !== location.pathname) return;
  e.preventDefault();
  if (location.hash === a.hash) reveal();
  else location.hash = a.hash;
  if (innerWidth < 1120 && $('#outline')) $('#outline').open = false;
});
const filter = nav && $('form', nav), narrowed = () => filter && $$('[name=q], [name=only]', filter).some(i => i.type === 'checkbox' ? i.checked : i.value);
let unfiltered = filter && $('#entries', nav);
let asked = 0, typing;
async function narrow() {
  const number = ++asked, q = new URLSearchParams(new FormData(filter));
  if (!q.get('q')) q.delete('q');
  const list = q.size ? $('#entries', await page(filter.action + '?' + q)) : unfiltered;
  if (number === asked && list) $('#entries', nav).replaceWith(list);
}
if (filter) {
  $('button', filter).hidden = true;
  filter.addEventListener('input', () => { clearTimeout(typing); typing = setTimeout(narrow, 150); });
  filter.addEventListener('submit', e => { e.preventDefault(); narrow(); });
}
// What is read is marked in it.
let seen;
function spy() {
  if (!nav || !$('#outline[open]')) return;
  const all = $$('#turns > .turn, #turns .part[id], #turns .error[id]').filter(e => e.offsetParent);
  let lo = 0, hi = all.length;
  while (lo < hi) { const mid = (lo + hi) >> 1; if (all[mid].getBoundingClientRect().top > innerHeight / 3) hi = mid; else lo = mid + 1; }
  let a;
  for (let i = lo - 1; i >= 0 && !a; i--) a = $$('a[data-id]', nav).find(x => x.dataset.id === all[i].id && x.offsetParent);
  if (!a || a === seen) return;
  if (seen) seen.classList.remove('at');
  (seen = a).classList.add('at');
  const r = a.getBoundingClientRect(), n = nav.getBoundingClientRect();
  if (r.top < n.top || r.bottom > n.bottom) nav.scrollTop += r.top - n.top - n.height / 3;
}
// What comes before and after is read as one scrolls there.
let extending = false, y = scrollY;
async function extend(back) {
  const link = $(back ? '.older a[rel=prev]' : '.newer a[rel=next]');
  if (!link || extending) return;
  extending = true;
  try {
    const more = await page(link.href), turns = $('#turns'), height = document.documentElement.scrollHeight;
    const all = $$('#turns > .turn', more);
    for (const made of back ? all.reverse() : all) {
      const old = document.getElementById(made.id);
      if (old) join(old, made, back);
      else if (back) turns.prepend(made);
      else turns.append(made);
      news.set(made.id, ageless(document.getElementById(made.id)));
    }
    for (const li of $$('#entries li[data-turn]', more)) {
      const old = $('#entries li[data-turn="' + li.dataset.turn + '"]');
      if (old && document.getElementById('turn-' + li.dataset.turn) && !$('[data-more]', li.parentElement)) old.replaceWith(li);
    }
    const next = $(back ? '.older' : '.newer', more);
    if (next) link.closest('.more').replaceWith(next);
    else { link.closest('.more').remove(); if (!back && more.querySelector('[data-live]') && !live) location.replace($('[data-live]', more).dataset.live.split('?')[0]); }
    if (back) scrollBy(0, document.documentElement.scrollHeight - height);
  } catch (e) { /* the link is still there */ }
  extending = false;
}
// join puts the blocks of a turn that a page has together with those that another has.
function join(old, made, back) {
  for (const article of back ? $$('article', made).reverse() : $$('article', made)) {
    const has = article.id && document.getElementById(article.id);
    if (!has) { if (back) $('h2', old).after(article); else old.append(article); continue; }
    const parts = $$(':scope > .part', article).filter(p => !document.getElementById(p.id));
    if (back) $('h3', has).after(...parts);
    else has.append(...parts, ...$$(':scope > .error', article));
  }
  if (back) old.dataset.from = made.dataset.from;
}
// A call that is unfolded gets its values whole and with colors, as its own page has them.
const whole = new WeakSet();
async function enrich(d) {
  const link = $('.links a', d);
  if (!link || whole.has(d)) return;
  whole.add(d);
  try {
    const made = $('.sections', await page(link.href)), here = $('.sections', d);
    if (made && here && !here.contains(document.activeElement)) here.replaceWith(made);
  } catch (err) { /* what is there is enough */ }
}
document.addEventListener('click', e => {
  const summary = e.target.closest('.call > summary');
  if (summary && !summary.parentElement.open) enrich(summary.parentElement);
});
// A box that is pointed at, or has the focus, has a button that copies its text.
const copier = document.createElement('button');
copier.className = 'copy';
copier.textContent = 'copy';
function offer(e) {
  const pre = e.target.closest && e.target.closest('.part pre, .sections pre, .rich pre');
  if (pre && copier.parentElement !== pre) { copier.textContent = 'copy'; pre.append(copier); }
}
document.addEventListener('mouseover', offer);
document.addEventListener('focusin', offer);
copier.onclick = async () => {
  const pre = copier.parentElement;
  copier.remove();
  try { await navigator.clipboard.writeText(pre.textContent); copier.textContent = 'copied'; } catch (e) { copier.textContent = 'not permitted'; }
  pre.append(copier);
};
addEventListener('scroll', () => {
  const up = scrollY < y;
  y = scrollY;
  spy();
  if (up && y < 300) extend(true);
  else if (!up && innerHeight + y > document.documentElement.scrollHeight - 900) extend(false);
}, { passive: true });

// Where there is room the outline is open: below it is the session.
if ($('#outline')) $('#outline').open = matchMedia('(min-width: 70rem)').matches;

// A place that the address names is seen even if it is folded, or long after the head of its turn.
function reveal() {
  const place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!place || place.classList.contains('turn')) return;
  $$('.call', place).forEach(d => { d.open = true; enrich(d); });
  for (let e = place; e; e = e.parentElement) if (e.tagName === 'DETAILS') e.open = true;
  place.scrollIntoView({ block: 'start' });
}
addEventListener('hashchange', reveal);


// Updates: when the store has changed, the page is read again, and what differs in it is replaced. What keys and clicks
// did to an element is no news, nor is an age.
const parts = '#title, #tags, #status, #totals, nav.outline #entries, #list, #now, #turns > [id]';
const deleted = 'This session was deleted.';
let stream, reading = false, again = false, follow = false, newer = 0;
const news = new Map($$(parts).map(e => [e.id, ageless(e)]));
async function refresh() {
  if (reading) { again = true; return; }
  reading = true;
  try {
    const answer = await fetch(live.dataset.live), made = new DOMParser().parseFromString(await answer.text(), 'text/html');
    if (answer.status === 404 && session) { document.title = deleted; say(deleted); } else if (answer.ok) {
      if (status && status.textContent === deleted) say('');
      document.title = made.title;
      $$(parts, made).forEach(apply);
    }
  } catch (e) { /* the stream reports that the server is gone */ }
  setTimeout(() => { reading = false; if (again) { again = false; refresh(); } }, session ? 0 : 1000);
}
function ageless(e) {
  const copy = e.cloneNode(true);
  [copy, ...$$('.at', copy)].forEach(x => x.classList.remove('at'));
  [copy, ...$$('details', copy)].forEach(x => x.removeAttribute('open'));
  $$('time', copy).forEach(t => { t.textContent = ''; });
  return copy.outerHTML;
}
function busy(e) {
  const s = getSelection();
  return e.contains(document.activeElement) && document.activeElement !== document.body || s && !s.isCollapsed && e.contains(s.anchorNode);
}
function apply(made) {
  const id = made.id, old = document.getElementById(id), turns = $('#turns');
  if (id === 'entries' && narrowed()) return;
  const same = old && news.get(id) === ageless(made);
  if (old && (old.outerHTML === made.outerHTML || same && (busy(old) || id !== 'list' && id !== 'now'))) return;
  const end = innerHeight + scrollY >= document.documentElement.scrollHeight - 40;
  if (!old) {
    if (!id.startsWith('turn-') || !session || location.pathname.includes('/t/')) return;
    const last = $$('#turns > .turn').at(-1), ahead = last ? id.slice(5) - last.id.slice(5) : 1;
    if (ahead < 1) return; // it is an earlier one, which the page does not have
    if (ahead > 1) { location.reload(); return; } // there are others between
    const none = $('.empty', turns);
    if (none) none.remove();
    turns.append(made);
    newer++;
  } else {
    if (+made.dataset.from > +old.dataset.from) keep(old, made);
    if (busy(old)) { waiting.set(id, made); say('There is newer. Esc shows it.'); return; }
    const folds = e => e.tagName === 'DETAILS' ? [e, ...$$('details', e)] : $$('details', e);
    const name = d => d.closest('[id]').id + d.className + (d.parentElement && d.parentElement.matches('.outline li, #entries li') ? $('a', d.parentElement).textContent : '');
    const open = new Map(folds(old).map(d => [name(d), d.open]));
    folds(made).forEach(d => { const was = open.get(name(d)); if (was !== undefined && !d.dataset.more) d.open = was; });
    const chosen = $$('[name=s]:checked', old).map(c => c.value);
    $$('[name=s]', made).forEach(c => { c.checked = chosen.includes(c.value); });
    const row = rows()[at], link = row && old.contains(row) && $('a', row), again = link && $$('.row a', made).find(a => a.href === link.href);
    if (old === row) made.classList.add('at');
    else if (again) again.closest('.row').classList.add('at');
    if (id === 'status' && old.textContent !== made.textContent) say('Status: ' + made.textContent.trim());
    old.replaceWith(made);
    if (id === 'entries') { unfiltered = made; seen = null; spy(); }
    if (row) at = rows().findIndex(r => r.classList.contains('at'));
  }
  news.set(id, ageless(made));
  if (end || follow) { scrollTo(0, document.documentElement.scrollHeight); newer = 0; } else if (newer) pill();
}
// keep gives what was read of a turn already to what was made of its end.
function keep(old, made) {
  for (const article of $$('article', old).reverse()) {
    const has = $$('article', made).find(a => a.id === article.id);
    if (has) $('h3', has).after(...$$(':scope > .part', article).filter(p => !$$('.part', has).some(q => q.id === p.id)).map(p => p.cloneNode(true)));
    else $('h2', made).after(article.cloneNode(true));
  }
  made.dataset.from = old.dataset.from;
}
const waiting = new Map();
document.addEventListener('focusout', () => setTimeout(() => { const all = [...waiting.values()]; if (all.length) say(''); waiting.clear(); all.forEach(apply); }));
function pill() {
  const b = document.createElement('button');
  b.textContent = newer + ' new ↓';
  b.onclick = () => { newer = 0; status.textContent = ''; scrollTo(0, document.documentElement.scrollHeight); };
  status.replaceChildren(b);
}
function open() {
  if (stream || !live || document.hidden) return;
  stream = new EventSource('/changes');
  stream.addEventListener('change', refresh);
  stream.onopen = () => { if (status.dataset.lost) { delete status.dataset.lost; say(''); } };
  stream.onerror = () => { status.dataset.lost = '1'; say('Updates are paused since ' + new Date().toLocaleTimeString() + '.'); if (stream.readyState === EventSource.CLOSED) { close(); setTimeout(open, 5000); } };
}
function close() { if (stream) stream.close(); stream = null; }
document.addEventListener('visibilitychange', () => { if (document.hidden) close(); else open(); });
addEventListener('pagehide', close);
addEventListener('pageshow', open);
reveal();
spy();
