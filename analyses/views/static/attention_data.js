// The attention view's numbers: what was sent, what a cell holds, and how its state moves. Nothing here touches the page.
// Positions are those of the text, whatever was pooled.

export const [A, B, DIFFERENCE] = [0, 1, 2]
export const SHOWN = ["a", "b", "difference"] // as the host names them

export const triangle = (size) => (size * (size + 1)) / 2

export function cellIndex(query, key, size, causal) {
  return causal ? triangle(query) + key : query * size + key
}

// One pattern of the payload, decoded: exact levels of the heads that are held, pooled ones of all.
export function unpacked(part, data) {
  const all = part.weights ? decode(part.weights, 16) : new Uint16Array(0)
  const per = all.length / Math.max(1, data.held.length)
  return {
    held: new Map(part.weights ? data.held.map((head, i) => [head, all.subarray(i * per, (i + 1) * per)]) : []),
    thumbs: decode(part.thumbs, 8),
    overview: part.overview ? decode(part.overview, 8) : null,
    scale: part.scale ?? data.scale,
  }
}

export const unpackedAll = (data) => [data, data.other, data.difference].map((part) => part && unpacked(part, data))

const exactLevel = (level, { low, high }) => low + (level / 65535) * (high - low)

// A pooled level is the square root of what was sent, to either side of zero where that is signed.
export function pooledLevel(level, { kind, low, high }) {
  if (kind === "sequential") return low + (level / 255) ** 2 * (high - low)
  const signed = (level - 127.5) / 127.5
  const size = Math.abs(signed) < 0.01 ? 0 : signed * Math.abs(signed)
  return ((1 + size) / 2) * (high - low) + low
}

function exact(data, side, head, query, key) {
  const levels = side.held.get(head)
  const { window: at, size, causal } = data
  if (!levels) return undefined
  if (at.whole) return exactLevel(levels[cellIndex(query, key, size, causal)], side.scale)
  const [row, column] = [query - at.query, key - at.key]
  if (row < 0 || column < 0 || row >= at.rows || column >= at.columns) return undefined
  return exactLevel(levels[row * at.columns + column], side.scale)
}

function pooled(data, side, head, query, key) {
  const far = head === data.focus && side.overview
  const factor = far ? data.overview_factor : data.thumb_factor
  const count = Math.ceil(data.size / factor)
  const [row, column] = [Math.floor(query / factor), Math.floor(key / factor)]
  const start = far ? 0 : head * (data.causal ? triangle(count) : count * count)
  const levels = far ? side.overview : side.thumbs
  return { value: pooledLevel(levels[start + cellIndex(row, column, count, data.causal)], side.scale), of: factor }
}

function exactly(data, sides, head, shows, query, key) {
  if (shows !== DIFFERENCE) return exact(data, sides[shows], head, query, key)
  const [a, b] = [exact(data, sides[A], head, query, key), exact(data, sides[B], head, query, key)]
  return a === undefined || b === undefined ? undefined : a - b
}

// What a cell holds: its value, and of how many positions on a side it is the largest. Null where it is masked.
export function reading(data, sides, head, shows, query, key) {
  if (data.causal && key > query) return null
  const value = exactly(data, sides, head, shows, query, key)
  if (value !== undefined) return { value, of: 1 }
  return pooled(data, sides[shows], head, query, key)
}

// Positions from one cell that was sent to the next: more than one where a head was sent pooled.
export function stride(data, sides, head) {
  if (!sides[A].held.has(head)) return data.thumb_factor
  return data.window.whole ? 1 : data.overview_factor
}

// Position 0 often takes most of the attention: it can be left out of the colours, or the rest told as shares of the rest.
export const FIRST = ["shown", "left out", "rest renormalised"]

export function value(view, query, key) {
  const { data, sides, shown: head, shows } = view
  if (data.causal && key > query) return null
  const found = exactly(data, sides, head, shows, query, key) ?? pooled(data, sides[shows], head, query, key).value
  if (view.first !== 2 || !data.shares || shows === DIFFERENCE) return found
  if (key === 0) return null
  const rest = 1 - reading(data, sides, head, shows, query, 0).value
  return rest > 1e-4 ? Math.min(1, found / rest) : null
}

