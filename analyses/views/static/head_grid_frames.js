// The head grid over checkpoints: what was sent of every step, a slider to move through them, a line in each cell.

export function unpackedFrames(frames) {
  if (!frames) return null
  const read = (packed) => (packed === null ? null : decode(packed, "float"))
  return { steps: frames.steps, of: frames.of, values: read(frames.values), low: read(frames.low), high: read(frames.high) }
}

const finite = (value) => (Number.isFinite(value) ? value : null)

// The grid as it was at one frame: values and intervals; marks and what is told apart only where the page gave them.
export function gridAt(data, frames, at) {
  const [layers, heads] = [data.values.length, data.values[0].length]
  const own = frames === null || frames.steps[at] === frames.of
  if (own) return { values: data.values, low: data.low ?? slice(frames, "low", at, layers, heads), high: data.high ?? slice(frames, "high", at, layers, heads), marks: data.marks, sure: data.sure }
  const part = (name) => slice(frames, name, at, layers, heads)
  return { values: part("values"), low: part("low"), high: part("high"), marks: null, sure: null }
}

function slice(frames, name, at, layers, heads) {
  const all = frames?.[name]
  if (!all) return null
  return Array.from({ length: layers }, (_, layer) =>
    Array.from({ length: heads }, (_, head) => finite(all[(at * layers + layer) * heads + head])))
}

// One head over all frames.
export function seriesOf(frames, layer, head, layers, heads) {
  return frames.steps.map((_, at) => finite(frames.values[(at * layers + layer) * heads + head]))
}

// A line through a box of 100 by 20, broken where there is no number.
export function linePath(series, scale) {
  const reach = scale.kind === "diverging" ? Math.max(Math.abs(scale.low), Math.abs(scale.high)) : null
  const [low, high] = reach === null ? [scale.low, scale.high] : [-reach, reach]
  let path = ""
  let drawing = false
  series.forEach((value, i) => {
    if (value === null) {
      drawing = false
      return
    }
    const x = series.length > 1 ? (100 * i) / (series.length - 1) : 50
    const y = 19 - 18 * clamp((value - low) / (high - low || 1), 0, 1)
    path += `${drawing ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`
    drawing = true
  })
  return path
}

const SVG = "http://www.w3.org/2000/svg"

function sparkline(series, scale) {
  const svg = document.createElementNS(SVG, "svg")
  svg.setAttribute("class", "spark")
  svg.setAttribute("viewBox", "0 0 100 20")
  svg.setAttribute("preserveAspectRatio", "none")
  svg.setAttribute("aria-hidden", "true")
  const line = document.createElementNS(SVG, "path")
  line.setAttribute("d", linePath(series, scale))
  const now = document.createElementNS(SVG, "line")
  now.setAttribute("class", "now")
  now.setAttribute("y1", "0")
  now.setAttribute("y2", "20")
  svg.append(line, now)
  return svg
}

function placeNow(view) {
  const last = Math.max(1, view.frames.steps.length - 1)
  const x = ((100 * view.frame) / last).toFixed(1)
  view.root.querySelectorAll(".spark .now").forEach((line) => {
    line.setAttribute("x1", x)
    line.setAttribute("x2", x)
  })
}

const PACE = 450 // ms a frame is shown while playing

function makeFrameBar(view) {
  const bar = view.root.querySelector(".frames")
  bar.hidden = !view.frames
  if (!view.frames) return
  const { steps } = view.frames
  const play = element("button", "toggle play", "play")
  const slider = element("input")
  const open = element("button", "toggle open", "open this step")
  Object.assign(play, { type: "button", title: "Play the checkpoints from first to last" })
  Object.assign(open, { type: "button", title: "Show the whole page at this step (Enter)" })
  Object.assign(slider, { type: "range", min: 0, max: steps.length - 1, step: 1, value: view.frame })
  slider.setAttribute("aria-label", "training step")
  const send = () => {
    stopPlaying(view)
    if (steps[view.frame] !== view.data.step) view.send("step", steps[view.frame], { step: String(steps[view.frame]) })
  }
  let byKey = false
  slider.onpointerdown = () => { byKey = false }
  slider.oninput = () => {
    stopPlaying(view)
    toFrame(view, Number(slider.value))
  }
  slider.onchange = () => { if (!byKey) send() }
  slider.onkeydown = (event) => {
    byKey = true
    event.stopPropagation()
    if (event.key === "Enter") send()
    if (event.key === "Escape") toFrame(view, hostFrame(view))
  }
  open.onclick = send
  play.onclick = () => (view.playing ? stopPlaying(view) : startPlaying(view))
  Object.assign(view, { slider, play, open, stepLabel: element("span", "step") })
  bar.replaceChildren(play, slider, view.stepLabel, open)
  showFrame(view)
}

const hostFrame = (view) => Math.max(0, view.frames.steps.indexOf(view.data.step))

function startPlaying(view) {
  if (view.frame === view.frames.steps.length - 1) toFrame(view, 0)
  view.playing = setInterval(() => {
    if (!view.root.isConnected || view.frame === view.frames.steps.length - 1) return stopPlaying(view)
    toFrame(view, view.frame + 1)
  }, PACE)
  view.play.textContent = "pause"
}

function stopPlaying(view) {
  clearInterval(view.playing)
  view.playing = null
  if (view.play) view.play.textContent = "play"
}

function showFrame(view) {
  view.slider.value = String(view.frame)
  const step = view.frames.steps[view.frame]
  view.slider.setAttribute("aria-valuetext", `step ${step}`)
  view.stepLabel.textContent = `step ${step.toLocaleString("en")}`
  view.open.style.visibility = step === view.data.step ? "hidden" : ""
  if (view.data.sparklines) placeNow(view)
}

// Moves in the browser only; what is drawn changes in place, so that focus stays where it is.
function toFrame(view, at) {
  view.frame = at
  recolour(view)
  showFrame(view)
}
