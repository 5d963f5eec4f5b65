// The attention view: a grid of head thumbnails, one pattern, the tokens; for a long text the whole of it, small, beside.
// Pointing previews and never leaves the browser; a click or Enter locks, and only that is sent.

const VIEWS = new WeakMap()

function makeView(parent) {
  const root = parent.querySelector(".attention")
  const find = (name) => root.querySelector(name)
  const view = {
    root, hover: null, lock: null, mode: "to", first: 0, toMax: null, weak: null, shows: A, afar: null, hash: null, wasAt: null, spans: [], kept: new Map(),
    heads: find(".heads"), base: find(".paint"), canvas: find(".pattern"), live: find(".live"), strip: find(".tokens"),
    bar: find(".bar"), title: find(".title"), overview: find(".overview"), farBase: find(".far-paint"),
  }
  view.sharpen = (ratio) => {
    Object.assign(view, { ratio, baseKey: null, farKey: null })
    paint(view)
  }
  bindPattern(view)
  bindOverview(view)
  return view
}

function receive(view, data) {
  view.data = data
  view.asked = null
  view.shown = homeOf(view)
  view.colors = attentionColors(view.root)
  view.font = getComputedStyle(view.strip).fontFamily
  const theme = view.colors.ground
  if (view.hash !== data.hash || view.theme !== theme) {
    const longer = view.hash === null || view.tokens !== data.tokens.join("\u0000")
    Object.assign(view, { sides: unpackedAll(data), hash: data.hash, tokens: data.tokens.join("\u0000"), theme, hover: null })
    if (!data.other) view.shows = A
    if (longer) view.crop = cropAround(data.lock ?? { query: data.size, key: data.size }, firstCrop(data.size), data.size)
    view.kept.clear()
    makeThumbs(view)
    makeTokens(view)
    makeControls(view)
  }
  markThumbs(view)
  view.baseKey = view.farKey = null
  settle(view, data)
}

// The head that is shown while none is pointed at: what was just clicked, until the host answers; else what it chose.
const homeOf = (view) => view.asked ?? view.data.look ?? view.data.focus

function settle(view, { lock = null, look, shows, strip }) {
  const now = performance.now()
  if (shows !== undefined && settled(view.sent, "shows", shows, now)) confirmShown(view, shows)
  if (strip !== undefined && settled(view.sent, "strip", strip, now) && view.mode !== strip) Object.assign(view, { mode: strip, baseKey: null })
  if (look !== undefined && settled(view.sent, "head", view.data.heads[look], now)) confirmHead(view, look)
  if (settled(view.sent, "lock", lock, now)) {
    delete view.sent.lock
    const state = reduced(view, { type: "confirm", cell: lock })
    if (state.lock && !same(state.lock, view.lock)) view.crop = cropToShow(view, state.lock)
    Object.assign(view, { lock: state.lock })
  }
  paint(view)
}

// The host chose a head of those that were sent: shown at once, unless another is pointed at.
function confirmHead(view, look) {
  delete view.sent.head
  if (look === view.data.look && view.asked === null) return
  const pointed = view.shown !== homeOf(view)
  Object.assign(view, { asked: null, data: { ...view.data, look } })
  if (!pointed) view.shown = look
  markThumbs(view)
  view.baseKey = view.farKey = null
}

// The host says which of two patterns is shown, as its address does.
function confirmShown(view, shows) {
  const asked = view.data.other ? Math.max(A, SHOWN.indexOf(shows)) : A
  if (asked === view.shows) return
  Object.assign(view, { shows: asked, baseKey: null })
  repaintThumbs(view)
}

const cropToShow = (view, cell) =>
  within(view.crop, cell) ? view.crop : cropAround(cell, view.crop.side, view.data.size)

function attentionColors(root) {
  const colors = palette(root)
  return {
    ...colors,
    ground: cssColor(colors.background),
    blank: pixel(parseColor(colors.muted)),
    pixels: { sequential: pixels(colors.sequential), diverging: pixels(colors.diverging) },
  }
}

// Several events of one frame are painted once.
function soon(view) {
  view.frame ??= requestAnimationFrame(() => {
    view.frame = null
    paint(view)
  })
}

function act(view, event) {
  const state = reduced(view, event)
  Object.assign(view, { hover: state.hover, lock: state.lock })
  const cell = state.hover ?? state.lock
  if (event.follow && cell) view.crop = cropHolding(view.crop, cell, view.data.size)
  if (state.send) {
    paint(view) // at once; the host confirms later
    view.send("lock", view.lock, { cell: view.lock === null ? "" : `${view.lock.query}.${view.lock.key}` })
  } else soon(view)
}

function paint(view) {
  const scale = scaleOf(view)
  const { crop, data } = view
  const drawn = [data.hash, view.shown, view.shows, view.first, scale.low, scale.high, scale.root, globalThis.devicePixelRatio].join()
  const key = [drawn, crop.query, crop.key, crop.side].join()
  if (view.baseKey !== key) {
    measure(view)
    paintPattern(view, scale)
    view.baseKey = key
    paintBar(view, scale)
  }
  if (view.farKey !== drawn && crop.side < data.size) {
    paintFar(view, scale, drawn)
    view.farKey = drawn
  }
  const cell = view.hover ?? view.lock
  paintOver(view)
  paintTokens(view, scale, cell)
  tellIn(view.live, view.afar ?? (cell ? say(view, cell) : null), data.hint)
}

function paintBar(view, scale) {
  const { data } = view
  view.title.textContent = data.heads[view.shown] + (view.shown === homeOf(view) ? "" : "  (preview)")
  view.bar.querySelectorAll("[aria-pressed]").forEach((button) => button.setAttribute("aria-pressed", String(button.pressed())))
  const unit = data.other ? `${data.label}: ${comparedName(data.names, view.shows)}` : data.label
  view.root.querySelector(".label").textContent = view.first === 0 ? unit : `${unit}, position 0 ${FIRST[view.first]}`
  view.root.querySelector(".scale").replaceChildren(legend(scale, view.colors))
  const held = view.sides[A].held.has(view.shown)
  const pooled = data.thumb_factor > 1 ? `max-pooled ${data.thumb_factor}x` : "8 bits"
  view.root.querySelector(".sent").textContent = held ? "" : `${data.heads[view.shown]} as sent with the thumbnails: ${pooled}`
  view.root.querySelector(".paint").title = data.sent
}

function say(view, { query, key }) {
  const { tokens, names, other, label } = view.data
  const locked = same({ query, key }, view.lock) ? "  ·\u00a0locked" : ""
  const unit = label === "attention" ? "" : ` ${label}`
  const place = `query ${query} ‘${tokens[query]}’ → key ${key} ‘${tokens[key]}’`
  const told = (shows) => {
    const found = reading(view.data, view.sides, view.shown, shows, query, key)
    return found === null ? "–" : `${number(found.value)}${found.of > 1 ? ` (largest of ${found.of} by ${found.of})` : ""}`
  }
  const rest = view.first === 2 ? `   ${number(value(view, query, key))} of the rest` : ""
  if (!other) return `${place}   ${told(A)}${unit}${rest}${locked}`
  return `${place}   ${names[A]} ${told(A)}  ${names[B]} ${told(B)}  difference ${told(DIFFERENCE)}${unit}${rest}${locked}`
}

export default function attentionView(host) {
  return mount(VIEWS, host, {
    make: makeView,
    receive,
    settle,
    keys: { s: swap, d: nextShown },
  })
}
