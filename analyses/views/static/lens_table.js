// The lens table: positions from left to right under the text, places from the embedding downwards, in each cell the token
// that the stream would say there. Pointing reads a cell out and never leaves the browser; click or Enter locks it.

const LENSES = new WeakMap()
const SOON = 1500 // ms
const KINDS = { probability: "probability", divergence: "KL to final", rank: "rank of target" }

function makeLens(parent) {
  const root = parent.querySelector(".lens-table")
  const view = {
    root, live: root.querySelector(".live"), scroll: root.querySelector(".scroll"), table: root.querySelector("table"),
    drawn: null, shows: 0, cells: "probability", lock: null, hover: null, focus: { place: 0, position: 0 },
  }
  const body = root.querySelector("tbody")
  body.addEventListener("pointerover", (event) => point(view, cellAt(event.target)))
  body.addEventListener("pointerleave", () => point(view, null))
  body.addEventListener("click", (event) => {
    const at = cellAt(event.target)
    if (at) lock(view, same(at, view.lock) ? null : at)
  })
  body.addEventListener("focusin", (event) => {
    const at = cellAt(event.target)
    if (at) { view.focus = at; point(view, at) }
  })
  body.addEventListener("focusout", () => point(view, null))
  const step = (place, position) => () => walk(view, view.focus.place + place, view.focus.position + position)
  onKeys(view.table, {
    ArrowUp: step(-1, 0), ArrowDown: step(1, 0), ArrowLeft: step(0, -1), ArrowRight: step(0, 1),
    Home: step(0, -1e6), End: step(0, 1e6), PageUp: step(-1e6, 0), PageDown: step(1e6, 0),
    Enter: () => lock(view, view.focus), " ": () => lock(view, view.focus), Escape: () => lock(view, null),
  })
  return view
}

const same = (a, b) => a?.place === b?.place && a?.position === b?.position

function cellAt(target) {
  const cell = target.closest?.("td.cell")
  return cell ? { place: Number(cell.dataset.place), position: Number(cell.dataset.position) } : null
}

const cellOf = (view, at) => view.grid[at.place]?.[at.position]

function point(view, at) {
  if (view.hover && !same(view.hover, at)) cellOf(view, view.hover)?.classList.remove("hover")
  view.hover = at
  if (at) cellOf(view, at)?.classList.add("hover")
  tellAt(view)
}

function tellAt(view) {
  const at = view.hover ?? view.lock
  view.live.textContent = at && cellOf(view, at) ? describe(view, at.place, at.position) : view.data.hint
}

function walk(view, place, position) {
  const table = shownTable(view)
  const at = { place: clamp(place, 0, table.places.length - 1), position: clamp(position, 0, view.data.tokens.length - 1) }
  reachable(view, at)
  cellOf(view, at).focus({ preventScroll: true })
  bringIntoSight(view, at)
}

// The one cell that Tab comes to.
function reachable(view, at) {
  cellOf(view, view.focus)?.setAttribute("tabindex", "-1")
  view.focus = at
  cellOf(view, at)?.setAttribute("tabindex", "0")
}

// Scrolls inside the table only, and past its sticky edges.
function bringIntoSight(view, at) {
  const cell = cellOf(view, at)
  if (!cell) return
  const { scroll, table } = view
  const [left, top] = [table.querySelector("tbody th").offsetWidth, table.tHead.offsetHeight]
  const bottom = scroll.clientHeight - table.tFoot.offsetHeight
  const x = cell.offsetLeft - scroll.scrollLeft
  const y = cell.offsetTop - scroll.scrollTop
  if (x < left) scroll.scrollLeft += x - left - 40
  else if (x + cell.offsetWidth > scroll.clientWidth) scroll.scrollLeft += x + cell.offsetWidth - scroll.clientWidth + 40
  if (y < top) scroll.scrollTop += y - top
  else if (y + cell.offsetHeight > bottom) scroll.scrollTop += y + cell.offsetHeight - bottom
}

const shownTable = (view) => view.tables[view.shows === 1 ? 1 : 0]

// Of several picks in a short time a host may see the last one only, so that one says what the others said.
function send(view, field, value, picked) {
  const now = performance.now()
  view.picked = now - (view.pickedAt ?? -SOON) < SOON ? { ...view.picked, ...picked } : picked
  view.pickedAt = now
  view.send(field, value, view.picked)
}

