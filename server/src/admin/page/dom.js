// Small helpers for the document. Values are set only when they differ, so that a selection in unchanged text stays.

export function setText(node, text) {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}

export function setAttribute(node, name, value) {
  if (value === null) {
    node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) {
    node.setAttribute(name, value);
  }
}

/** A new element with attributes, and with children that are nodes or text. */
export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

/** The child of `parent` with this class, made at the first call. */
export function part(parent, name, className) {
  for (const child of parent.children) {
    if (child.classList.contains(className)) {
      return child;
    }
  }
  const child = element(name, { class: className });
  parent.append(child);
  return child;
}

/** Terms and descriptions: `[term, text, second]`, where the second line is optional. The same terms keep their elements. */
export function setFacts(list, facts) {
  const terms = Array.from(list.children, (group) => group.firstElementChild.textContent);
  if (terms.join("\n") !== facts.map(([term]) => term).join("\n")) {
    list.replaceChildren(
      ...facts.map(([term]) => element("div", {}, element("dt", {}, term), element("dd"))),
    );
  }
  facts.forEach(([, text, second], index) => {
    const description = list.children[index].lastElementChild;
    if (second === undefined) {
      setText(description, text);
    } else {
      setText(part(description, "span", "first"), text);
      setText(part(description, "span", "second"), second);
    }
  });
}

/** An unordered list of texts with the class of their state. */
export function setList(list, items) {
  const key = JSON.stringify(items);
  if (list.dataset.key !== key) {
    list.dataset.key = key;
    list.replaceChildren(...items.map(([state, text]) => element("li", { class: state }, text)));
  }
}
