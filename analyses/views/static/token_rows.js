// Token rows: pieces of text, each token on the colour of its value, with a note in front. Pointing reads a value out.

function makeToken(view, row, i) {
  const value = row.values?.[i] ?? null
  const token = element("span", "token", row.tokens[i])
  if (value !== null) {
    const rgb = colorOf(value, view.data.scale, view.colors)
    Object.assign(token.style, { background: cssColor(rgb), color: inkOn(rgb) })
    token.onpointerenter = () => {
      view.live.textContent = `position ${row.start + i}  ‘${row.tokens[i]}’   ${view.data.label} ${number(value, view.data.digits)}`
    }
    token.onpointerleave = () => { view.live.textContent = view.data.hint }
  }
  token.classList.toggle("boxed", i === row.boxed)
  return token
}

function makeRow(view, row) {
  const line = element("div", "line")
  const text = element("span", "tokens")
  text.append(...row.tokens.map((_, i) => makeToken(view, row, i)))
  line.append(element("span", "note", row.note), text)
  return line
}

export default function tokenRows({ data, parentElement }) {
  const root = parentElement.querySelector(".token-rows")
  const view = { data, colors: palette(root), live: root.querySelector(".live") }
  root.querySelector(".lines").replaceChildren(...data.rows.map((row) => makeRow(view, row)))
  view.live.textContent = data.hint
  const coloured = data.rows.some((row) => row.values)
  view.live.hidden = root.querySelector(".scale").hidden = !coloured
  root.querySelector(".scale").replaceChildren(...(coloured ? [element("span", "", data.label), legend(data.scale, view.colors)] : []))
}
