// What the attention view is told: by pointer, by keys, by its buttons.

function bindPattern(view) {
  const at = (event) => {
    const box = view.canvas.getBoundingClientRect()
    return hit(event.clientX - box.left - view.margin, event.clientY - box.top, view.crop, view.cell, view.data)
  }
  view.canvas.onpointermove = (event) => {
    const cell = at(event)
    if (!same(cell, view.hover)) act(view, { type: "point", cell })
  }
  view.canvas.onpointerleave = () => act(view, { type: "leave" })
  view.canvas.onclick = (event) => {
    const cell = at(event)
    if (cell) act(view, { type: "press", cell })
  }
  const move = (event) => {
    const from = view.hover ?? view.lock ?? { query: view.crop.query, key: Math.min(view.crop.key, view.crop.query) }
    act(view, { type: "point", cell: moved(from, event.key, view.data.size, view.data.causal), follow: true })
  }
  onKeys(view.canvas, {
    ...Object.fromEntries(MOVES.map((name) => [name, move])),
    Enter: () => act(view, { type: "enter", follow: true }),
    " ": () => act(view, { type: "enter", follow: true }),
    Escape: () => act(view, { type: "escape" }),
    "+": () => zoom(view, true), "=": () => zoom(view, true), "-": () => zoom(view, false),
  })
  view.canvas.onblur = () => act(view, { type: "leave" })
}

// A press on the small pattern, or drawing over it, brings what is there into the large one.
function bindOverview(view) {
  const at = (event) => {
    const box = view.overview.getBoundingClientRect()
    const scale = view.far.factor / view.far.cell
    return { query: Math.floor((event.clientY - box.top) * scale), key: Math.floor((event.clientX - box.left) * scale) }
  }
  const go = (cell) => {
    view.afar = null
    view.crop = cropAround(cell, view.crop.side, view.data.size)
    soon(view)
  }
  view.overview.onpointerdown = (event) => {
    view.overview.setPointerCapture(event.pointerId)
    go(at(event))
  }
  view.overview.onpointermove = (event) => {
    if (event.buttons & 1) return go(at(event))
    const { factor } = view.far
    const [query, key] = [at(event).query, at(event).key].map((place) => Math.floor(place / factor) * factor)
    const found = largestIn(view, query, key, factor)
    const span = (start) => (factor > 1 ? `${start}–${Math.min(start + factor, view.data.size) - 1}` : start)
    view.afar = found === null ? null : `queries ${span(query)} → keys ${span(key)}   largest ${number(found)}`
    soon(view)
  }
  view.overview.onpointerleave = () => {
    view.afar = null
    soon(view)
  }
  const by = (dQuery, dKey) => () => {
    const half = view.crop.side / 2
    const middle = { query: view.crop.query + half + dQuery * half, key: view.crop.key + half + dKey * half }
    go(middle)
  }
  onKeys(view.overview, {
    ArrowUp: by(-1, 0), ArrowDown: by(1, 0), ArrowLeft: by(0, -1), ArrowRight: by(0, 1),
    "+": () => zoom(view, true), "=": () => zoom(view, true), "-": () => zoom(view, false),
  })
}

function zoom(view, closer) {
  const side = zoomed(view.crop.side, view.data.size, closer)
  const half = Math.floor(view.crop.side / 2)
  const middle = view.hover ?? view.lock ?? { query: view.crop.query + half, key: view.crop.key + half }
  view.crop = cropAround(middle, side, view.data.size)
  paint(view)
}

function swap(view) {
  view.mode = view.mode === "to" ? "by" : "to"
  paint(view)
  paintBar(view, scaleOf(view))
  sendShown(view)
}

// Both at once: of two sent in one moment the host hears the last. A host that keeps neither is not run again for it.
function sendShown(view) {
  if ({ ...view.data, ...confirmed(view.data.follows) }.shows === undefined) return
  const now = { shows: SHOWN[view.shows], strip: view.mode }
  view.sent = expecting(view.sent, "shows", now.shows, performance.now())
  view.send("strip", now.strip, now)
}

function nextShown(view) {
  if (view.data.other) showPattern(view, (view.shows + 1) % 3)
}

function showPattern(view, shows) {
  view.shows = shows
  repaintThumbs(view)
  paint(view)
  sendShown(view)
}

// A sign has a name beside it, which is what is read out.
function toggle(text, hint, pressed, flip) {
  const [shown, name] = [text].flat()
  const button = element("button", "toggle", shown)
  if (name) button.setAttribute("aria-label", name)
  Object.assign(button, { type: "button", title: hint, onclick: flip, pressed })
  if (pressed) button.setAttribute("aria-pressed", "false")
  return button
}

