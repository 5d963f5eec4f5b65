// The attention view: a grid of head thumbnails, one pattern in full, the tokens below.
// Pointing previews and never leaves the browser; a click or Enter locks, and only that is sent.

const VIEWS = new WeakMap()
const SIDE = 520
const THUMB = 46

export function cellIndex(query, key, size, causal) {
  return causal ? (query * (query + 1)) / 2 + key : query * size + key
}

// What was sent lies between the ends of the scale.
export function weight(view, query, key) {
  const { size, causal, scale } = view.data
  if (view.weights === null || (causal && key > query)) return null
  return scale.low + (view.weights[cellIndex(query, key, size, causal)] / 65535) * (scale.high - scale.low)
}

// Row `at` of the pattern (where a query attends), or column `at` (who attends to a key).
export function strip(view, at, mode) {
  return view.data.tokens.map((_, other) => (mode === "to" ? weight(view, at, other) : weight(view, other, at)))
}

export function strongest(values, skipFirst) {
  let best = null
  values.forEach((value, i) => {
    if (value === null || (skipFirst && i === 0)) return
    if (best === null || Math.abs(value) > Math.abs(values[best])) best = i
  })
  return best ?? 0
}

function makeView(root) {
  const view = { root, hover: null, hoverHead: null, mode: "to", skipFirst: false, toMax: null, hash: null, held: new Map() }
  const find = (name) => root.querySelector(name)
  Object.assign(view, {
    heads: find(".heads"), canvas: find(".pattern"), live: find(".live"), strip: find(".tokens"), bar: find(".bar"), title: find(".title"),
  })
  makeControls(view)
  bindPattern(view)
  return view
}

function makeControls(view) {
  const toggle = (label, hint, pressed, flip) => {
    const button = element("button", "toggle", label)
    button.type = "button"
    button.title = hint
    button.onclick = () => {
      flip()
      paint(view)
    }
    button.pressed = pressed
    return button
  }
  view.bar.replaceChildren(
    toggle("attended by", "Colour the tokens by who attends to the chosen one, instead of what it attends to", () => view.mode === "by", () => {
      view.mode = view.mode === "to" ? "by" : "to"
    }),
    toggle("skip first", "Leave the first position out of the colour scale: it often takes most of the attention", () => view.skipFirst, () => {
      view.skipFirst = !view.skipFirst
    }),
    toggle("scale to max", "Stretch the colours to the largest value of this head, instead of one scale for all heads", () => fits(view), () => {
      view.toMax = !fits(view)
    }),
    element("span", "label"), element("span", "scale"),
  )
}

function bindPattern(view) {
  const at = (event) => {
    const box = view.canvas.getBoundingClientRect()
    const [x, y] = [event.clientX - box.left - view.margin, event.clientY - box.top]
    const size = view.data.size
    const [key, query] = [Math.floor((x / view.side) * size), Math.floor((y / view.side) * size)]
    const inside = x >= 0 && key < size && query >= 0 && query < size && !(view.data.causal && key > query)
    return inside ? { query, key } : null
  }
  view.canvas.onpointermove = (event) => preview(view, at(event))
  view.canvas.onpointerleave = () => preview(view, null)
  view.canvas.onclick = (event) => {
    const cell = at(event)
    if (cell) lock(view, same(cell, view.lock) ? null : cell)
  }
  const move = (dQuery, dKey) => () => {
    const from = view.hover ?? view.lock ?? { query: 0, key: 0 }
    const query = clamp(from.query + dQuery, 0, view.data.size - 1)
    const last = view.data.causal ? query : view.data.size - 1
    preview(view, { query, key: clamp(from.key + dKey, 0, last) })
  }
  onKeys(view.canvas, {
    ArrowUp: move(-1, 0), ArrowDown: move(1, 0), ArrowLeft: move(0, -1), ArrowRight: move(0, 1),
    Enter: () => lock(view, view.hover ?? view.lock),
    Escape: () => lock(view, null),
  })
  view.canvas.onblur = () => preview(view, null)
}

const same = (a, b) => a !== null && b !== null && a.query === b.query && a.key === b.key

function preview(view, cell) {
  if (cell === view.hover || same(cell, view.hover)) return
  view.hover = cell
  paint(view)
}

