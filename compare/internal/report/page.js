"use strict";
const report = JSON.parse(document.getElementById("report").textContent);
const services = report.run.services;
const faults = Object.fromEntries(report.run.faults.map((f) => [f.id, f]));
const $ = (id) => document.getElementById(id);

// make builds an element. Texts are set as texts: nothing of a report is taken for HTML.
function make(space, tag, set, ...inside) {
  const e = space ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [k, v] of Object.entries(set || {})) {
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else if (v !== undefined && v !== false) e.setAttribute(k, v === true ? "" : v);
  }
  e.append(...inside.filter((x) => x || x === 0));
  return e;
}
const el = (tag, set, ...inside) => make(false, tag, set, ...inside);
const svg = (tag, set, ...inside) => make(true, tag, set, ...inside);
// whole keeps words with hyphens, such as the names of faults, on one line.
const whole = (text) => text.split(/(\S*-\S*)/).map((w, i) => i % 2 ? el("span", { class: "whole" }, w) : w);
const color = (i) => `var(--c${i % 8})`;

// time says a number of nanoseconds in three digits.
function time(ns) {
  const a = Math.abs(ns);
  if (a < 1) return "0";
  const [n, unit] = a >= 60e9 ? [ns / 60e9, "min"] : a >= 1e9 ? [ns / 1e9, "s"] : a >= 1e6 ? [ns / 1e6, "ms"] : a >= 1e3 ? [ns / 1e3, "µs"] : [ns, "ns"];
  return Number(n.toPrecision(3)) + " " + unit;
}
const plural = (n, one, many) => `${n.toLocaleString("en")} ${n === 1 ? one : many || one + "s"}`;

function tip(text, x, y) {
  const t = $("tip");
  t.hidden = !text;
  if (!text) return;
  const open = document.querySelector("dialog[open]");
  if (t.parentNode !== (open || document.body)) (open || document.body).append(t); // above a dialog
  t.textContent = text;
  const box = t.getBoundingClientRect();
  t.style.left = Math.max(6, Math.min(x + 14, innerWidth - box.width - 6)) + "px";
  t.style.top = (y + box.height + 22 > innerHeight ? y - box.height - 12 : y + 16) + "px";
}

// ---- the table

const has = (row, verdict) => row.cells.some((c) => c.verdict === verdict);
const rank = (row) => row.cells.every((c) => c.verdict === "not tried") ? 3 : has(row, "BROKEN") ? 0 : has(row, "broken") ? 1 : 2;
const groups = [
  ["Promised, and broken", "bad"], ["Broken, and not promised", "soft"],
  ["Held, wherever it was tried", ""], ["Not tried", ""],
];

const look = { held: "held", BROKEN: "bad", broken: "soft", "not tried": "none", inconclusive: "unsure" };
const counted = (row) => row.fault ? "fault" : "round";

function cellButton(row, c) {
  const b = el("button", { class: look[c.verdict], type: "button", "data-cell": row.id + "@" + c.service, onclick: () => openCell(row, c), "aria-label": `${c.service}, ${row.title}: ${c.verdict}` });
  if (c.verdict === "held") b.append(`held · ${c.trials}`, el("span", { class: "unit" }, " " + counted(row) + (c.trials > 1 ? "s" : "")));
  else if (c.broken) b.append(`${c.verdict} `, el("span", { class: "whole" }, `${c.broken} of ${c.trials}`));
  else b.append(c.verdict === "inconclusive" ? "?" : "–");
  return b;
}

function tableRow(row, part) {
  return el("tr", { class: part ? "part" : undefined, hidden: !!part }, el("th", { scope: "row" }, ...whole(row.title)), ...row.cells.map((c) => el("td", {}, cellButton(row, c))));
}

// foldRow stands for several rows of one rule in which nothing was broken.
function foldRow(rows, parts) {
  const b = el("button", {
    class: "fold", type: "button", "aria-expanded": "false", onclick: () => {
      const open = b.getAttribute("aria-expanded") === "false";
      b.setAttribute("aria-expanded", open);
      for (const p of parts) p.hidden = !open;
    },
  }, `${rows[0].title.split(":")[0]}, ${rows.length} ways`);
  const cells = services.map((s, i) => {
    const held = rows.map((r) => r.cells[i]).filter((c) => c.verdict === "held");
    const n = held.reduce((sum, c) => sum + c.trials, 0);
    return el("td", {}, held.length ? el("button", { class: "held", type: "button", onclick: () => b.click() }, `held · ${n}`) : cellButton(rows[0], rows[0].cells[i]));
  });
  return el("tr", {}, el("th", { scope: "row" }, b), ...cells);
}

