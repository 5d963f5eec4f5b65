// Shared by every view. A host joins this file with one view into a single module, so nothing here imports anything.
// Text reaches the page only through textContent or fillText: whatever a token holds, it stays text.

const SEQUENTIAL = { light: ["#a6c1de", "#3c77ad", "#0b2e57"], dark: ["#1d4c80", "#4b8fd6", "#d5e8fc"] }
const DIVERGING = {
  light: { low: ["#8bb4d8", "#134b85"], high: ["#eeb079", "#8f4204"] },
  dark: { low: ["#2a5f99", "#8cc2fa"], high: ["#8f4a12", "#ffb169"] },
}
const STEPS = 256

export const clamp = (x, low, high) => Math.min(high, Math.max(low, x))

export function parseColor(css) {
  const hex = /^#([0-9a-f]{3}|[0-9a-f]{6})$/i.exec(css.trim())
  if (hex) {
    const digits = hex[1].length === 3 ? [...hex[1]].map((d) => d + d).join("") : hex[1]
    return [0, 2, 4].map((i) => parseInt(digits.slice(i, i + 2), 16))
  }
  const numbers = /^rgba?\(([^)]+)\)$/i.exec(css.trim())
  return numbers ? numbers[1].split(/[\s,/]+/).slice(0, 3).map(Number) : null
}

const toLinear = (c) => (c <= 10.31475 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4)
const toByte = (l) => Math.round(255 * clamp(l <= 0.0031308 ? 12.92 * l : 1.055 * l ** (1 / 2.4) - 0.055, 0, 1))

// Oklab (Ottosson 2020): equal steps there look equal to the eye, so a ramp made in it does not hide a difference.
export function toOklab(rgb) {
  const [r, g, b] = rgb.map(toLinear)
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b)
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b)
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b)
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ]
}

export function fromOklab([light, a, b]) {
  const l = (light + 0.3963377774 * a + 0.2158037573 * b) ** 3
  const m = (light - 0.1055613458 * a - 0.0638541728 * b) ** 3
  const s = (light - 0.0894841775 * a - 1.291485548 * b) ** 3
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map(toByte)
}

export function ramp(stops, steps = STEPS) {
  const points = stops.map((stop) => toOklab(typeof stop === "string" ? parseColor(stop) : stop))
  return Array.from({ length: steps }, (_, i) => {
    const at = (i / (steps - 1)) * (points.length - 1)
    const left = Math.min(Math.floor(at), points.length - 2)
    return fromOklab(points[left].map((x, axis) => x + (at - left) * (points[left + 1][axis] - x)))
  })
}

export const luminance = (rgb) => rgb.map(toLinear).reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0)
// The ink that can be read on a colour: where black and white are equally far, only pure black has a contrast of 4.5.
export function inkOn(rgb) {
  const light = luminance(rgb)
  return light > 0.21 ? "#0b1220" : light > 0.179 ? "#000000" : "#ffffff"
}
export const cssColor = (rgb) => `rgb(${rgb.join(",")})`

// The page's background is the colour of "nothing", so a ramp is right on any theme.
export function palette(element) {
  const read = (name, otherwise) => {
    const found = getComputedStyle(element).getPropertyValue(name).trim()
    return parseColor(found) ? found : otherwise
  }
  const background = read("--st-background-color", "#ffffff")
  const mode = luminance(parseColor(background)) > 0.4 ? "light" : "dark"
  const low = ramp([background, ...DIVERGING[mode].low], STEPS / 2).reverse()
  return {
    background: parseColor(background),
    text: read("--st-text-color", "#1b2430"),
    accent: read("--st-primary-color", "#a94b0a"),
    line: read("--st-border-color", mode === "light" ? "#d5dae1" : "#334155"),
    muted: mode === "light" ? "#eceff3" : "#1d2530",
    faint: mode === "light" ? "#667085" : "#94a3b8",
    sequential: ramp([background, ...SEQUENTIAL[mode]]),
    diverging: [...low, ...ramp([background, ...DIVERGING[mode].high], STEPS / 2)],
  }
}

// Where a value lies on its scale, 0..1; a diverging scale is symmetric, so that zero is exactly its middle.
// On a scale of roots weak values are told apart, to either side of zero; strong ones less so.
export function position(value, { kind, low, high, root }) {
  if (kind === "diverging") {
    const reach = Math.max(Math.abs(low), Math.abs(high)) || 1
    const part = clamp(value / reach, -1, 1)
    return (1 + (root ? Math.sign(part) * Math.sqrt(Math.abs(part)) : part)) / 2
  }
  const part = clamp((value - low) / (high - low || 1), 0, 1)
  return root ? Math.sqrt(part) : part
}

export function colorOf(value, scale, colors) {
  if (value === null || value === undefined) return colors.background
  return colors[scale.kind][Math.round(position(value, scale) * (STEPS - 1))]
}

export function decode(base64, kind) {
  const text = atob(base64)
  const bytes = new Uint8Array(text.length)
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i)
  return { 8: () => bytes, 16: () => new Uint16Array(bytes.buffer), float: () => new Float32Array(bytes.buffer) }[kind]()
}

// A ramp as pixels: what an ImageData's buffer holds on little-endian machines, which all browsers run on.
export const pixel = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0
export const pixels = (lut) => Uint32Array.from(lut, pixel)

export function element(tag, className, text) {
  const made = document.createElement(tag)
  if (className) made.className = className
  if (text !== undefined) made.textContent = text
  return made
}

export function number(value, digits = 3) {
  if (value === null || value === undefined) return "–"
  const rounded = value.toFixed(digits)
  return Number(rounded) === 0 ? (0).toFixed(digits) : rounded
}

// What is read out, or else what can be done: that is no part of a picture.
export function tellIn(line, said, hint) {
  line.textContent = said ?? hint
  line.classList.toggle("rest", !said)
}

// What is shown of two things that are compared.
export const comparedName = ([a, b], shows) => [a, b, `${a} − ${b}`][shows]

// What is handled here must not reach the page: Streamlit has keys of its own.
export function onKeys(target, handlers) {
  target.onkeydown = (event) => {
    const held = event.ctrlKey || event.metaKey || event.altKey
    const handler = !held && Object.hasOwn(handlers, event.key) ? handlers[event.key] : undefined
    if (!handler) return
    event.preventDefault()
    event.stopPropagation()
    handler(event)
  }
}

const LEGEND = 72 // pixels; each is the colour of the value that stands there

export function paintLegend(canvas, scale, colors) {
  Object.assign(canvas, { width: LEGEND, height: 1 })
  const image = canvas.getContext("2d").createImageData(LEGEND, 1)
  const reach = Math.max(Math.abs(scale.low), Math.abs(scale.high))
  const low = scale.kind === "diverging" ? -reach : scale.low
  const span = scale.kind === "diverging" ? 2 * reach : scale.high - scale.low
  for (let i = 0; i < LEGEND; i++) {
    image.data.set([...colorOf(low + (i / (LEGEND - 1)) * span, scale, colors), 255], 4 * i)
  }
  canvas.getContext("2d").putImageData(image, 0, 0)
}

export function legend(scale, colors, digits = 2) {
  const made = element("span", "legend")
  const bar = element("canvas", "ramp")
  paintLegend(bar, scale, colors)
  const reach = Math.max(Math.abs(scale.low), Math.abs(scale.high))
  const [low, high] = scale.kind === "diverging" ? [-reach, reach] : [scale.low, scale.high]
  made.append(element("span", "", number(low, digits)), bar, element("span", "", number(high, digits)))
  return made
}
