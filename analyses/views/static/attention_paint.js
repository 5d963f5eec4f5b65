// What the attention view draws. A pattern is painted once and kept as it is; pointing only draws over it, on a second
// canvas, so that it costs the same for 24 tokens and for 512.

const SIDE = 512
const FAR = 256
const KEPT = 40 // heads whose small pattern is kept
const THUMB = { wide: 46, narrow: 32 }
const LABELS = { least: 20, most: 64 }

// Whether colours are stretched to the head that is shown: as asked, else as the data suggests.
const fits = (view) => view.toMax ?? view.data.fit

// Whether weak values are told apart at the cost of strong ones: as asked, else in long texts, where most are weak.
const rooted = (view) => view.weak ?? view.data.size > LARGEST_CROP

const scaleOf = (view) => ({ ...endsOf(view), root: rooted(view) })

function endsOf(view) {
  const given = view.sides[view.shows].scale
  if (!fits(view) && !(view.first === 2 && view.shows !== DIFFERENCE)) return given
  const key = [view.data.hash, view.shown, view.shows, view.first].join()
  if (view.reachKey !== key) {
    view.reachKey = key
    view.reach = Math.abs(largestIn(view, 0, 0, view.data.size) ?? 0) || 1
  }
  if (!fits(view)) return { ...given, low: 0, high: 1 }
  return { kind: given.kind, low: given.kind === "diverging" ? -view.reach : 0, high: view.reach }
}

