// The head grid: one cell per head, layer 0 on top. Position is meaning, so nothing here re-orders.
// Click or Enter chooses a head; shift-click or X puts it into, or takes it out of, the set to ablate.

const GRIDS = new WeakMap()

export function rankOf(values, layer, head) {
  const mine = values[layer][head]
  if (mine === null) return null
  return 1 + values.flat().filter((value) => value !== null && value > mine).length
}

function describe(view, layer, head) {
  const { values, low, high, before, label, digits } = view.data
  const value = values[layer][head]
  const parts = [`L${layer}H${head}`, `${label} ${number(value, digits)}`]
  if (low) parts.push(`[${number(low[layer][head], digits)}, ${number(high[layer][head], digits)}]`)
  if (view.data.marks) parts.push(view.data.marks[layer][head])
  const rank = rankOf(values, layer, head)
  if (rank) parts.push(`rank ${rank} of ${values.flat().length}`)
  if (before) parts.push(`step 0: ${number(before[layer][head], digits)}`)
  return parts.join("   ")
}

function makeCell(view, layer, head) {
  const { data, colors } = view
  const name = `L${layer}H${head}`
  const value = data.values[layer][head]
  const rgb = colorOf(value, data.scale, colors)
  const cell = element("div", "cell")
  cell.setAttribute("role", "gridcell")
  cell.setAttribute("aria-label", `layer ${layer} head ${head}: ${number(value, data.digits)}`)
  cell.setAttribute("aria-selected", String(name === data.chosen))
  cell.tabIndex = name === view.at ? 0 : -1
  cell.classList.toggle("chosen", name === data.chosen)
  cell.classList.toggle("inset", data.set.includes(name))
  cell.classList.toggle("sure", Boolean(data.sure?.[layer]?.[head]))
  Object.assign(cell.style, { background: cssColor(rgb), color: inkOn(rgb) })
  cell.append(element("span", "value", number(value, data.digits)))
  if (data.marks) cell.append(element("span", "mark", data.marks[layer][head]))
  if (data.before) cell.append(element("span", "before", number(data.before[layer][head], data.digits)))
  bindCell(view, cell, layer, head)
  return cell
}

function bindCell(view, cell, layer, head) {
  const name = `L${layer}H${head}`
  const say = () => { view.live.textContent = describe(view, layer, head) }
  const choose = () => { view.at = name; mark(view, name); view.send("picked", { head: name }) }
  const toggle = () => view.send("picked", { toggle: name })
  const step = (dLayer, dHead) => () => {
    const next = [clamp(layer + dLayer, 0, view.data.values.length - 1), clamp(head + dHead, 0, view.data.values[0].length - 1)]
    view.cells[next[0]][next[1]].focus()
  }
  cell.onpointerenter = cell.onfocus = say
  cell.onpointerleave = cell.onblur = () => { view.live.textContent = view.data.hint }
  cell.onpointerdown = (event) => { if (event.shiftKey) event.preventDefault() } // no text selection
  cell.onclick = (event) => (event.shiftKey ? toggle() : choose())
  onKeys(cell, {
    ArrowUp: step(-1, 0), ArrowDown: step(1, 0), ArrowLeft: step(0, -1), ArrowRight: step(0, 1),
    Enter: choose, " ": choose, x: toggle, X: toggle,
  })
}

function mark(view, name) {
  view.cells.flat().forEach((cell) => cell.classList.toggle("chosen", cell.dataset.name === name))
}

function draw(view) {
  const { values, scale } = view.data
  const grid = view.root.querySelector(".grid")
  grid.style.gridTemplateColumns = `max-content repeat(${values[0].length}, minmax(36px, 84px))`
  grid.setAttribute("aria-label", `${view.data.label}, layers by heads`)
  view.cells = values.map((row, layer) => row.map((_, head) => {
    const cell = makeCell(view, layer, head)
    cell.dataset.name = `L${layer}H${head}`
    return cell
  }))
  const header = [element("span", "corner"), ...values[0].map((_, head) => element("span", "column", `H${head}`))]
  const rows = view.cells.flatMap((row, layer) => [element("span", "row", `L${layer}`), ...row])
  grid.replaceChildren(...header, ...rows)
  view.root.querySelector(".scale").replaceChildren(element("span", "", view.data.label), legend(scale, view.colors))
  view.live.textContent = view.data.hint
}

export default function headGrid({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".head-grid")
  let view = GRIDS.get(parentElement)
  if (!view) GRIDS.set(parentElement, (view = { root, live: root.querySelector(".live") }))
  const focused = parentElement.activeElement?.dataset?.name
  Object.assign(view, { data, send: setTriggerValue, colors: palette(root), at: data.chosen ?? "L0H0" })
  draw(view)
  if (focused) view.cells.flat().find((cell) => cell.dataset.name === focused)?.focus()
  return () => GRIDS.delete(parentElement)
}
