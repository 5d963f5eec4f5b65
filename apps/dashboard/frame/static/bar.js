// The bar over every page: what is selected, as chips that can be taken away, and what is done with the whole view.
// It also keeps the menu waiting until the inputs are there: a page link drops what the address says of an absent input.

const BARS = new WeakMap()
const SAID_FOR = 2600 // milliseconds
const ENTRY = ".st-key-menu [data-testid='stPageLink']"
const INSIDE = "[data-testid='stMain'] [data-testid='stPageLink'] a"
const COMPLETED = new WeakMap()
const EARLY = "data-cutaway-early"

const make = (tag, className, text) => {
  const made = document.createElement(tag)
  if (className) made.className = className
  if (text !== undefined) made.textContent = text
  return made
}

export const withoutPart = (href, name) => {
  const url = new URL(href)
  url.searchParams.delete(name)
  return url.href
}

// The address that a menu entry leads to: what all pages share, as it stands now, and the page's own parts.
export function targetOf(path, own, search, shared) {
  const kept = [...new URLSearchParams(search)].filter(([name]) => shared.includes(name))
  const query = new URLSearchParams([...kept, ...new URLSearchParams(own)]).toString()
  return query ? `${path}?${query}` : path
}

// The address that a link of a page leads to: what all pages share, but where the link says something else, and its rest.
export function linkedTo(given, here, shared) {
  const url = new URL(given, here)
  const own = url.searchParams
  const kept = [...new URL(here).searchParams].filter(([name]) => shared.includes(name) && !own.has(name))
  url.search = new URLSearchParams([...kept, ...own]).toString()
  return url.href
}

// Streamlit's address of a link, also where this script has completed it.
function givenOf(link) {
  const now = link.getAttribute("href")
  const completed = COMPLETED.get(link)
  return completed?.made === now ? completed.given : now
}

function completed(view, link) {
  const given = givenOf(link)
  const made = linkedTo(given, location.href, view.data.shared)
  COMPLETED.set(link, { given, made })
  link.setAttribute("href", made)
  return made
}

// The entry of the menu that a link stands for: the path of its page, and that page's own parts of the address.
function entryOf(view, link) {
  const at = [...document.querySelectorAll(ENTRY)].indexOf(link.closest(ENTRY))
  const { entries, here } = view.data
  if (at < 0 || at >= entries.length) return undefined
  const base = location.pathname.slice(0, location.pathname.length - here.length)
  return { path: (location.pathname.endsWith(here) ? base : "/") + entries[at].path, own: entries[at].own, help: entries[at].help }
}

const inputOf = (name) => document.querySelector(`.st-key-${name} :is(input, textarea, button)`)

function chip(view, { part, name, text, dropped, aside, note }) {
  const item = make("li", dropped ? "dropped" : "")
  const body = make("button", "name")
  body.append(make("span", "part", name), make("span", "", text))
  if (aside) body.append(make("span", "aside", aside))
  body.title = dropped ? `${dropped}. Click to edit it.` : [note, "Click to edit it as text"].filter(Boolean).join(". ")
  body.onclick = () => edit(view, true, part)
  const away = make("button", "away", "×")
  away.setAttribute("aria-label", `remove ${name} ${text}`)
  const remove = () => {
    view.removed.add(part)
    const next = item.nextElementSibling ?? item.previousElementSibling
    item.remove()
    const goal = next?.querySelector("button") ?? view.root.querySelector(".edit")
    goal.focus()
    view.send("cleared", { parts: [...view.removed] })
  }
  away.onclick = remove
  item.onkeydown = (event) => {
    if (!["Delete", "Backspace"].includes(event.key)) return
    event.preventDefault()
    event.stopPropagation()
    remove()
  }
  item.append(body, away)
  return item
}

function edit(view, open, part) {
  document.documentElement.toggleAttribute("data-cutaway-edit", open)
  view.root.querySelector(".edit").setAttribute("aria-expanded", String(open))
  if (!open) return
  const input = inputOf(part === "b" ? "b" : part ?? "head")
  input?.focus()
  input?.select?.()
}

function say(view, ...content) {
  const said = view.root.querySelector(".said")
  clearTimeout(view.timer)
  said.replaceChildren(...content)
  view.timer = setTimeout(() => said.replaceChildren(), SAID_FOR)
}

async function copy(view) {
  const link = withoutPart(location.href, "notes")
  try {
    await navigator.clipboard.writeText(link)
    say(view, link === location.href ? "Link copied" : "Link copied, without your notebook: who has its name can change the pins")
  } catch {
    const field = make("input")
    field.value = link
    field.readOnly = true
    field.setAttribute("aria-label", "The link, to be copied by hand")
    say(view, "This browser lets no page copy; copy it from here: ", field)
    clearTimeout(view.timer)
    field.onblur = () => view.root.querySelector(".said").replaceChildren()
    field.focus()
    field.select()
  }
}

const ask = (what, more) => document.dispatchEvent(new CustomEvent("cutaway-frame", { detail: { what, ...more } }))

function answer(view, { what, pin }) {
  if (what === "copy") copy(view)
  if (what === "early") sayEarly(view)
  if (what === "edit") edit(view, !document.documentElement.hasAttribute("data-cutaway-edit"))
  if (what === "offers") {
    const button = view.root.querySelector(".pin")
    button.disabled = !pin
    if (waits()) pinNow(view, pin)
    button.title = pin ? `Pin to Findings: ${pin}` : "This page offers nothing to pin now; panels are pinned from their menus"
  }
}

