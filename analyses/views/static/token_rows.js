// Token rows: pieces of text, each token on the colour of its value, with a note in front. Pointing reads a value out.
// A second number is how thick a token is underlined. Copying gives the text as it was, not as it is shown.

const ROWS = new WeakMap()

const THICK = 4 // pixels

export function thickness(second, reach) {
  return second === null || second === undefined ? 0 : Math.round((THICK * 10 * Math.min(1, Math.abs(second) / reach))) / 10
}

function tell(view, row, i) {
  const { label, digits, second_label: other } = view.data
  const parts = [`position ${row.start + i}  ‘${row.tokens[i]}’`]
  if (row.values) parts.push(`${label} ${number(row.values[i], digits)}`)
  if (row.second) parts.push(`${other} ${number(row.second[i], digits)}`)
  return parts.join("   ")
}

function makeToken(view, row, i) {
  const value = row.values?.[i] ?? null
  const token = element("span", "token", row.tokens[i])
  if (value !== null) {
    const rgb = colorOf(value, view.data.scale, view.colors)
    Object.assign(token.style, { background: cssColor(rgb), color: inkOn(rgb) })
  }
  const thick = thickness(row.second?.[i], view.data.second_reach)
  if (thick) token.style.borderBottom = `${thick}px solid color-mix(in srgb, var(--text) 75%, transparent)`
  token.dataset.raw = JSON.stringify(row.raw?.[i] ?? row.tokens[i])
  token.dataset.at = row.start + i
  if (row.values || row.second) {
    token.onpointerenter = () => { tellIn(view.live, tell(view, row, i)) }
    token.onpointerleave = () => rest(view)
  }
  token.classList.toggle("boxed", i === row.boxed)
  if (view.data.pick === "token") makePickable(view, token, row, i)
  return token
}

function makePickable(view, token, row, i) {
  const at = row.start + i
  token.classList.add("pickable")
  token.setAttribute("role", "option")
  token.setAttribute("aria-label", tell(view, row, i))
  token.tabIndex = -1
  const pick = (place) => {
    view.token = place
    mark(view)
    view.send("token", place, { token: place === null ? "" : String(place) })
  }
  const go = (by) => () => {
    const next = view.tokens[clamp(view.tokens.indexOf(token) + by, 0, view.tokens.length - 1)]
    token.tabIndex = -1
    next.tabIndex = 0
    next.focus()
  }
  const beside = (down) => () => nearest(view.tokens, token, down)?.focus()
  token.onclick = () => { if (getSelection().isCollapsed) pick(view.token === at ? null : at) }
  token.onfocus = () => tellIn(view.live, tell(view, row, i))
  token.onblur = () => rest(view)
  onKeys(token, {
    ArrowLeft: go(-1), ArrowRight: go(1), ArrowUp: beside(false), ArrowDown: beside(true),
    Home: go(-1e6), End: go(1e6), Enter: () => pick(at), " ": () => pick(at), Escape: () => pick(null),
  })
}

// The token of the line above or below that stands closest.
function nearest(tokens, from, down) {
  const box = from.getBoundingClientRect()
  const middle = (at) => (at.left + at.right) / 2
  const boxes = tokens.map((token) => token.getBoundingClientRect())
  const beyond = (at) => (down ? at.top > box.top + 2 : at.top < box.top - 2)
  const lines = boxes.filter(beyond).map((at) => at.top)
  if (!lines.length) return null
  const line = down ? Math.min(...lines) : Math.max(...lines)
  const cost = (at) => (Math.abs(at.top - line) > 2 ? Infinity : Math.abs(middle(at) - middle(box)))
  return tokens[boxes.reduce((best, at, i) => (cost(at) < cost(boxes[best]) ? i : best), 0)]
}

function rest(view) {
  const chosen = view.tokens.find((token) => Number(token.dataset.at) === view.token)
  const said = view.token === null ? null : chosen?.getAttribute("aria-label")
  tellIn(view.live, said ? `${said}  ·\u00a0locked` : null, view.data.hint)
}

