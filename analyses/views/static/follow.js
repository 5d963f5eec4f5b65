// Draws nothing: hands what the host confirms to the view of the same name.

export default function follow({ data }) {
  confirm(data.name, data.fields)
  return () => forget(data.name, data.fields)
}