// P was pressed before anything answered it (early.js): it waits for what the page offers.
const waits = () => document.documentElement.hasAttribute(EARLY)

function sayEarly(view) {
  say(view, "Nothing to pin yet: it is pinned when the page is there")
  clearTimeout(view.timer)
}

function pinNow(view, pin) {
  document.documentElement.removeAttribute(EARLY)
  say(view, pin ? "" : "There is nothing to pin on this page")
  if (pin) ask("pin")
}

const present = (view) => view.data.shared.every((name) => view.data.optional.includes(name) || inputOf(name))

function free(view) {
  if (!present(view)) return void setTimeout(() => free(view), 50)
  requestAnimationFrame(() => {
    document.documentElement.setAttribute("data-cutaway-ready", "")
    const waiting = view.waiting
    view.waiting = null
    if (waiting?.isConnected) waiting.click()
  })
}

// Streamlit would put what a link says after what is selected now, and the first of two counts. So a link of a page is
// followed as an address is that one goes back to.
function follow(view, event) {
  const link = event.composedPath().find((node) => node.matches?.(INSIDE))
  if (!link || link.target === "_blank") return
  const goal = completed(view, link)
  if (event.type !== "click") return
  event.stopPropagation()
  if (event.ctrlKey || event.metaKey || event.shiftKey) return
  event.preventDefault()
  history.pushState({}, "", goal)
  dispatchEvent(new PopStateEvent("popstate", { state: {} }))
}

function watch(view) {
  const linkOf = (event) => event.composedPath().find((node) => node.matches?.(`${ENTRY} a`))
  const following = (event) => follow(view, event)
  // Streamlit's own address of an entry lacks what all pages share, and that of the first page is empty.
  const complete = (event) => {
    const link = linkOf(event)
    const entry = link && entryOf(view, link)
    if (entry) link.href = targetOf(entry.path, entry.own, location.search, view.data.shared)
  }
  const hold = (event) => {
    const link = linkOf(event)
    if (!link) return
    if (event.ctrlKey || event.metaKey || event.shiftKey) return void event.stopPropagation() // the browser's own: a new tab
    const here = entryOf(view, link)?.path === location.pathname
    const ready = document.documentElement.hasAttribute("data-cutaway-ready")
    if (ready && !here) return
    event.preventDefault()
    event.stopPropagation()
    if (!ready) view.waiting = link
  }
  const answering = (event) => answer(view, event.detail)
  const listeners = [
    ["pointerdown", complete], ["focusin", complete], ["click", hold], ["cutaway-frame", answering],
    ["pointerdown", following], ["focusin", following], ["click", following],
  ]
  listeners.forEach(([name, listener]) => document.addEventListener(name, listener, true))
  return () => listeners.forEach(([name, listener]) => document.removeEventListener(name, listener, true))
}

// Chips that do not fit are scrolled to; that there are more is seen.
function fade(view) {
  const list = view.root.querySelector(".chips")
  list.classList.toggle("cut", list.scrollWidth - list.scrollLeft > list.clientWidth + 2)
}

function draw(view) {
  const { chips, hint } = view.data
  const focused = view.root.getRootNode().activeElement?.closest("li")?.dataset.part
  const items = chips.map((each) => {
    const item = chip(view, each)
    item.dataset.part = each.part
    return item
  })
  view.root.querySelector(".chips").replaceChildren(...(items.length ? items : [make("li", "hint", hint)]))
  fade(view)
  if (focused) items.find((item) => item.dataset.part === focused)?.querySelector("button").focus()
  document.querySelectorAll(`${ENTRY} a`).forEach((link) => {
    const here = entryOf(view, link)?.path === location.pathname
    here ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current")
    link.title = entryOf(view, link)?.help ?? ""
  })
}

function start(root) {
  const view = { root, removed: new Set() }
  root.querySelector(".chips").onscroll = () => fade(view)
  view.resized = new ResizeObserver(() => fade(view))
  view.resized.observe(root)
  root.querySelector(".copy").onclick = () => copy(view)
  root.querySelector(".edit").onclick = () => edit(view, !document.documentElement.hasAttribute("data-cutaway-edit"))
  root.querySelector(".pin").onclick = () => ask("pin")
  root.querySelector(".help").onclick = () => ask("help")
  const open = document.documentElement.hasAttribute("data-cutaway-edit")
  root.querySelector(".edit").setAttribute("aria-expanded", String(open))
  return view
}

export default function selectionBar({ data, parentElement, setTriggerValue }) {
  let view = BARS.get(parentElement)
  const isNew = !view
  if (isNew) BARS.set(parentElement, (view = start(parentElement.querySelector(".bar"))))
  Object.assign(view, { data, send: setTriggerValue, removed: new Set() })
  draw(view)
  ask("done", { done: data.done }) // told here, before the page is drawn, so that the next press need not wait for it
  if (isNew) {
    view.stop = watch(view)
    free(view)
    if (waits()) sayEarly(view)
    ask("state")
  }
  return () => {
    view.stop()
    view.resized.disconnect()
    clearTimeout(view.timer)
    BARS.delete(parentElement)
  }
}
