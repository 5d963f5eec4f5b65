// The head grid: one cell per head, layer 0 on top. Position is meaning, so nothing here re-orders.
// Click or Enter chooses a head; shift-click or X puts it into, or takes it out of, the set to ablate.

const GRIDS = new WeakMap()
const DENSE = 16
const DEEP = 24 // layers of which all are to be seen at once

export function rankOf(values, layer, head) {
  const mine = values[layer][head]
  if (mine === null) return null
  return 1 + values.flat().filter((value) => value !== null && value > mine).length
}

export const countOf = (values) => values.flat().filter((value) => value !== null).length

const less = (a, b) => a.map((row, i) => row.map((value, j) => (value === null || b[i][j] === null ? null : value - b[i][j])))

// What is drawn now: the grid at its frame, the other one, or their difference.
function shownGrid(view) {
  const { data } = view
  if (!data.other || view.shows === 0) return { ...gridAt(data, view.frames, view.frame), scale: data.scale }
  const none = { low: null, high: null, marks: null, sure: null }
  const mine = gridAt(data, view.frames, view.frame).values
  return view.shows === 1 ? { ...none, values: data.other, scale: data.scale } : { ...none, values: less(mine, data.other), scale: data.difference }
}

function describe(view, layer, head) {
  const { before, label, digits, names, other } = view.data
  const { values, low, high, marks } = view.grid
  const told = (grid) => number(grid[layer][head], digits)
  const parts = [`L${layer}H${head}`, `${label} ${told(values)}`]
  if (low && high) parts.push(`[${told(low)}, ${told(high)}]`)
  if (marks) parts.push(marks[layer][head])
  const rank = rankOf(values, layer, head)
  if (rank) parts.push(`rank ${rank} of ${countOf(values)}`)
  if (before) parts.push(`step 0: ${told(before)}`)
  if (other) {
    const mine = gridAt(view.data, view.frames, view.frame).values
    parts.push(`${names[0]} ${told(mine)}  ${names[1]} ${told(other)}  difference ${told(less(mine, other))}`)
  }
  return parts.join("   ")
}

function makeCell(view, layer, head) {
  const cell = element("div", "cell")
  cell.setAttribute("role", "gridcell")
  cell.dataset.name = `L${layer}H${head}`
  cell.append(element("span", "value"))
  if (view.data.marks) cell.append(element("span", "mark"))
  if (view.data.before) cell.append(element("span", "before", number(view.data.before[layer][head], view.data.digits)))
  if (view.data.sparklines) {
    const { values } = view.data
    cell.append(sparkline(seriesOf(view.frames, layer, head, values.length, values[0].length), view.data.scale))
  }
  bindCell(view, cell, layer, head)
  return cell
}

const brief = (view, value) => (view.dense ? number(value, view.data.digits).replace(/^(-?)0\./, "$1.") : number(value, view.data.digits))

// Everything in a cell that depends on the frame, the comparison, or what is chosen.
function recolour(view) {
  view.grid = shownGrid(view)
  const { values, marks, sure, scale } = view.grid
  const { chosen, set } = view
  view.cells.forEach((row, layer) => row.forEach((cell, head) => {
    const name = cell.dataset.name
    const rgb = colorOf(values[layer][head], scale, view.colors)
    Object.assign(cell.style, { background: cssColor(rgb), color: inkOn(rgb) })
    cell.querySelector(".value").textContent = brief(view, values[layer][head])
    const mark = cell.querySelector(".mark")
    if (mark) mark.textContent = marks ? marks[layer][head] : ""
    cell.classList.toggle("chosen", name === chosen)
    cell.classList.toggle("inset", set.includes(name))
    cell.classList.toggle("sure", Boolean(sure?.[layer]?.[head]))
    cell.setAttribute("aria-label", labelOf(view, layer, head, values[layer][head], set.includes(name)))
    cell.setAttribute("aria-selected", String(name === chosen))
    cell.tabIndex = name === view.at ? 0 : -1
  }))
  view.root.querySelectorAll(".segments .toggle").forEach((button, i) => button.setAttribute("aria-pressed", String(view.shows === i)))
  const label = view.data.other ? `${view.data.label}: ${comparedName(view.data.names, view.shows)}` : view.data.label
  view.root.querySelector(".what").replaceChildren(element("span", "", label), legend(scale, view.colors))
  tellIn(view.live, view.pointed && describe(view, ...view.pointed), view.data.hint)
}

const labelOf = (view, layer, head, value, ablated) =>
  `layer ${layer} head ${head}: ${number(value, view.data.digits)}${ablated ? ", in the ablation" : ""}`

