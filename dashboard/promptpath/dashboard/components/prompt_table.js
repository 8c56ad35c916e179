// A table of prompts. Rows are links; a plain click opens the prompt in this session, without loading the page anew.
const cell = (tag, text, className) => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};

const parts = (pieces) => {
  const bar = cell("div", undefined, "pp-parts");
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", pieces.map((piece) => piece.text).join(", "));
  bar.title = pieces.map((piece) => piece.text).join("\n");
  for (const piece of pieces) {
    const bit = document.createElement("i");
    bit.style.width = `${piece.percent}%`;
    bit.style.background = piece.color;
    bar.append(bit);
  }
  return bar;
};

const status = (value) => {
  const node = cell("span", undefined, "pp-status");
  const dot = document.createElement("i");
  dot.style.background = value.color;
  node.append(dot, value.text);
  if (value.title) node.title = value.title;
  return node;
};

export default function ({ data, setTriggerValue, parentElement }) {
  const open = (id) => setTriggerValue("open", id);
  const table = document.createElement("table");
  table.append(cell("caption", data.caption));
  const head = table.createTHead().insertRow();
  for (const column of data.columns) {
    const th = cell("th", column.label, column.kind === "number" ? "pp-number" : "");
    th.scope = "col";
    if (column.help) th.title = column.help;
    head.append(th);
  }
  const body = table.createTBody();
  for (const row of data.rows) {
    const tr = body.insertRow();
    tr.dataset.prompt = row.id;
    tr.onclick = (event) => {
      if (event.defaultPrevented || event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
      if (window.getSelection()?.toString()) return;
      event.preventDefault();
      open(row.id);
    };
    for (const column of data.columns) {
      const value = row.cells[column.name];
      const td = tr.insertCell();
      td.dataset.column = column.name;
      if (column.kind === "number") td.className = "pp-number";
      if (column.kind === "link") {
        const a = cell("a", value);
        a.href = row.href;
        a.target = "_self";
        td.append(a);
      } else if (column.kind === "parts") {
        if (value) td.append(parts(value));
        else td.textContent = "—";
      } else if (column.kind === "status") {
        td.append(status(value));
      } else {
        td.append(cell("div", value, column.kind === "clip" ? "pp-clip" : ""));
        if (column.kind === "clip") td.title = value;
      }
    }
  }
  const root = cell("div", undefined, "pp-table");
  root.append(table);
  const place = parentElement.querySelector(".pp-place") ?? parentElement;
  place.replaceChildren(root);
}