function makeControls(view) {
  const { data } = view
  const parts = []
  if (data.other) {
    const names = [data.names[A], data.names[B], "difference"]
    const group = element("span", "segments")
    group.setAttribute("role", "group")
    group.setAttribute("aria-label", "which pattern is shown; D goes on to the next")
    group.append(...names.map((name, i) => toggle(name, "D goes on to the next", () => view.shows === i, () => showPattern(view, i))))
    parts.push(group)
  }
  parts.push(
    toggle("attended by", "S: colour the tokens by who attends to the chosen one, instead of what it attends to", () => view.mode === "by", () => swap(view)),
    firstControl(view),
    toggle("scale to max", "Stretch the colours to the largest value of this head, instead of one scale for all heads", () => fits(view), () => {
      view.toMax = !fits(view)
      paint(view)
    }),
    toggle(["√", "colours by the square root"], "Colours by the square root: weak values are told apart, strong ones less so", () => rooted(view), () => {
      view.weak = !rooted(view)
      paint(view)
    }),
  )
  if (data.size > 16) {
    const group = element("span", "segments")
    group.append(toggle(["−", "show more of the text, smaller"], "Show more of the text, smaller", null, () => zoom(view, false)))
    group.append(toggle(["+", "show less of the text, larger"], "Show less of the text, larger", null, () => zoom(view, true)))
    parts.push(group)
  }
  parts.push(pngButton(view.root, () => `attention ${view.data.heads[view.shown]}`, () => view.data, view.sharpen))
  view.bar.replaceChildren(...parts)
}

function firstControl(view) {
  const select = element("select", "first")
  select.setAttribute("aria-label", "position 0")
  select.title = "The first position often takes most of the attention"
  const offered = view.data.shares ? FIRST : FIRST.slice(0, 2)
  select.append(...offered.map((name, i) => Object.assign(element("option", "", `position 0 ${name}`), { value: i })))
  if (view.first >= offered.length) view.first = 0
  select.value = String(view.first)
  select.onchange = () => {
    view.first = Number(select.value)
    repaintThumbs(view)
    paint(view)
  }
  return select
}

function makeThumbs(view) {
  const { heads, n_heads: columns } = view.data
  const wide = columns <= 12 && heads.length <= 96
  const side = wide ? THUMB.wide : THUMB.narrow
  view.heads.classList.toggle("narrow", !wide)
  view.heads.style.gridTemplateColumns = `repeat(${columns}, ${side}px)`
  view.thumbs = heads.map((name, i) => {
    const button = element("button", "thumb")
    const canvas = element("canvas")
    canvas.dataset.side = Math.round(side * (globalThis.devicePixelRatio || 1))
    Object.assign(button, { type: "button", title: name })
    button.setAttribute("aria-label", `head ${name}`)
    button.append(canvas, element("span", "", name))
    button.onpointerenter = () => showHead(view, i)
    button.onpointerleave = () => showHead(view, homeOf(view))
    button.onclick = () => {
      view.asked = i
      markThumbs(view)
      showHead(view, i)
      paintBar(view, scaleOf(view))
      view.send("head", name, { head: name })
    }
    const go = (by) => () => view.thumbs[clamp(i + by, 0, heads.length - 1)].focus()
    onKeys(button, { ArrowLeft: go(-1), ArrowRight: go(1), ArrowUp: go(-columns), ArrowDown: go(columns) })
    return button
  })
  repaintThumbs(view)
  view.heads.replaceChildren(...view.thumbs)
}

const repaintThumbs = (view) => view.thumbs.forEach((button, i) => paintThumb(view, button.firstChild, i, view.shows))

function markThumbs(view) {
  const chosen = homeOf(view)
  view.thumbs.forEach((button, i) => {
    button.classList.toggle("chosen", i === chosen)
    button.setAttribute("aria-pressed", String(i === chosen))
    button.tabIndex = i === chosen ? 0 : -1
    if (i === chosen) view.heads.scrollTop = Math.max(0, button.offsetTop - view.heads.offsetTop - view.heads.clientHeight / 2)
  })
}

function showHead(view, head) {
  view.shown = head
  paint(view)
}

function makeTokens(view) {
  view.spans = view.data.tokens.map((token, i) => {
    const span = element("span", "token", token)
    span.onpointerenter = () => act(view, { type: "point", cell: tokenCell(view, i) })
    span.onpointerleave = () => act(view, { type: "leave" })
    span.onclick = () => act(view, { type: "press", cell: tokenCell(view, i), follow: true })
    return span
  })
  view.wasAt = null
  view.strip.replaceChildren(...view.spans)
}

function tokenCell(view, at) {
  const other = strongest(strip(view, at, view.mode), view.first > 0 && view.mode === "to")
  return view.mode === "to" ? { query: at, key: other } : { query: other, key: at }
}
