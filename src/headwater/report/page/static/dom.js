// Building the page. Text always becomes text: nothing here or elsewhere writes HTML.

const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

export function visible(text) {
  // Control signs and those that turn the direction of writing are shown, not obeyed.
  return String(text).replace(UNSEEN, (sign) => "\\x" + sign.charCodeAt(0).toString(16).padStart(2, "0"));
}

export function short(text, most = 60) {
  const shown = visible(text);
  return shown.length <= most ? shown : shown.slice(0, most - 1) + "…";
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "tabIndex") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : visible(child));
  }
  return element;
}

export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function s(tag, props, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

export function clear(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function select(label, options, chosen, change) {
  // options: [value, text] pairs
  const box = h("select", { onchange: () => change(box.value), "aria-label": label });
  for (const [value, text] of options) box.append(h("option", { value }, short(text, 40)));
  box.value = chosen;
  return h("label", { class: "field" }, h("span", null, label), box);
}

export function check(label, chosen, change) {
  const box = h("input", { type: "checkbox", checked: chosen, onchange: () => change(box.checked) });
  return h("label", { class: "field check" }, box, h("span", null, label));
}

export function empty(title, text) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), text ? h("p", null, text) : null);
}

export async function copy(text, button) {
  let told = "Copied";
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // A file and an old browser have no clipboard to write to; then the text is marked for the keys.
    const area = h("textarea", { class: "unseen", value: text });
    document.body.append(area);
    area.select();
    told = document.execCommand("copy") ? "Copied" : "Press Ctrl-C";
    area.remove();
  }
  const before = button.textContent;
  button.textContent = told;
  setTimeout(() => (button.textContent = before), 1200);
}

export function panel(title, note, ...children) {
  return h(
    "section",
    { class: "panel" },
    title ? h("header", { class: "panel-head" }, h("h2", null, title), note ? h("p", { class: "muted" }, note) : null) : null,
    ...children,
  );
}