function lock(view, at) {
  mark(view, at)
  const place = at ? shownTable(view).places[at.place] : ""
  const token = at ? view.data.start + at.position : null
  send(view, "lock", [token, at ? place : null], { token: token === null ? "" : String(token), place })
}

function mark(view, at) {
  if (view.lock) cellOf(view, view.lock)?.removeAttribute("aria-selected")
  view.lock = at
  if (at) cellOf(view, at)?.setAttribute("aria-selected", "true")
  view.heads.forEach((head, i) => head.classList.toggle("at", i === at?.position))
  view.sides.forEach((side, i) => side.classList.toggle("at", i === at?.place))
  tellAt(view)
}

function drawTable(view) {
  const { data, table } = view
  const shown = shownTable(view)
  const corner = element("th", "corner", "place")
  corner.title = "where the stream is read: L0.mid after the attention of layer 0, L0 after all of it"
  view.heads = data.tokens.map((token, i) => {
    const head = element("th", "head")
    head.scope = "col"
    head.append(element("span", "number", String(data.start + i)), element("span", "token", token))
    return head
  })
  const first = element("tr")
  first.append(corner, ...view.heads)
  table.tHead.replaceChildren(first)
  table.setAttribute("aria-label", "logit lens, places by positions")
  view.sides = []
  view.grid = shown.places.map((place) => data.tokens.map(() => element("td", "cell")))
  const rows = view.grid.map((cells, place) => {
    const row = element("tr")
    const side = element("th", shown.places[place].endsWith(".mid") ? "side mid" : "side", shown.places[place])
    side.scope = "row"
    view.sides.push(side)
    cells.forEach((cell, position) => fill(view, cell, place, position))
    row.append(side, ...cells)
    return row
  })
  table.tBodies[0].replaceChildren(...rows)
  const last = element("tr")
  last.append(element("th", "side", data.target), ...data.tokens.map((_, position) => targetBelow(view, shown, position)))
  table.tFoot.replaceChildren(last)
  const widest = Math.max(...data.words.map((word) => [...word].length), ...data.tokens.map((token) => [...token].length))
  table.style.setProperty("--cell", `${clamp(widest, 2, 8) + 2}ch`)
  reachable(view, cellOf(view, view.focus) ? view.focus : { place: 0, position: 0 })
  paintCells(view)
}

function fill(view, cell, place, position) {
  const { data } = view
  const shown = shownTable(view)
  const token = data.words[shown.top(place, position)]
  cell.dataset.place = place
  cell.dataset.position = position
  cell.setAttribute("role", "gridcell")
  cell.setAttribute("tabindex", "-1")
  const rank = shown.rank(place, position)
  const name = `${shown.places[place]}, position ${data.start + position} ‘${data.tokens[position]}’: ‘${token}’ ${number(shown.probability(place, position))}`
  cell.setAttribute("aria-label", `${name}, ${namedTarget(data, position)} has rank ${rank}`)
  const other = view.shows === 2 ? data.words[view.tables[1].top(place, position)] : token
  const hit = (table) => (isTarget(table, place, position) ? " hit" : "")
  cell.append(element("span", `token${hit(shown)}`, token))
  if (other !== token) cell.append(element("span", `token other${hit(view.tables[1])}`, other))
  const change = moved(shown, place, position)
  if (change && view.shows !== 2) cell.append(element("span", "arrow", change > 0 ? "▴" : "▾"))
}

function targetBelow(view, shown, position) {
  const guessed = isGuessed(view.data, position)
  const foot = element("td", "foot")
  const hit = isTarget(shown, shown.places.length - 1, position) ? " hit" : ""
  foot.append(element("span", `token${hit}`, view.data.words[shown.targets[position]]))
  if (guessed) {
    foot.classList.add("guessed")
    foot.title = `${namedTarget(view.data, position)} ‘${view.data.words[shown.targets[position]]}’`
    foot.firstChild.textContent = `(${foot.firstChild.textContent})`
  }
  return foot
}

function paintCells(view) {
  view.grid.forEach((cells, place) => cells.forEach((cell, position) => {
    const [value, scale] = cellValue(view, place, position)
    const rgb = colorOf(value, scale, view.colors)
    cell.style.background = cssColor(rgb)
    cell.style.color = inkOn(rgb)
  }))
  drawBar(view)
}

