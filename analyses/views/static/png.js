// Saving what a view shows as a picture, in the browser: its elements, with their style and their canvases, are drawn by
// the browser itself into one canvas. Nothing is fetched.

const MARGIN = 12
const LINE = 15
const XHTML = "http://www.w3.org/1999/xhtml"
const THEME = [
  "--st-text-color", "--st-background-color", "--st-border-color", "--st-primary-color", "--st-secondary-background-color",
  "--st-font", "--st-code-font",
]

function styleOf(root) {
  const scope = root.getRootNode()
  const sheets = [...scope.styleSheets, ...(scope.adoptedStyleSheets ?? [])]
  return sheets.flatMap((sheet) => [...sheet.cssRules].map((rule) => rule.cssText)).join("\n")
}

function stillOf(root) {
  const copy = root.cloneNode(true)
  const drawn = [...root.querySelectorAll("canvas")]
  copy.querySelectorAll("canvas").forEach((canvas, i) => {
    const image = document.createElementNS(XHTML, "img")
    image.setAttribute("src", drawn[i].toDataURL())
    image.setAttribute("class", canvas.className)
    const { width, height, imageRendering } = getComputedStyle(drawn[i])
    image.setAttribute("style", `width:${width};height:${height};image-rendering:${imageRendering}`)
    canvas.replaceWith(image)
  })
  copy.querySelectorAll(".toggle, .segments, select, input, .live.rest").forEach((part) => part.remove()) // no controls
  const computed = getComputedStyle(root)
  THEME.forEach((name) => copy.style.setProperty(name, computed.getPropertyValue(name)))
  copy.style.width = `${root.getBoundingClientRect().width}px`
  return copy
}

// Lines that are no wider than `most`, broken between parts.
export function wrapped(parts, most, widthOf) {
  const lines = []
  parts.forEach((part) => {
    const longer = `${lines.at(-1)} · ${part}`
    if (lines.length && widthOf(longer) <= most) lines[lines.length - 1] = longer
    else lines.push(part)
  })
  return lines
}

// What the numbers rest on, in lines under the drawing: `paint` draws them from a height on.
function footOf(root, restsOn, most) {
  const font = `11px ${getComputedStyle(root).fontFamily}`
  const context = document.createElement("canvas").getContext("2d")
  context.font = font
  const lines = wrapped(restsOn, most, (text) => context.measureText(text).width)
  const paint = (on, from) => {
    Object.assign(on, { font, fillStyle: palette(root).faint, textBaseline: "middle" })
    lines.forEach((line, i) => on.fillText(line, MARGIN, from + (i + 0.5) * LINE, most))
  }
  return { height: lines.length * LINE, paint }
}

// `restsOn` is said under the drawing. `sharpen(ratio)` paints the view's canvases anew with so many pixels to one of the
// page, and as before for null.
export async function pictureOf(root, restsOn = [], sharpen = () => {}, ratio = Math.max(2, globalThis.devicePixelRatio || 1)) {
  const box = root.getBoundingClientRect()
  const [width, height] = [box.width, box.height].map((side) => Math.ceil(side) + 2 * MARGIN)
  sharpen(ratio)
  const markup = new XMLSerializer().serializeToString(stillOf(root))
  sharpen(null)
  const style = styleOf(root).replaceAll("&", "&amp;").replaceAll("<", "&lt;")
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width * ratio}" height="${height * ratio}" viewBox="0 0 ${width} ${height}">
<foreignObject x="${MARGIN}" y="${MARGIN}" width="${width - MARGIN}" height="${height - MARGIN}"><div xmlns="${XHTML}"><style>${style}</style>${markup}</div></foreignObject></svg>`
  const image = new Image()
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`
  await image.decode()
  const foot = footOf(root, restsOn, width - 2 * MARGIN)
  const canvas = document.createElement("canvas")
  Object.assign(canvas, { width: width * ratio, height: (height + foot.height) * ratio })
  const context = canvas.getContext("2d")
  context.fillStyle = cssColor(palette(root).background)
  context.fillRect(0, 0, canvas.width, canvas.height)
  context.drawImage(image, 0, 0, width * ratio, height * ratio)
  context.scale(ratio, ratio)
  foot.paint(context, height - MARGIN)
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("this browser cannot draw the view as a picture"))))
  })
}

export async function savePng(root, file, restsOn, sharpen) {
  const link = document.createElement("a")
  link.href = URL.createObjectURL(await pictureOf(root, restsOn, sharpen))
  link.download = file.endsWith(".png") ? file : `${file}.png`
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000)
}

// A small button that saves its view; `name` and `shown`, the data that is drawn, are asked when it is pressed.
export function pngButton(root, name, shown, sharpen) {
  const button = element("button", "toggle png", "PNG")
  button.setAttribute("aria-label", "save as a PNG picture")
  Object.assign(button, { type: "button", title: "Save what is shown as a picture", hidden: shown().png === false })
  button.onclick = () => savePng(root, name(), shown().rests_on, sharpen)
  return button
}