function drawTable() {
  const head = el("thead", {}, el("tr", {}, el("th", { scope: "col" }, ""), ...services.map((s) => el("th", { scope: "col" }, ...whole(s.name), el("small", {}, s.missing ? "not there" : s.version || "")))));
  const body = el("tbody");
  groups.forEach(([title, kind], k) => {
    const rows = report.rows.filter((r) => rank(r) === k);
    if (!rows.length) return;
    body.append(el("tr", { class: "group " + kind }, el("th", { colspan: services.length + 1, scope: "rowgroup" }, el("span", {}, title))));
    for (const rule of new Set(rows.map((r) => r.rule))) {
      const same = rows.filter((r) => r.rule === rule);
      const foldable = (k === 2 && rule !== "exclusion" || k === 3) && same.length > 1;
      const drawn = same.map((r) => tableRow(r, foldable));
      if (foldable) body.append(foldRow(same, drawn));
      body.append(...drawn);
    }
  });
  $("table").append(head, body);
  // Where the table is wider than the page, its cells have lines.
  const box = document.querySelector(".scroll"), many = $("table").classList;
  new ResizeObserver(() => {
    many.remove("many");
    many.toggle("many", box.scrollWidth > box.clientWidth);
  }).observe(box);
  // Nothing is declared for locks of other libraries: what is said of them is how they are tried.
  $("notes").append(...services.filter((s) => !s.missing && s.declared.exclusion === "none" && s.declared.rests_on)
    .map((s) => el("p", { class: "quiet" }, el("strong", {}, s.name), ": " + s.declared.rests_on + ".")));
}

// ---- a cell

function openCell(row, c) {
  const fault = faults[row.fault], service = services.find((s) => s.name === c.service);
  const inside = el("div", { class: "inside", tabindex: "-1", autofocus: true });
  inside.append(
    el("button", { class: "close", type: "button", "aria-label": "close", onclick: () => $("cell").close() }, "×"),
    el("h2", { id: "cell-title" }, ...whole(`${c.service}: ${row.title}`)));
  if (fault && fault.what) inside.append(el("p", { class: "quiet" }, fault.what));
  const n = plural(c.trials, counted(row));
  const aside = c.set_aside ? ` ${plural(c.set_aside, counted(row))} more ${c.set_aside === 1 ? "is" : "are"} not counted.` : "";
  const line = (kind, word, rest) => el("p", { class: "says" }, el("span", { class: "key " + kind }, word), " ", rest + aside);
  if (c.verdict === "held") inside.append(line("held", "held", `in ${n}; so at most ${c.trials <= 3 ? "all" : "3 of " + c.trials} such ${counted(row)}s break it, with 95 % confidence.${c.worst ? " The tightest: " + c.worst + "." : ""}`));
  else if (c.broken) inside.append(line(look[c.verdict], c.verdict, `by ${c.broken} of ${n}. The worst: ${c.worst}.`));
  else inside.append(line("none", c.verdict, (c.reason || "no reason is known") + "."));
  if (c.what) inside.append(el("p", { class: "quiet" }, (c.declared ? "Promised: " : "Not promised: ") + c.what + (service.declared.rests_on ? ". This rests on: " + service.declared.rests_on : ".")));
  $("cell").replaceChildren(inside);
  if (!$("cell").open) $("cell").showModal();
  $("cell").scrollTop = 0;
  if (c.witness) inside.append(el("h3", {}, ...whole(`Trial ${c.witness.trial}: ${c.witness.says}`)), timeline(c.witness));
  if (c.outcomes && c.outcomes.length) inside.append(el("h3", {}, row.fault ? "Faults" : "Rounds"), trials(row, c));
  if (c.witness) inside.append(eventList(c.witness));
  history.replaceState(null, "", "#" + encodeURIComponent(row.id + "@" + c.service));
}