// Drawn at once; the host confirms with the next data.
function lock(view, cell) {
  view.lock = cell
  view.hover = null
  paint(view)
  view.send("picked", { cell: cell === null ? "" : `${cell.query}.${cell.key}` })
}

function showHead(view, index) {
  view.weights = view.held.get(index) ?? null
  view.shown = index
}

function receive(view, data) {
  view.data = data
  view.lock = data.lock
  view.colors = palette(view.root)
  if (view.hash !== data.hash) {
    view.held = new Map()
    const all = decode(data.weights, 16)
    const per = all.length / data.held.length
    data.held.forEach((head, i) => view.held.set(head, all.subarray(i * per, (i + 1) * per)))
    view.thumbs = decode(data.thumbs, 8)
    view.hash = data.hash
    view.hover = null
  }
  showHead(view, data.focus)
  makeThumbs(view)
  makeTokens(view)
}

function makeThumbs(view) {
  const { heads, thumb_size: size, n_heads: columns, focus } = view.data
  view.heads.style.gridTemplateColumns = `repeat(${columns}, ${THUMB}px)`
  view.heads.replaceChildren(...heads.map((name, i) => {
    const button = element("button", i === focus ? "thumb chosen" : "thumb")
    const canvas = element("canvas")
    button.type = "button"
    button.title = name
    button.setAttribute("aria-label", `head ${name}`)
    button.setAttribute("aria-pressed", String(i === focus))
    paintThumb(view, canvas, i, size)
    button.append(canvas, element("span", "", name))
    button.onpointerenter = () => { if (view.held.has(i)) { view.hoverHead = i; showHead(view, i); paint(view) } }
    button.onpointerleave = () => { view.hoverHead = null; showHead(view, view.data.focus); paint(view) }
    button.onclick = () => { view.send("picked", { head: name }) }
    return button
  }))
}