function sized(view, canvas, width, height) {
  const ratio = view.ratio ?? (globalThis.devicePixelRatio || 1)
  Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) })
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` })
  const context = canvas.getContext("2d")
  context.setTransform(ratio, 0, 0, ratio, 0, 0)
  return context
}

// `count` by `count` cells, each the colour of what `at` says; null is blank, which is not the colour of zero.
function bitmap(view, count, scale, at) {
  const made = new OffscreenCanvas(count, count)
  const image = new ImageData(count, count)
  const out = new Uint32Array(image.data.buffer)
  const lut = view.colors.pixels[scale.kind]
  for (let row = 0; row < count; row++) {
    for (let column = 0; column < count; column++) {
      const found = at(row, column)
      const level = found === null ? 0 : Math.round(position(found, scale) * (lut.length - 1))
      out[row * count + column] = found === null ? view.colors.blank : lut[level]
    }
  }
  made.getContext("2d").putImageData(image, 0, 0)
  return made
}

// Whole pixels for each cell, so that cells are equal; as many labels as can be read.
function measure(view) {
  const { side } = view.crop
  view.cell = Math.max(1, Math.min(22, Math.floor(SIDE / side)))
  view.drawn = view.cell * side
  const wide = view.data.tokens.filter((token) => [...token].length > 3).length > view.data.size / 5
  view.every = Math.max(1, Math.ceil((wide ? 11 : 8) / view.cell)) // lines of words need more room than single letters
  const context = view.base.getContext("2d")
  context.font = fontOf(view)
  const widths = [...new Set(view.data.tokens.map(short))].map((text) => context.measureText(text).width)
  view.margin = clamp(Math.ceil(Math.max(...widths)) + 8, LABELS.least, LABELS.most)
  view.canvas.dataset.margin = view.margin
}

const short = (token) => [...token].slice(0, 9).join("")

const fontOf = (view) => `${Math.min(12, Math.max(9, view.cell + 1))}px ${view.font}`

function paintPattern(view, scale) {
  const { crop, data } = view
  const seen = (row, column) => {
    const key = crop.key + column
    return view.first && key === 0 ? null : value(view, crop.query + row, key)
  }
  const context = sized(view, view.base, view.margin + view.drawn + 1, view.drawn + view.margin)
  context.imageSmoothingEnabled = false
  context.drawImage(bitmap(view, crop.side, scale, seen), view.margin, 0, view.drawn, view.drawn)
  context.strokeStyle = view.colors.line
  context.strokeRect(view.margin + 0.5, 0.5, view.drawn - 1, view.drawn - 1)
  sized(view, view.canvas, view.margin + view.drawn + 1, view.drawn + view.margin)
  for (let i = 0; i < crop.side; i += view.every) {
    label(view, context, "query", crop.query + i, view.colors.faint)
    label(view, context, "key", crop.key + i, view.colors.faint)
  }
  view.root.querySelector(".far").hidden = crop.side === data.size
}

function label(view, context, axis, at, ink, ground) {
  const text = short(view.data.tokens[at])
  const middle = Math.max(6, (at - view.crop[axis] + 0.5) * view.cell)
  const room = view.margin - 8
  context.save()
  context.font = fontOf(view)
  context.textBaseline = "middle"
  context.textAlign = "right"
  if (axis === "query") context.translate(view.margin - 5, middle)
  else {
    context.translate(view.margin + middle, view.drawn + 5)
    context.rotate(-Math.PI / 2)
  }
  if (ground) {
    context.fillStyle = ground
    context.fillRect(-room - 3, -7, room + 6, 14)
  }
  context.fillStyle = ink
  context.fillText(text, 0, 0, room)
  context.restore()
}

// The whole of a long text, each pixel the largest of a square of cells, and a frame round what is drawn in full.
function paintFar(view, scale, key) {
  const factor = Math.ceil(Math.ceil(view.data.size / FAR) / view.data.overview_factor) * view.data.overview_factor
  const count = Math.ceil(view.data.size / factor)
  view.far = { factor, count, cell: Math.max(1, Math.floor(FAR / count)) }
  const context = sized(view, view.farBase, count * view.far.cell, count * view.far.cell)
  context.imageSmoothingEnabled = false
  const at = (row, column) => (view.data.causal && column > row ? null : largestIn(view, row * factor, column * factor, factor))
  const made = view.kept.get(key) ?? bitmap(view, count, scale, at)
  if (view.kept.size > KEPT) view.kept.clear()
  view.kept.set(key, made)
  context.drawImage(made, 0, 0, count * view.far.cell, count * view.far.cell)
  sized(view, view.overview, count * view.far.cell, count * view.far.cell)
  const pooled = factor > 1 ? `max-pooled ${factor}x` : "every cell"
  view.root.querySelector(".badge").textContent = `${view.data.size} tokens, ${pooled}; the frame is drawn in full`
}

function overlayFar(view) {
  const context = view.overview.getContext("2d")
  const scale = view.far.cell / view.far.factor
  context.clearRect(0, 0, FAR * 2, FAR * 2)
  context.strokeStyle = view.colors.accent
  context.lineWidth = 1.5
  const [x, y, side] = [view.crop.key, view.crop.query, view.crop.side].map((at) => at * scale)
  context.strokeRect(x + 0.75, y + 0.75, side - 1.5, side - 1.5)
  if (!view.lock) return
  context.fillStyle = view.colors.accent
  context.fillRect(view.lock.key * scale - 2, view.lock.query * scale - 2, 4, 4)
}

const within = ({ query, key, side }, cell) =>
  cell.query >= query && cell.query < query + side && cell.key >= key && cell.key < key + side

function outline(view, context, cell, width) {
  if (!within(view.crop, cell)) return
  const grow = Math.max(0, 6 - view.cell) / 2
  const [x, y] = [view.margin + (cell.key - view.crop.key) * view.cell, (cell.query - view.crop.query) * view.cell]
  const side = view.cell + 2 * grow
  context.strokeStyle = view.colors.accent
  context.lineWidth = width
  context.strokeRect(x - grow, y - grow, side, side)
  context.lineWidth = 1
  context.globalAlpha = 0.35
  context.beginPath()
  context.moveTo(view.margin, y + view.cell / 2)
  context.lineTo(x - grow, y + view.cell / 2)
  context.moveTo(x + view.cell / 2, y + view.cell + grow)
  context.lineTo(x + view.cell / 2, view.drawn)
  context.stroke()
  context.globalAlpha = 1
  label(view, context, "query", cell.query, view.colors.text, view.colors.ground)
  label(view, context, "key", cell.key, view.colors.text, view.colors.ground)
}

function paintOver(view) {
  const context = view.canvas.getContext("2d")
  context.clearRect(0, 0, view.margin + view.drawn + 1, view.drawn + view.margin)
  if (view.lock) outline(view, context, view.lock, 2.5)
  if (view.hover && !same(view.hover, view.lock)) outline(view, context, view.hover, 1.5)
  if (!view.root.querySelector(".far").hidden) overlayFar(view)
}

function paintTokens(view, scale, cell) {
  const at = cell === null ? null : view.mode === "to" ? cell.query : cell.key
  const values = at === null ? [] : strip(view, at, view.mode)
  view.spans.forEach((span, i) => {
    const mine = view.first && i === 0 ? null : values[i]
    const rgb = mine ? colorOf(mine, scale, view.colors) : null
    const ground = rgb ? cssColor(rgb) : ""
    if (span.ground !== ground) {
      span.ground = ground
      span.style.background = ground
      span.style.color = rgb ? inkOn(rgb) : ""
    }
    if (i === at || i === view.wasAt) span.classList.toggle("at", i === at)
  })
  if (at !== null && at !== view.wasAt) showToken(view.strip, view.spans[at])
  view.wasAt = at
}

function showToken(box, span) {
  const [top, bottom] = [span.offsetTop - box.offsetTop, span.offsetTop - box.offsetTop + span.offsetHeight]
  if (top < box.scrollTop) box.scrollTop = top
  else if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight
}

// A thumbnail is drawn from what was pooled for it, again by the largest where there are more cells than pixels.
function paintThumb(view, canvas, head, shows) {
  const { thumb_size: count, causal } = view.data
  const { thumbs, scale } = view.sides[shows]
  const start = head * (causal ? triangle(count) : count * count)
  const side = Math.min(count, Number(canvas.dataset.side))
  const [middle, signed] = [scale.kind === "diverging" ? 127.5 : 0, scale.kind]
  const lut = view.colors.pixels[signed]
  const image = new ImageData(side, side)
  const out = new Uint32Array(image.data.buffer).fill(view.colors.blank)
  const edge = (i) => Math.floor((i * count) / side)
  for (let row = 0; row < side; row++) {
    for (let column = 0; column < side; column++) {
      let best = null
      for (let y = edge(row); y < edge(row + 1); y++) {
        for (let x = edge(column); x < edge(column + 1); x++) {
          if ((causal && x > y) || (view.first && x === 0 && count > 1)) continue
          const level = thumbs[start + cellIndex(y, x, count, causal)]
          if (best === null || Math.abs(level - middle) > Math.abs(best - middle)) best = level
        }
      }
      if (best !== null) out[row * side + column] = lut[best]
    }
  }
  Object.assign(canvas, { width: side, height: side })
  canvas.getContext("2d").putImageData(image, 0, 0)
}
