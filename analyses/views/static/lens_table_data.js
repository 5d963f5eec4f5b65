// The lens table's numbers: read from what was sent, without a page. A table is one model's, by place, position and rank.

export function readTable(table, nPositions) {
  const [nPlaces, k] = [table.places.length, table.n_top]
  const top = table.bits === 16 ? decode(table.top, 16) : new Uint32Array(decode(table.top, 8).buffer)
  const probability = decode(table.probability, 16)
  const numbers = decode(table.numbers, "float")
  const size = nPlaces * nPositions
  const at = (what) => (place, position) => numbers[what * size + place * nPositions + position]
  return {
    places: table.places, targets: table.targets, k,
    top: (place, position, rank = 0) => top[(place * nPositions + position) * k + rank],
    probability: (place, position, rank = 0) => probability[(place * nPositions + position) * k + rank] / 65535,
    logProbability: at(0), divergence: at(1), entropy: at(2), rank: at(3),
  }
}

// 1 for the likeliest, 0 at the worst rank that has a colour of its own; in between by the logarithm.
export const rankLevel = (rank, worst) => clamp(1 - Math.log(rank) / Math.log(worst), 0, 1)

// How the target's rank changed from the place before: 1 it rose towards 1, -1 it fell, 0 it stayed or this is the first.
export const moved = (table, place, position) =>
  place === 0 ? 0 : Math.sign(table.rank(place - 1, position) - table.rank(place, position))

// The difference of the target's log-probability; null where the two have different targets.
export const gap = (a, b, place, position) =>
  a.targets[position] === b.targets[position] ? a.logProbability(place, position) - b.logProbability(place, position) : null

// What colours a cell: [value, scale].
export function cellValue(view, place, position) {
  const { data, cells, shows, tables } = view
  if (shows === 2) return [gap(tables[0], tables[1], place, position), data.difference]
  const table = tables[shows]
  const value = {
    probability: () => table.probability(place, position),
    divergence: () => table.divergence(place, position),
    rank: () => rankLevel(table.rank(place, position), data.worst),
  }[cells]()
  return [value, data.scales[cells]]
}

export const isTarget = (table, place, position) => table.top(place, position) === table.targets[position]

const nats = (value) => number(value, 2)

// One model's reading of a cell in a line: its top tokens, and what it gives the target.
export function reading(data, table, place, position) {
  const tops = Array.from({ length: table.k }, (_, rank) =>
    `‘${data.words[table.top(place, position, rank)]}’ ${number(table.probability(place, position, rank))}`)
  const target = data.words[table.targets[position]]
  return [
    tops.join("  "),
    `${namedTarget(data, position)} ‘${target}’: rank ${table.rank(place, position)}, log-probability ${nats(table.logProbability(place, position))}` +
      `   KL to final ${nats(table.divergence(place, position))}   entropy ${nats(table.entropy(place, position))} nats`,
  ]
}

// What the target is here: behind the text's last token nothing follows.
export const isGuessed = (data, position) => data.guessed && data.start + position === data.last
export const namedTarget = (data, position) => (isGuessed(data, position) ? "no next token here; the model's choice" : data.target)

export function describe(view, place, position) {
  const { data, shows, tables } = view
  const locked = view.lock?.place === place && view.lock?.position === position ? "   · locked" : ""
  const label = tables[shows === 1 ? 1 : 0].places[place]
  const head = `position ${data.start + position} ‘${data.tokens[position]}’ at ${label}${locked}`
  const told = shows === 2 ? [0, 1] : [shows]
  const lines = told.flatMap((which) => {
    const parts = reading(data, tables[which], place, position)
    return data.tables.length > 1 ? [`${data.names[which]}   ${parts[0]}`, `    ${parts[1]}`] : parts
  })
  if (shows === 2) {
    const value = gap(tables[0], tables[1], place, position)
    lines.push(value === null ? "the two have different targets here" : `log-probability, ${data.names[0]} less ${data.names[1]}: ${nats(value)}`)
  }
  return [head, ...lines].join("\n")
}
