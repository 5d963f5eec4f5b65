// Runs before the parts of the frame are loaded, as a plain script: P that nobody listens to yet is kept for the bar.
(() => {
  const root = document.documentElement
  if (document.cutawayEarly) return
  document.cutawayEarly = true
  document.addEventListener("keydown", (event) => {
    const typing = event.composedPath()[0].matches?.("input, textarea, select, [contenteditable]")
    const held = event.ctrlKey || event.metaKey || event.altKey
    if (typing || held || event.key.toLowerCase() !== "p" || root.hasAttribute("data-cutaway-keys")) return
    root.setAttribute("data-cutaway-early", "")
    document.dispatchEvent(new CustomEvent("cutaway-frame", { detail: { what: "early" } }))
  })
})()