function bindCell(view, cell, layer, head) {
  const name = cell.dataset.name
  const say = (pointed) => () => {
    view.pointed = pointed
    tellIn(view.live, pointed && describe(view, ...pointed), view.data.hint)
  }
  const choose = () => {
    Object.assign(view, { at: name, chosen: name })
    recolour(view)
    view.send("chosen", name, { head: name })
  }
  const toggle = () => {
    view.set = view.set.includes(name) ? view.set.filter((each) => each !== name) : [...view.set, name]
    recolour(view)
    view.send("set", view.set, { toggle: name })
  }
  const step = (dLayer, dHead) => () => {
    const [layers, heads] = [view.cells.length, view.cells[0].length]
    const next = view.cells[clamp(layer + dLayer, 0, layers - 1)][clamp(head + dHead, 0, heads - 1)]
    cell.tabIndex = -1
    next.tabIndex = 0
    view.at = next.dataset.name
    next.focus()
  }
  cell.onpointerenter = cell.onfocus = say([layer, head])
  cell.onpointerleave = cell.onblur = say(null)
  cell.onpointerdown = (event) => { if (event.shiftKey) event.preventDefault() } // no text selection
  cell.onclick = (event) => (event.shiftKey ? toggle() : choose())
  onKeys(cell, {
    ArrowUp: step(-1, 0), ArrowDown: step(1, 0), ArrowLeft: step(0, -1), ArrowRight: step(0, 1),
    Home: step(0, -1000), End: step(0, 1000), PageUp: step(-1000, 0), PageDown: step(1000, 0),
    Enter: choose, " ": choose, x: toggle, X: toggle,
  })
}

function part(role, children, className) {
  const made = element("div", className)
  made.setAttribute("role", role)
  made.append(...children)
  return made
}

function heading(role, className, text) {
  const made = element("span", className, text)
  made.setAttribute("role", role)
  return made
}

// Rows are named by layers; that stands there for who cannot see the grid.
function corner() {
  const made = heading("columnheader", "corner", "")
  made.append(element("span", "unseen", "layer"))
  return made
}

function draw(view) {
  const { values, label } = view.data
  view.dense = Math.max(values.length, values[0].length) > DENSE
  const grid = view.root.querySelector(".grid")
  const least = view.dense ? 26 : 36
  grid.classList.toggle("dense", view.dense)
  grid.classList.toggle("deep", values.length > DEEP && !view.data.before)
  grid.style.gridTemplateColumns = `max-content repeat(${values[0].length}, minmax(${least}px, 84px))`
  grid.setAttribute("aria-label", `${label}, layers by heads`)
  view.cells = values.map((row, layer) => row.map((_, head) => makeCell(view, layer, head)))
  const header = part("row", [corner(), ...values[0].map((_, head) => heading("columnheader", "column", `H${head}`))], "cells")
  const rows = view.cells.map((row, layer) => part("row", [heading("rowheader", "row", `L${layer}`), ...row], "cells"))
  grid.replaceChildren(header, ...rows)
  makeGridControls(view)
  makeFrameBar(view)
}

function makeGridControls(view) {
  const { other, names, label } = view.data
  const parts = [element("span", "what")]
  if (other) {
    const group = element("span", "segments")
    group.append(...[...names, "difference"].map((name, i) => {
      const button = element("button", "toggle", name)
      Object.assign(button, { type: "button", title: "D goes on to the next", onclick: () => showGrid(view, i) })
      return button
    }))
    parts.push(group)
  }
  parts.push(pngButton(view.root, () => `heads, ${label}`, () => view.data))
  view.root.querySelector(".scale").replaceChildren(...parts)
}

function showGrid(view, shows) {
  view.shows = shows
  recolour(view)
}

function receive(view, data) {
  const { step, chosen, set, follows, ...rest } = data
  const drawn = JSON.stringify(rest)
  const colors = palette(view.root)
  const active = view.root.getRootNode().activeElement
  const [focused, sliding] = [active?.dataset?.name, active && active === view.slider]
  const anew = view.drawn !== drawn || cssColor(view.colors.background) !== cssColor(colors.background)
  Object.assign(view, { data, colors })
  if (anew) {
    stopPlaying(view)
    Object.assign(view, { drawn, frames: unpackedFrames(data.frames), pointed: null, chosen, set, shows: data.other ? view.shows : 0 })
    view.at = chosen ?? "L0H0"
    view.frame = view.frames ? hostFrame(view) : 0
    draw(view)
  }
  settle(view, data)
  if (anew && sliding) view.slider?.focus()
  if (anew && focused) view.cells.flat().find((cell) => cell.dataset.name === focused)?.focus()
}

function settle(view, data) {
  const now = performance.now()
  for (const [field, otherwise] of [["chosen", null], ["set", []]]) {
    if (!settled(view.sent, field, data[field] ?? otherwise, now)) continue
    delete view.sent[field]
    if (field === "chosen" && data.chosen && data.chosen !== view.chosen) view.at = data.chosen
    view[field] = data[field] ?? otherwise
  }
  if (view.frames && data.step !== view.hostStep && settled(view.sent, "step", data.step, now)) {
    delete view.sent.step
    view.hostStep = data.step
    view.data = { ...view.data, step: data.step }
    view.frame = hostFrame(view)
  }
  recolour(view)
  if (view.frames) showFrame(view)
}

export default function headGrid(host) {
  const make = (parent) => {
    const root = parent.querySelector(".head-grid")
    return { root, live: root.querySelector(".live"), shows: 0, drawn: null, set: [], chosen: null, colors: palette(root) }
  }
  const next = (view) => { if (view.data.other) showGrid(view, (view.shows + 1) % 3) }
  return mount(GRIDS, host, { make, receive, settle, keys: { d: next } })
}
