// A view in a page that has no server behind it: the page itself answers what is picked, and hears the keys.

const OF_VIEWS = /^[sd]$/i

// The data after something was picked in it.
export function answered(data, { head, cell, toggle, step, token, place, cells, shows, strip }) {
  const next = { ...data }
  if (head !== undefined && data.held) next.look = data.heads.indexOf(head)
  else if (head !== undefined) next.chosen = head
  if (cell !== undefined) {
    const [query, key] = cell.split(".").map(Number)
    next.lock = cell ? { query, key } : null
  }
  if (step !== undefined) next.step = Number(step)
  if (token !== undefined) next.token = token === "" ? null : Number(token)
  if (place !== undefined) next.chosen = place || null
  if (cells !== undefined) next.cells = cells
  if (shows !== undefined) Object.assign(next, { shows, strip })
  if (toggle) next.set = data.set.includes(toggle) ? data.set.filter((each) => each !== toggle) : [...data.set, toggle]
  return next
}

function hearKeys() {
  if (document.cutawayKeys) return
  document.cutawayKeys = true
  document.addEventListener("keydown", (event) => {
    const typing = event.composedPath()[0].matches?.("input:not([type=range]), textarea, select")
    if (typing || event.ctrlKey || event.metaKey || event.altKey || !OF_VIEWS.test(event.key)) return
    document.dispatchEvent(new CustomEvent("cutaway-key", { detail: event.key.toLowerCase() }))
  })
}

export function standalone(name, draw) {
  const host = document.getElementById(name)
  let data = { ...JSON.parse(document.getElementById(`${name}-data`).textContent), follows: name }
  const show = () => draw({
    data,
    parentElement: host.shadowRoot,
    setTriggerValue: (_, picked) => {
      data = answered(data, picked)
      show()
    },
  })
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show)
  hearKeys()
  show()
}