function choice(view, labels, current, choose, name) {
  const group = element("span", "segments")
  group.setAttribute("role", "group")
  group.setAttribute("aria-label", name)
  Object.entries(labels).forEach(([value, label]) => {
    const button = element("button", "toggle", label)
    button.type = "button"
    button.setAttribute("aria-pressed", String(value === String(current)))
    button.onclick = () => choose(value)
    group.append(button)
  })
  return group
}

function drawBar(view) {
  const { data, root, shows } = view
  const parts = []
  if (data.tables.length > 1) {
    const names = { 0: data.names[0], 1: data.names[1], ...(data.difference ? { 2: `${data.names[0]} − ${data.names[1]}` } : {}) }
    parts.push(choice(view, names, shows, (value) => show(view, Number(value)), "which model"))
  }
  if (shows !== 2) {
    parts.push(choice(view, KINDS, view.cells, (value) => {
      setCells(view, value)
      send(view, "cells", value, { cells: value })
    }, "what colours show"))
  }
  parts.push(pngButton(root, () => "lens", () => view.data))
  root.querySelector(".bar").replaceChildren(...parts)
  const scale = shows === 2 ? data.difference : data.scales[view.cells]
  const bar = legend(scale, view.colors)
  if (shows !== 2 && view.cells === "rank") {
    bar.firstChild.textContent = data.worst.toLocaleString("en")
    bar.lastChild.textContent = "1"
  }
  const title = shows === 2 ? `log-probability of the ${data.target}, ${data.names[0]} less ${data.names[1]}, nats` : data.titles[view.cells]
  const arrows = shows === 2 ? [] : [element("span", "", "▴▾ the target's rank rose, fell")]
  root.querySelector(".scale").replaceChildren(element("span", "", title), bar, ...arrows)
}

function show(view, which) {
  view.shows = which
  const locked = view.lock
  drawTable(view)
  mark(view, locked && cellOf(view, locked) ? locked : null)
}

function setCells(view, cells) {
  if (!(cells in KINDS) || cells === view.cells) return
  view.cells = cells
  paintCells(view)
}

function receive(view, sent) {
  const data = { ...sent, words: sent.words.split(" ") }
  const colors = palette(view.root)
  const anew = view.drawn !== data.hash + data.names.join("\0") + data.target || cssColor(view.colors?.background ?? []) !== cssColor(colors.background)
  Object.assign(view, { data, colors, drawn: data.hash + data.names.join("\0") + data.target })
  if (anew) {
    view.tables = data.tables.map((table) => readTable(table, data.tokens.length))
    if (view.shows >= data.tables.length && !(view.shows === 2 && data.difference)) view.shows = 0
    view.lock = view.hover = null
    drawTable(view)
  }
  settle(view, data)
  if (anew && !view.lock) beginAt(view, (data.begin ?? data.start) - data.start)
}

// Where nothing is locked, Tab and the first sight are of the position that the host looks at.
function beginAt(view, position) {
  const at = { place: shownTable(view).places.length - 1, position }
  if (!cellOf(view, at)) return
  reachable(view, at)
  bringIntoSight(view, at)
}

function settle(view, { token = null, chosen = null, cells }) {
  const now = performance.now()
  if (settled(view.sent, "cells", cells, now) && cells) setCells(view, cells)
  if (!settled(view.sent, "lock", [token, chosen], now)) return
  delete view.sent.lock
  const position = token === null ? -1 : token - view.data.start
  const place = shownTable(view).places.indexOf(chosen)
  const there = position >= 0 && position < view.data.tokens.length
  const at = there && place >= 0 ? { place, position } : null
  const moved = !same(at, view.lock)
  mark(view, at)
  view.heads.forEach((head, i) => head.classList.toggle("at", there && i === position))
  if (at && moved) {
    if (!view.root.contains(view.root.getRootNode().activeElement)) reachable(view, at)
    bringIntoSight(view, at)
  }
}

export default function lensTable(host) {
  return mount(LENSES, host, {
    make: makeLens, receive, settle, keys: { d: (view) => { if (view.data.tables.length > 1) show(view, (view.shows + 1) % (view.data.difference ? 3 : 2)) } },
  })
}