function paintThumb(view, canvas, head, size) {
  canvas.width = canvas.height = size
  const image = canvas.getContext("2d").createImageData(size, size)
  const muted = parseColor(view.colors.muted)
  for (let y = 0; y < size; y++) {
    for (let x = 0; x < size; x++) {
      const hidden = view.data.causal && x > y
      const rgb = hidden ? muted : view.colors[view.data.scale.kind][view.thumbs[(head * size + y) * size + x]]
      image.data.set([...rgb, 255], 4 * (y * size + x))
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0)
}

function makeTokens(view) {
  view.spans = view.data.tokens.map((token, i) => {
    const span = element("span", "token", token)
    span.onpointerenter = () => preview(view, tokenCell(view, i))
    span.onpointerleave = () => preview(view, null)
    span.onclick = () => lock(view, tokenCell(view, i))
    return span
  })
  view.strip.replaceChildren(...view.spans)
}

function tokenCell(view, at) {
  const other = strongest(strip(view, at, view.mode), view.skipFirst && view.mode === "to")
  return view.mode === "to" ? { query: at, key: other } : { query: other, key: at }
}

// Whether colours are stretched to the head that is shown: as asked, else as the data suggests.
const fits = (view) => view.toMax ?? view.data.fit

function scaleOf(view) {
  const { size, scale } = view.data
  if (!fits(view)) return scale
  let reach = 0
  for (let query = 0; query < size; query++) {
    for (let key = view.skipFirst ? 1 : 0; key < size; key++) reach = Math.max(reach, Math.abs(weight(view, query, key) ?? 0))
  }
  return { kind: scale.kind, low: scale.kind === "diverging" ? -(reach || 1) : 0, high: reach || 1 }
}

function paint(view) {
  const scale = scaleOf(view)
  const cell = view.hover ?? view.lock
  paintPattern(view, scale)
  if (view.lock) outline(view, view.lock, 2.5)
  if (view.hover) outline(view, view.hover, 1.5)
  paintTokens(view, scale, cell)
  view.title.textContent = view.data.heads[view.shown] + (view.shown === view.data.focus ? "" : "  (preview)")
  view.live.textContent = cell ? say(view, cell) : view.data.hint
  view.bar.querySelectorAll(".toggle").forEach((button) => button.setAttribute("aria-pressed", String(button.pressed())))
  view.root.querySelector(".label").textContent = view.data.label
  view.root.querySelector(".scale").replaceChildren(legend(scale, view.colors))
}

function say(view, { query, key }) {
  const tokens = view.data.tokens
  const locked = same({ query, key }, view.lock) ? "  · locked" : ""
  return `query ${query} ‘${tokens[query]}’ → key ${key} ‘${tokens[key]}’   ${number(weight(view, query, key))}${unit(view)}${locked}`
}

const unit = (view) => (view.data.label === "attention" ? "" : ` ${view.data.label}`)

function paintPattern(view, scale) {
  const { size, causal } = view.data
  const pixels = new OffscreenCanvas(size, size)
  const image = new ImageData(size, size)
  const muted = parseColor(view.colors.muted)
  for (let query = 0; query < size; query++) {
    for (let key = 0; key < size; key++) {
      const value = weight(view, query, key)
      const faded = view.skipFirst && key === 0
      const rgb = value === null ? muted : faded ? view.colors.background : colorOf(value, scale, view.colors)
      image.data.set([...rgb, 255], 4 * (query * size + key))
    }
  }
  pixels.getContext("2d").putImageData(image, 0, 0)
  const context = sizeCanvas(view)
  context.imageSmoothingEnabled = false
  context.drawImage(pixels, view.margin, 0, view.side, view.side)
  context.strokeStyle = view.colors.faint
  context.lineWidth = 1
  context.strokeRect(view.margin + 0.5, 0.5, view.side - 1, view.side - 1)
  if (view.labelled) paintLabels(view, context)
}

// Whole pixels per cell, so that cells are equal; labels only where they can be read.
function sizeCanvas(view) {
  const { size } = view.data
  const cell = Math.max(1, Math.min(22, Math.floor(SIDE / size)))
  view.side = cell * size
  view.labelled = cell >= 8
  view.margin = view.labelled ? 64 : 1
  const [width, height] = [view.margin + view.side + 1, view.side + (view.labelled ? 64 : 1)]
  const ratio = globalThis.devicePixelRatio || 1
  Object.assign(view.canvas, { width: width * ratio, height: height * ratio })
  Object.assign(view.canvas.style, { width: `${width}px`, height: `${height}px` })
  const context = view.canvas.getContext("2d")
  context.scale(ratio, ratio)
  return context
}

function paintLabels(view, context) {
  const cell = view.side / view.data.size
  const chosen = view.hover ?? view.lock
  context.font = `${Math.min(12, cell + 1)}px ${getComputedStyle(view.strip).fontFamily}`
  context.textBaseline = "middle"
  context.textAlign = "right"
  view.data.tokens.forEach((token, i) => {
    const text = [...token].slice(0, 8).join("")
    context.fillStyle = chosen?.query === i ? view.colors.text : view.colors.faint
    context.fillText(text, view.margin - 5, (i + 0.5) * cell, 58)
    context.save()
    context.translate(view.margin + (i + 0.5) * cell, view.side + 5)
    context.rotate(-Math.PI / 2)
    context.fillStyle = chosen?.key === i ? view.colors.text : view.colors.faint
    context.fillText(text, 0, 0, 58)
    context.restore()
  })
}

function outline(view, { query, key }, width) {
  const cell = view.side / view.data.size
  const context = view.canvas.getContext("2d")
  const grow = Math.max(0, 5 - cell) / 2
  context.strokeStyle = view.colors.accent
  context.lineWidth = width
  context.strokeRect(view.margin + key * cell - grow, query * cell - grow, cell + 2 * grow, cell + 2 * grow)
}

function paintTokens(view, scale, cell) {
  const at = cell === null ? null : view.mode === "to" ? cell.query : cell.key
  const values = at === null ? [] : strip(view, at, view.mode)
  view.spans.forEach((span, i) => {
    const rgb = colorOf(view.skipFirst && i === 0 ? null : values[i], scale, view.colors)
    span.style.background = values[i] ? cssColor(rgb) : ""
    span.style.color = values[i] ? inkOn(rgb) : ""
    span.classList.toggle("at", i === at)
  })
}

export default function attentionView({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".attention")
  let view = VIEWS.get(parentElement)
  if (!view) VIEWS.set(parentElement, (view = makeView(root)))
  view.send = setTriggerValue
  receive(view, data)
  paint(view)
  return () => VIEWS.delete(parentElement)
}