function trials(row, c) {
  const most = Math.max(...c.outcomes.map((o) => o.ns || 0));
  const rows = c.outcomes.map((o) => el("tr", {},
    el("td", {}, o.trial),
    el("td", {}, el("span", { class: "key " + (o.broken ? look[c.verdict] : o.set_aside ? "none" : "held") }, o.broken ? "broken" : o.set_aside ? "not counted" : "held")),
    el("td", { class: "wide" }, o.note || "", o.ns && most ? el("div", { style: `height:3px;border-radius:2px;margin-top:2px;background:currentColor;opacity:.35;width:${Math.max(1, 100 * o.ns / most)}%` }) : "")));
  const more = c.trials + (c.set_aside || 0) - rows.length;
  return el("div", { class: "figures" }, el("table", { class: "list" }, el("tbody", {}, ...rows)), more > 0 ? el("p", { class: "quiet" }, `and ${plural(more, counted(row))} more`) : "");
}

function eventList(w) {
  const start = w.from;
  const rows = w.events.map((e) => el("tr", {},
    el("td", {}, time(e.t - start)), el("td", {}, who(e)), el("td", {}, kinds[e.k] || e.k),
    el("td", { class: "wide" }, el("code", {}, details(e, start)))));
  return el("details", {}, el("summary", {}, `All ${w.events.length} events around it`), el("div", { class: "figures" }, el("table", { class: "list" }, el("tbody", {}, ...rows))));
}

const kinds = {
  ask: "asks", granted: "gets it", refused: "is refused", gave_up: "gives up", renewed: "has renewed",
  told_lost: "is told that it is lost", unlock_begin: "unlocks", trial_begin: "the trial begins", trial_end: "the trial ends",
  fault_begin: "the fault begins", fault_end: "the fault is healed", evidence: "the fault is seen", stall: "the machine stalled", slow: "an answer was due",
};
const laneOf = (e) => e.p ? `${e.p}/${e.c || 0}` : "";
const who = (e) => ["fault_begin", "fault_end", "evidence", "stall", "slow", "trial_begin", "trial_end"].includes(e.k) ? e.p || "" : laneOf(e);
const details = (e, start) => [e.tok && `token ${e.tok}`, e.u && `until ${time(e.u - start)}`,
  e.f && `fault ${e.f}`, (e.k === "stall" || e.k === "slow") && time(e.v), e.e, e.d].filter(Boolean).join(", ");

// ---- the timeline of a witness

// lanes turns events into what is drawn: for each holder its waits, its beliefs and its moments.
function lanes(w) {
  const by = new Map(), faultSpans = [], last = w.events.length ? w.events[w.events.length - 1].t : w.to;
  const lane = (e) => {
    const id = laneOf(e);
    if (!by.has(id)) by.set(id, { id, spans: [], marks: [] });
    return by.get(id);
  };
  const endBelief = (l, e) => {
    const b = l.belief;
    if (!b) return;
    b.to = Math.min(b.until, e.t);
    if (e.t > b.until) l.spans.push({ kind: "after", from: b.until, to: e.t, text: "its lease was over; it had not been told" });
    l.belief = null;
  };
  for (const e of w.events) {
    switch (e.k) {
      case "fault_begin": {
        const f = { from: e.t, to: Math.max(last, w.to), text: e.f || "fault", who: e.p, open: true };
        faultSpans.push(f);
        if (faults[e.f] && faults[e.f].class === "killed") for (const l of by.values()) if (l.id.startsWith(e.p + "/")) { endBelief(l, e); l.marks.push({ e }); }
        continue;
      }
      case "fault_end":
        for (const f of faultSpans) if (f.open && (f.who || "") === (e.p || "")) { f.to = e.t; f.open = false; }
        continue;
      case "evidence": case "stall":
        faultSpans.push({ from: e.k === "stall" ? e.t - e.v : e.t, to: e.t, mark: e });
        continue;
      case "slow": case "trial_begin": case "trial_end":
        continue;
    }
    const l = lane(e);
    switch (e.k) {
      case "ask":
        endBelief(l, e);
        l.wait = { kind: "wait", from: e.t, to: Math.max(last, w.to), text: "waits" };
        l.spans.push(l.wait);
        continue;
      case "granted": case "refused": case "gave_up":
        if (l.wait) { l.wait.to = e.t; l.wait = null; }
        if (e.k === "granted") {
          l.belief = { kind: "belief", from: e.t, until: e.u || Infinity, to: Math.min(e.u || Infinity, Math.max(last, w.to)), token: e.tok, text: "believes to hold" + (e.tok ? `, token ${e.tok}` : "") };
          l.spans.push(l.belief);
        }
        break;
      case "renewed":
        if (l.belief) { l.belief.until = e.u || Infinity; l.belief.to = Math.min(l.belief.until, Math.max(last, w.to)); }
        break;
      case "told_lost": case "unlock_begin":
        endBelief(l, e);
        break;
    }
    l.marks.push({ e });
  }
  // Who never held, and did nothing but wait, is of interest only if few did.
  let all = [...by.values()];
  const holders = all.filter((l) => l.spans.some((s) => s.kind === "belief" && s.to >= w.from - 4e9));
  if (all.length > 10) all = holders.slice(0, 12);
  return { lanes: all, faultSpans, hidden: by.size - all.length };
}

