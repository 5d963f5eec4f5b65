// What a click changes (the lock, the chosen head, the set) is confirmed by the host apart from the data, so that no click
// sends a pattern again. A second, tiny mount writes it here; the view that it is meant for hears of it.

const CONFIRMED = Symbol.for("cutaway.live")
const PATIENCE = 3000 // ms for which a newer click outranks an older confirmation

export const confirmed = (name) => globalThis[CONFIRMED]?.get(name) ?? {}

export function confirm(name, fields) {
  globalThis[CONFIRMED] ??= new Map()
  globalThis[CONFIRMED].set(name, fields)
  document.dispatchEvent(new CustomEvent("cutaway-live", { detail: name }))
}

export const forget = (name, fields) => {
  if (globalThis[CONFIRMED]?.get(name) === fields) globalThis[CONFIRMED].delete(name)
}

// A view's own clicks, as they were sent: of several in a row, a confirmation of an early one must not undo the last.
export function expecting(sent, field, value, now) {
  return { ...sent, [field]: { text: JSON.stringify(value), until: now + PATIENCE } }
}

export function settled(sent, field, value, now) {
  const last = sent[field]
  return !last || now > last.until || last.text === JSON.stringify(value)
}

// Listens on the document while the view is mounted; returns what stops that.
export function listen(handlers) {
  const pairs = Object.entries(handlers)
  pairs.forEach(([name, handler]) => document.addEventListener(name, handler))
  return () => pairs.forEach(([name, handler]) => document.removeEventListener(name, handler))
}

// One view in one mount: made at the first call, told of new data at each, and of what the host confirms in between.
export function mount(views, { data, parentElement, setTriggerValue }, { make, receive, keys = {}, settle }) {
  let view = views.get(parentElement)
  if (!view) {
    view = make(parentElement)
    views.set(parentElement, view)
    view.sent = {}
    view.hear = () => settle(view, { ...view.data, ...confirmed(view.data.follows) })
    view.stop = listen({
      "cutaway-live": (event) => { if (event.detail === view.data.follows) view.hear() },
      "cutaway-key": (event) => keys[event.detail]?.(view),
      "cutaway-png": (event) => { if (event.detail?.key === view.data.follows) savePng(view.root, event.detail.file, view.data.rests_on, view.sharpen) },
    })
  }
  view.send = (field, value, picked) => {
    view.sent = expecting(view.sent, field, value, performance.now())
    clearTimeout(view.timer)
    view.timer = setTimeout(view.hear, PATIENCE + 50)
    setTriggerValue("picked", picked)
  }
  receive(view, { ...data, ...confirmed(data.follows) })
  return () => {
    clearTimeout(view.timer)
    view.stop()
    views.delete(parentElement)
  }
}