// Row `at` of the pattern (where a query attends), or column `at` (who attends to a key).
export function strip(view, at, mode) {
  return view.data.tokens.map((_, other) => (mode === "to" ? value(view, at, other) : value(view, other, at)))
}

export function strongest(values, skipFirst) {
  let best = null
  values.forEach((each, i) => {
    if (each === null || (skipFirst && i === 0)) return
    if (best === null || Math.abs(each) > Math.abs(values[best])) best = i
  })
  return best ?? 0
}

// The largest value by size in a square of cells, without position 0 if that is left out; null where all are masked.
export function largestIn(view, query, key, factor) {
  const { size } = view.data
  const step = Math.min(factor, stride(view.data, view.sides, view.shown))
  let best = null
  for (let q = query; q < Math.min(size, query + factor); q += step) {
    for (let k = view.first && key === 0 ? 1 : key; k < Math.min(size, key + factor); k += step) {
      const found = value(view, q, k)
      if (found !== null && (best === null || Math.abs(found) > Math.abs(best))) best = found
    }
  }
  return best
}

export const same = (a, b) => (a && b ? a.query === b.query && a.key === b.key : !a && !b)

// Pointing previews, a press locks (or releases what is locked), Enter locks what is pointed at, Escape releases.
export function reduced({ hover, lock }, { type, cell = null }) {
  switch (type) {
    case "point": return { hover: cell, lock }
    case "leave": return { hover: null, lock }
    case "press": return { hover: null, lock: same(cell, lock) ? null : cell, send: true }
    case "enter": return { hover: null, lock: hover ?? lock, send: !same(hover ?? lock, lock) }
    case "escape": return { hover: null, lock: null, send: lock !== null }
    case "confirm": return { hover, lock: cell }
    default: return { hover, lock }
  }
}

const MOVE = {
  ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
  PageUp: [-10, 0], PageDown: [10, 0],
}

// Where a key takes the cell that is pointed at: never into what is masked, never out of the text.
export function moved({ query, key }, name, size, causal) {
  const [dQuery, dKey] = MOVE[name] ?? [0, 0]
  const to = clamp(query + dQuery, 0, size - 1)
  const last = causal ? to : size - 1
  const at = name === "Home" ? 0 : name === "End" ? last : key + dKey
  return { query: to, key: clamp(at, 0, last) }
}

export const MOVES = [...Object.keys(MOVE), "Home", "End"]

// The part of a text that is drawn cell by cell: `side` positions, so placed that `cell` is in sight.
export function cropAround(cell, side, size) {
  const start = (at) => clamp(at - Math.floor(side / 2), 0, Math.max(0, size - side))
  return { query: start(cell.query), key: start(cell.key), side: Math.min(side, size) }
}

export function cropHolding(crop, cell, size) {
  const shift = (start, at) => clamp(at < start ? at : at >= start + crop.side ? at - crop.side + 1 : start, 0, size - crop.side)
  return { ...crop, query: shift(crop.query, cell.query), key: shift(crop.key, cell.key) }
}

export const LARGEST_CROP = 128
const CROPS = [16, 32, 64, LARGEST_CROP]

export const firstCrop = (size) => (size <= LARGEST_CROP ? size : 64)

// The next larger or smaller crop; the whole text where that is small enough.
export function zoomed(side, size, closer) {
  const sides = [...CROPS.filter((each) => each < size), ...(size <= LARGEST_CROP ? [size] : [])]
  return closer ? (sides.filter((each) => each < side).at(-1) ?? side) : (sides.find((each) => each > side) ?? side)
}

// Which cell of a crop is drawn at a point of its canvas; null outside of it and where it is masked.
export function hit(x, y, crop, pixelsPerCell, data) {
  const [row, column] = [Math.floor(y / pixelsPerCell), Math.floor(x / pixelsPerCell)]
  if (row < 0 || column < 0 || row >= crop.side || column >= crop.side) return null
  const cell = { query: crop.query + row, key: crop.key + column }
  return cell.query >= data.size || cell.key >= data.size || (data.causal && cell.key > cell.query) ? null : cell
}