function mark(view) {
  if (view.data.pick !== "token") return
  view.tokens.forEach((token) => {
    const chosen = Number(token.dataset.at) === view.token
    token.classList.toggle("at", chosen)
    token.setAttribute("aria-selected", String(chosen))
  })
  const current = view.tokens.find((token) => token.tabIndex === 0)
  const chosen = view.tokens.find((token) => Number(token.dataset.at) === view.token) ?? current ?? view.tokens[0]
  view.tokens.forEach((token) => { token.tabIndex = token === chosen ? 0 : -1 })
  rest(view)
}

function makeRow(view, row) {
  const line = element("div", "line")
  const text = element("span", "tokens")
  if (view.data.pick === "token") {
    text.setAttribute("role", "listbox")
    text.setAttribute("aria-label", `tokens ${row.start} to ${row.start + row.tokens.length - 1}`)
  }
  row.tokens.forEach((_, i) => {
    text.append(makeToken(view, row, i))
    if (view.data.break_lines && (row.raw?.[i] ?? "").includes("\n")) text.append(element("br"))
  })
  line.append(element("span", "note", row.note), text)
  return line
}

// What is selected, as it was written: each token that the selection touches, whole.
export function originalOf(tokens) {
  return tokens.map((token) => JSON.parse(token.dataset.raw)).join("")
}

function copy(view, event) {
  const scope = view.root.getRootNode()
  const selection = scope.getSelection ? scope.getSelection() : getSelection()
  const range = selection?.getComposedRanges?.({ shadowRoots: scope.host ? [scope] : [] })?.[0] ?? selection?.getRangeAt?.(0)
  if (!range || range.collapsed) return
  const live = document.createRange()
  live.setStart(range.startContainer, range.startOffset)
  live.setEnd(range.endContainer, range.endOffset)
  const touched = view.tokens.filter((token) => live.intersectsNode(token))
  if (!touched.length) return
  event.clipboardData.setData("text/plain", originalOf(touched))
  event.preventDefault()
}

function receive(view, data) {
  const { token, follows, ...rest } = data
  const drawn = JSON.stringify(rest)
  const colors = palette(view.root)
  const anew = view.drawn !== drawn || cssColor(view.colors.background) !== cssColor(colors.background)
  Object.assign(view, { data, colors, drawn })
  if (anew) drawRows(view)
  settle(view, data)
}

function drawRows(view) {
  const { root, data } = view
  root.querySelector(".lines").replaceChildren(...data.rows.map((row) => makeRow(view, row)))
  root.querySelector(".lines").classList.toggle("bare", data.rows.every((row) => !row.note))
  view.tokens = [...root.querySelectorAll(".lines .token")]
  tellIn(view.live, null, data.hint)
  const coloured = data.rows.some((row) => row.values || row.second)
  view.live.hidden = root.querySelector(".scale").hidden = !coloured
  const second = data.rows.some((row) => row.second)
    ? [element("span", "underline", `underline: ${data.second_label}, up to ${number(data.second_reach, 2)}`)]
    : []
  const parts = coloured ? [element("span", "", data.label), legend(data.scale, view.colors), ...second] : []
  if (coloured) parts.push(pngButton(root, () => `tokens, ${data.label}`, () => view.data))
  root.querySelector(".scale").replaceChildren(...parts)
}

function settle(view, { token = null }) {
  if (!settled(view.sent, "token", token, performance.now())) return
  delete view.sent.token
  view.token = token
  mark(view)
}

export default function tokenRows(host) {
  const make = (parent) => {
    const root = parent.querySelector(".token-rows")
    const view = { root, live: root.querySelector(".live"), drawn: null, token: null, tokens: [], colors: palette(root) }
    root.addEventListener("copy", (event) => copy(view, event))
    return view
  }
  return mount(ROWS, host, { make, receive, settle })
}
