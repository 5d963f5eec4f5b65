// The keys of the page. Each press goes where the page wants it: to Python, to the views as an event of the document,
// or into an input; and none is taken from whoever is typing.

const KEYS = new WeakMap()
const TEXTUAL = /^(text|search|number|email|url|password|tel|date|time|datetime-local|month|week)$/
const OVERLAYS = "[role='dialog'], [role='menu'], [role='listbox']"
const KEPT = ["c", "r"] // Streamlit's own
const PATIENCE = 8000 // milliseconds until a batch that nobody answered is sent again with what was pressed since
const SETTLING = 60 // milliseconds after an answer: the inputs hear of it when the view does, and some of them after it
const MOST_WAITING = 2 // presses of a key that is held down

const make = (tag, className, text) => {
  const made = document.createElement(tag)
  if (className) made.className = className
  if (text !== undefined) made.textContent = text
  return made
}

export function isTyping(node) {
  if (!node?.tagName) return false
  if (node.isContentEditable || ["TEXTAREA", "SELECT"].includes(node.tagName)) return true
  return node.tagName === "INPUT" && TEXTUAL.test(node.type)
}

// Of the page's own: the tokens of a view, in its shadow root, are a listbox too, and nothing lies over the page there.
const isOverlay = (node) =>
  node.nodeName === "DIALOG" || (node.matches?.(OVERLAYS) && node.getRootNode() === document)

export const unconfirmed = (presses, done) => presses.filter((press) => press.id > done)

const tell = (what, more) => document.dispatchEvent(new CustomEvent("cutaway-frame", { detail: { what, ...more } }))

function press(view, key) {
  view.last = Math.max(Date.now(), (view.last ?? 0) + 1)
  view.presses.push({ id: view.last, key })
  flush(view)
}

// One batch at a time: with every run the browser sends its inputs, and before it has heard of the last answer these say
// what they said before it. Presses meanwhile are kept, and go together.
function flush(view) {
  clearTimeout(view.timer)
  if (!view.presses.length) return
  const wait = view.free - performance.now()
  if (wait > 0) return void (view.timer = setTimeout(() => flush(view), Math.ceil(wait)))
  view.free = performance.now() + PATIENCE
  view.send("pressed", [...view.presses])
}

function confirm(view, done) {
  const left = unconfirmed(view.presses, done)
  if (left.length === view.presses.length) return
  view.presses = left
  view.free = performance.now() + SETTLING
}

function focusOn(widget) {
  const input = document.querySelector(`.st-key-${CSS.escape(widget)} :is(input, textarea)`)
  input?.focus()
  input?.select()
}

// Another page is on its way: the keys of this one do nothing there, and P waits for what it offers (bar.js).
const leaving = (view) => location.pathname !== view.path

function pin(view) {
  if (!leaving(view)) return press(view, "p")
  document.documentElement.setAttribute("data-cutaway-early", "")
  tell("early")
}

// What was pressed too late for the page before: of that, what all pages answer to is asked of this one.
function arrive(view, data) {
  const isShared = ({ key }) => data.keys.some((each) => each.key === key && each.everywhere)
  view.presses = unconfirmed(view.presses, data.done).filter(isShared)
  view.free = 0
}

const own = (view) => ({
  l: () => tell("copy"), e: () => tell("edit"), "?": () => help(view), p: () => pin(view),
})

function onKey(view, event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return
  if (event.key.length !== 1) return
  const path = event.composedPath()
  const key = event.key.toLowerCase()
  if (view.dialog.open && key === "?") return void view.dialog.close()
  if (isTyping(path[0]) || path.some(isOverlay) || KEPT.includes(key)) return
  const bound = view.data.keys.find((each) => each.key === key)
  if (event.repeat && view.presses.length >= MOST_WAITING) return
  if (own(view)[key]) own(view)[key]()
  else if (bound?.how === "python") {
    if (!leaving(view)) press(view, key)
  }
  else if (bound?.how === "focus") focusOn(bound.widget)
  else if (document.dispatchEvent(new CustomEvent("cutaway-key", { detail: key, cancelable: true }))) return
  event.preventDefault()
}

function list(title, keys) {
  const rows = make("dl")
  keys.forEach(({ key, what }) => {
    const term = make("dt")
    term.append(make("kbd", "", key.toUpperCase()))
    rows.append(term, make("dd", "", what))
  })
  return [make("h2", "", title), keys.length ? rows : make("p", "none", "This page has no keys of its own.")]
}

function help(view) {
  const { keys, page } = view.data
  const close = make("button", "", "×")
  close.setAttribute("aria-label", "close")
  close.onclick = () => view.dialog.close()
  const everywhere = [
    { key: "l", what: "copy the link to what is seen" },
    { key: "e", what: "edit the selection as text" },
    { key: "?", what: "these keys" },
  ]
  view.dialog.replaceChildren(
    close,
    ...list(page, keys.filter((each) => !each.everywhere)),
    ...list("Everywhere", [...everywhere, ...keys.filter((each) => each.everywhere)]),
  )
  view.dialog.showModal()
}

function answer(view, { what, done }) {
  if (what === "done") {
    confirm(view, done)
    flush(view)
  }
  if (what === "help") help(view)
  if (what === "pin") pin(view)
  if (what === "state") tell("offers", { pin: view.data.pin })
}

function start(root) {
  const view = { dialog: root.querySelector("dialog"), presses: [], free: 0 }
  const onkeydown = (event) => onKey(view, event)
  const answering = (event) => answer(view, event.detail)
  view.dialog.onclick = (event) => { if (event.target === view.dialog) view.dialog.close() }
  document.addEventListener("keydown", onkeydown)
  document.addEventListener("cutaway-frame", answering)
  view.stop = () => {
    clearTimeout(view.timer)
    document.removeEventListener("keydown", onkeydown)
    document.removeEventListener("cutaway-frame", answering)
  }
  return view
}

export default function pageKeys({ data, parentElement, setTriggerValue }) {
  let view = KEYS.get(parentElement)
  if (!view) KEYS.set(parentElement, (view = start(parentElement)))
  if (view.data && view.data.page !== data.page) arrive(view, data)
  Object.assign(view, { data, send: setTriggerValue, path: location.pathname })
  confirm(view, data.done)
  flush(view)
  tell("offers", { pin: data.pin })
  document.documentElement.setAttribute("data-cutaway-keys", data.page)
  return () => {
    view.stop()
    document.documentElement.removeAttribute("data-cutaway-keys")
    KEYS.delete(parentElement)
  }
}