const signs = {
  renewed: ["renewed", (x, y) => svg("path", { d: `M${x} ${y - 8}v16`, stroke: "var(--panel)", "stroke-width": 2 })],
  told_lost: ["told that it is lost", (x, y) => svg("path", { d: `M${x} ${y + 9}v-19h9l-3 4 3 4h-8`, fill: "var(--bad)", stroke: "var(--bad)", "stroke-width": 1.5 })],
  unlock_begin: ["unlocks", (x, y) => svg("path", { d: `M${x} ${y - 10}v20`, stroke: "currentColor", "stroke-width": 2.5 })],
  gave_up: ["gives up", (x, y) => svg("path", { d: `M${x - 4} ${y - 4}l8 8m0-8l-8 8`, stroke: "currentColor", "stroke-width": 2, fill: "none" })],
};
signs.refused = ["is refused", signs.gave_up[1]];
signs.fault_begin = ["its process is killed", (x, y) => svg("path", { d: `M${x - 5} ${y - 5}l10 10m0-10l-10 10`, stroke: "var(--bad)", "stroke-width": 3, fill: "none" })];

function timeline(w) {
  const { lanes: all, faultSpans, hidden } = lanes(w);
  const times = w.events.filter((e) => e.k !== "trial_begin" && e.k !== "trial_end" || w.events.length < 3).map((e) => e.t).concat(w.from, w.to);
  const spans = all.flatMap((l) => l.spans);
  let least = Math.min(...times), most = Math.max(...times, ...spans.filter((s) => s.kind === "belief").map((s) => Math.min(s.to, w.to + 3e9)));
  const pad = Math.max((most - least) * 0.03, 1e6);
  const everything = [least - pad, most + pad];
  const size = Math.max(w.to - w.from, (everything[1] - everything[0]) / 400);
  const near = [w.from - size * 1.2, w.to + size * 1.2];
  let view = everything.slice();
  const box = el("div", { class: "time", role: "img", "aria-label": w.says }), hits = [];
  const top = 58, bottom = 26;

  function draw() {
    const width = Math.max(box.clientWidth, 300), phone = width < 560, left = phone ? 10 : 150, right = 14;
    const laneHeight = phone ? 58 : 42, height = top + all.length * laneHeight + bottom;
    const x = (t) => left + (t - view[0]) / (view[1] - view[0]) * (width - left - right);
    const clip = (t) => Math.max(left, Math.min(width - right, x(t)));
    // within keeps the middle of a label where the whole of it is in the picture.
    const within = (at, words) => Math.max(4 + wide(words) / 2, Math.min(width - 4 - wide(words) / 2, at));
    const out = svg("svg", { viewBox: `0 0 ${width} ${height}`, height });
    hits.length = 0;
    // Time, from the break on.
    const step = niceStep((view[1] - view[0]) / (phone ? 4 : 9));
    for (let t = Math.ceil((view[0] - w.from) / step) * step; t + w.from <= view[1]; t += step) {
      const at = x(t + w.from);
      if (at < left || at > width - right) continue;
      out.append(svg("path", { d: `M${at} ${top - 8}V${height - bottom + 4}`, class: "grid" }), svg("text", { x: within(at, time(t)), y: height - 8, "text-anchor": "middle" }, time(t)));
    }
    // Faults.
    if (!phone) out.append(svg("text", { x: 12, y: 34 }, "what is done"));
    for (const f of faultSpans) {
      if (f.to < view[0] || f.from > view[1]) continue;
      if (f.mark) {
        const stall = f.mark.k === "stall", a = clip(f.from), b = Math.max(clip(f.to), a + 3);
        out.append(svg("rect", { x: a - (stall ? 0 : 1.5), y: 40, width: b - a, height: 7, rx: 1.5, fill: stall ? "var(--c3)" : "var(--soft)" }));
        hits.push([a - 4, 34, b + 4, 50, (stall ? "the machine stalled for " + time(f.mark.v) : "seen: " + (f.mark.d || "the fault took effect")) + "\n" + time(f.mark.t - w.from)]);
        continue;
      }
      const a = clip(f.from), b = Math.max(clip(f.to), a + 3), words = f.text + (f.who ? " · " + f.who : "");
      out.append(svg("rect", { x: a, y: 20, width: b - a, height: 20, rx: 4, class: "fault" }));
      if (b - a > wide(f.text) + 14) out.append(svg("text", { x: a + 7, y: 34, class: "on" }, fit(words, (b - a - 12) / 7)));
      else if (a - wide(words) > (phone ? 10 : 110)) out.append(svg("text", { x: a - 6, y: 34, "text-anchor": "end", class: "beside" }, words));
      else if (b + wide(words) + 10 < width) out.append(svg("text", { x: b + 6, y: 34, class: "beside" }, words));
      hits.push([a, 20, b, 40, `${words}\n${time(f.from - w.from)} to ${f.open ? "the end" : time(f.to - w.from)}`]);
    }
    // Where it is broken.
    const a = clip(w.from), b = Math.max(clip(w.to), a + 2);
    if (w.to >= view[0] && w.from <= view[1]) {
      out.append(svg("rect", { x: a, y: top - 8, width: b - a, height: height - bottom - top + 10, class: "band" }));
      for (const [t, e] of [[w.from, a], [w.to, b]]) if (t >= view[0] && t <= view[1]) out.append(svg("path", { d: `M${e} ${top - 8}V${height - bottom + 2}`, class: "edge" }));
      const words = w.to > w.from ? time(w.to - w.from) : "here", mid = (a + b) / 2;
      out.append(svg("text", { x: within(mid, words), y: 14, "text-anchor": "middle", class: "verdict" }, words));
    }
    // Holders.
    all.forEach((l, i) => {
      const y = top + i * laneHeight + (phone ? 36 : 19), c = color(i);
      const g = svg("g", { style: `color:${c}` });
      out.append(svg("path", { d: `M${left} ${y}H${width - right}`, class: "grid" }));
      for (const s of l.spans) {
        if (s.to < view[0] || s.from > view[1] || s.to < s.from) continue;
        const from = clip(s.from), to = Math.max(clip(s.to), from + 1.5);
        if (s.kind === "belief") g.append(svg("rect", { x: from, y: y - 9, width: to - from, height: 18, rx: Math.min(4, (to - from) / 2), fill: "currentColor" }));
        else g.append(svg("path", { d: `M${from} ${y}H${to}`, stroke: s.kind === "after" ? "var(--bad)" : "currentColor", "stroke-width": s.kind === "after" ? 3 : 2, "stroke-dasharray": s.kind === "after" ? "3 3" : "1 4", "stroke-linecap": "round" }));
        if (s.kind === "belief" && s.token && to - from > 74) g.append(svg("text", { x: from + 8, y: y + 4, class: "on" }, fit("token " + s.token, (to - from - 12) / 6.6)));
        hits.push([from, y - 10, to, y + 10, `${l.id} ${s.text}\n${time(s.from - w.from)} to ${s.to === Infinity ? "…" : time(s.to - w.from)}: ${time(s.to - s.from)}`]);
      }
      let previous;
      for (const { e } of l.marks) {
        const sign = signs[e.k];
        if (!sign || e.t < view[0] || e.t > view[1]) continue;
        const at = x(e.t);
        if (e.k === "renewed" && at - previous < 5) continue; // they would cover each other
        if (e.k === "renewed") previous = at;
        g.append(sign[1](at, y));
        hits.push([at - 6, y - 7, at + 6, y + 7, `${l.id} ${kinds[e.k]}\n${[time(e.t - w.from), details(e, w.from)].filter(Boolean).join("\n")}`]);
      }
      out.append(g, svg("text", phone ? { x: left, y: y - 23, class: "strong" } : { x: 12, y: y + 4, class: "strong" }, fit(l.id, phone ? 40 : 20)));
    });
    box.replaceChildren(out);
  }
  const zoom = (by, at) => {
    const length = Math.max(2e3, Math.min((view[1] - view[0]) * by, (everything[1] - everything[0]) * 3));
    const share = (at - view[0]) / (view[1] - view[0]);
    view = [at - length * share, at + length * (1 - share)];
    draw();
  };
  const timeAt = (clientX) => {
    const r = box.getBoundingClientRect(), left = r.width < 560 ? 10 : 150;
    return view[0] + (clientX - r.left - left) / (r.width - left - 14) * (view[1] - view[0]);
  };
  box.addEventListener("wheel", (e) => {
    e.preventDefault();
    zoom(Math.exp(Math.max(-1, Math.min(1, e.deltaY / 300))), timeAt(e.clientX));
  }, { passive: false });
  box.addEventListener("dblclick", (e) => zoom(0.4, timeAt(e.clientX)));
  const fingers = new Map();
  box.addEventListener("pointerdown", (e) => { fingers.set(e.pointerId, e.clientX); box.setPointerCapture(e.pointerId); hover(e); });
  const up = (e) => fingers.delete(e.pointerId);
  box.addEventListener("pointerup", up);
  box.addEventListener("pointercancel", up);
  box.addEventListener("pointermove", (e) => {
    const before = fingers.get(e.pointerId);
    if (before === undefined) return hover(e);
    const other = [...fingers].find(([id]) => id !== e.pointerId);
    fingers.set(e.pointerId, e.clientX);
    if (other) {
      const was = Math.abs(before - other[1]), is = Math.abs(e.clientX - other[1]);
      if (was > 8 && is > 8) zoom(was / is, timeAt((e.clientX + other[1]) / 2));
      return;
    }
    const shift = timeAt(before) - timeAt(e.clientX);
    if (shift) { view = [view[0] + shift, view[1] + shift]; tip(""); draw(); }
  });
  box.addEventListener("pointerleave", () => tip(""));
  function hover(e) {
    const r = box.getBoundingClientRect(), px = e.clientX - r.left, py = e.clientY - r.top;
    const hit = hits.findLast(([x0, y0, x1, y1]) => px >= x0 && px <= x1 && py >= y0 && py <= y1);
    tip(hit ? hit[4] : "", e.clientX, e.clientY);
  }
  const tool = (name, what, run) => el("button", { class: "tool", type: "button", "aria-label": what, onclick: run }, name);
  const middle = () => (view[0] + view[1]) / 2;
  const used = new Set(all.flatMap((l) => l.marks.map((m) => m.e.k)));
  const seen = (k) => faultSpans.some((f) => f.mark ? f.mark.k === k : k === "fault");
  const legend = el("div", { class: "signs" },
    seen("fault") && sample("the fault, until it is healed", svg("rect", { x: 1, y: 1, width: 20, height: 10, rx: 3, class: "fault" })),
    seen("evidence") && sample("it is seen to take effect", svg("rect", { x: 9, y: 2, width: 3, height: 8, rx: 1.5, fill: "var(--soft)" })),
    seen("stall") && sample("the machine stalled", svg("rect", { x: 1, y: 2, width: 20, height: 7, rx: 1.5, fill: "var(--c3)" })),
    sample("where it breaks", svg("path", { d: "M2 -4h18v20h-18z", fill: "var(--bad)", opacity: ".17" }), svg("path", { d: "M2 -4v20m18 0v-20", stroke: "var(--bad)", "stroke-width": 1.5 })),
    sample("believes to hold", svg("rect", { x: 1, y: 1, width: 20, height: 10, rx: 3, fill: "currentColor" })),
    sample("waits", svg("path", { d: "M1 6h20", stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": "1 4", "stroke-linecap": "round" })),
    spans.some((s) => s.kind === "after") ? sample("its lease is over, and it has not been told", svg("path", { d: "M1 6h20", stroke: "var(--bad)", "stroke-width": 3, "stroke-dasharray": "3 3" })) : "",
    ...Object.entries(signs).filter(([k]) => used.has(k)).map(([k, s]) => sample(s[0], k === "renewed" ? svg("path", { d: "M1 1h9v10h-9zm11 0h9v10h-9z", fill: "currentColor" }) : s[1](11, 6))));
  const whenever = el("div", { class: "line" }, el("span", {}, "Time counts from the moment in which it breaks. Wheel or pinch to zoom, drag to move."), el("span", { class: "space" }),
    tool("−", "zoom out", () => zoom(1.7, middle())), tool("+", "zoom in", () => zoom(0.6, middle())),
    tool("the break", "zoom to where it breaks", () => { view = near.slice(); draw(); }), tool("all of it", "show everything", () => { view = everything.slice(); draw(); }));
  new ResizeObserver(draw).observe(box);
  return el("div", {}, whenever, box, legend, hidden > 0 ? el("p", { class: "quiet" }, `${plural(hidden, "caller")} who never held ${hidden === 1 ? "is" : "are"} left out.`) : "");
}

const sample = (words, ...inside) => el("span", {}, svg("svg", { viewBox: "0 -5 22 22" }, ...inside), words);
const wide = (words) => words.length * 7.5; // of a label, at most
const fit = (s, n) => s.length <= n ? s : n < 4 ? "" : s.slice(0, n - 1) + "…";
function niceStep(d) {
  const power = 10 ** Math.floor(Math.log10(d));
  return power * [1, 2, 5, 10].find((m) => m * power >= d);
}

// ---- the rest

function drawServices() {
  const yes = (b) => b ? "yes" : "no";
  $("services").querySelector(".cards").append(...services.map((s) => {
    const d = s.declared, facts = s.missing ? [["not tried", s.missing]] : [
      ["reaches", d.scope], ["exclusion by", d.exclusion], ["fencing", d.fencing === "none" ? "no tokens" : "tokens rise " + d.fencing], ["order", d.order === "none" ? "any" : d.order],
      ["freed", d.dead_holder + (d.dead_holder_slack_ms ? `, at most ${time(d.dead_holder_slack_ms * 1e6)} later` : "")], ["served", `with ${plural(d.server_crashes, "server")} down`],
      ["survives", [d.survives_restart && "restart", d.survives_failover && "fail-over", d.survives_clock_jump && "clock-jump", d.survives_pause && "server-pause"].filter(Boolean).join(", ") || "–"],
      ["rests on", d.rests_on || "–"]];
    return el("div", { class: "card" }, el("h3", {}, s.name), el("div", { class: "quiet" }, [s.version, s.url].filter(Boolean).join(", ")), el("dl", {}, ...facts.flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, String(v))])));
  }));
}

function drawWords() {
  $("headline").append(...whole(report.headline));
  $("headline").className = report.declared_and_broken ? "bad" : "";
  $("facts").textContent = [plural(report.trials, "trial"), new Date(report.run.began).toISOString().slice(0, 16).replace("T", " ") + " UTC"].join(" · ");
  if (report.interrupted) {
    $("interrupted").hidden = false;
    $("interrupted").textContent = "This is what was seen until the run ended early: " + report.interrupted;
  }
  $("machine").textContent = report.run.machine;
}

drawWords();
drawTable();
drawServices();
$("cell").addEventListener("close", () => { tip(""); history.replaceState(null, "", location.pathname + location.search); });
$("cell").addEventListener("click", (e) => { if (e.target === $("cell")) $("cell").close(); });
addEventListener("scroll", () => tip(""), { capture: true, passive: true });
{
  // A link to a cell opens it.
  const [id, service] = decodeURIComponent(location.hash.slice(1)).split(/@(?=[^@]*$)/);
  const row = report.rows.find((r) => r.id === id), cell = row && row.cells.find((c) => c.service === service);
  if (cell) openCell(row, cell);
}
