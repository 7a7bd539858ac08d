// A table whose rows keep their identity: sortable, with a filter and pages, so that thousands of rows stay usable. Only the
// rows of one page are in the document.
//
// While the pointer, the focus or a selection is inside, the order of the rows is held. Rows that have ended stay, marked as
// ended, while they have the focus, or while the pointer or a selection is inside. So nothing moves away from under a user.

import { count, visible } from "./format.js";
import { element, setAttribute, setText } from "./dom.js";

/** Numbers inside of texts are compared as numbers. */
const ORDER = new Intl.Collator("en", { numeric: true });
const SIZES = [10, 25, 100, 500];

export class DataTable {
  /**
   * `columns`: `{ label, cell(td, row), sort(row), numeric, header, minor }`; a column without `sort` cannot be sorted, one
   * with `header` names its rows. `id(row)` identifies rows, and `text(row)` is what the filter searches.
   */
  constructor(root, { name, caption, noun, columns, id, text, empty, sort = null, size = SIZES[0] }) {
    Object.assign(this, { root, noun, columns, id, text, empty, size });
    [this.column, this.descending] = sort ?? [null, false];
    this.rows = [];
    this.page = 0;
    this.lines = new Map();
    this.order = [];
    this.build(name, caption);
  }

  build(name, caption) {
    const filterId = `${name}-filter`;
    this.filter = element("input", { type: "search", id: filterId, autocomplete: "off", spellcheck: "false" });
    this.filter.addEventListener("input", () => this.changed());
    this.shown = element("span", { class: "shown" });
    this.tools = element("div", { class: "tools" }, this.shown);
    if (this.text) {
      this.tools.prepend(element("label", { for: filterId }, "Filter"), this.filter);
    }
    this.body = element("tbody");
    this.heads = this.columns.map((column, index) => this.head(column, index));
    const table = element(
      "table",
      { id: `${name}-rows` },
      element("caption", {}, caption),
      element("thead", {}, element("tr", {}, ...this.heads)),
      this.body,
    );
    this.scroll = element("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" }, table);
    this.none = element("p", { class: "none" });
    this.root.append(this.tools, this.none, this.scroll, this.buildPager(name));
  }

  head(column, index) {
    const head = element("th", { scope: "col" });
    head.className = [column.numeric ? "numeric" : "", column.minor ? "minor" : ""].join(" ").trim();
    if (!column.sort) {
      head.append(column.label);
      return head;
    }
    const button = element("button", { type: "button", class: "sort" }, column.label);
    button.addEventListener("click", () => {
      this.descending = this.column === index ? !this.descending : Boolean(column.numeric);
      this.column = index;
      this.changed();
    });
    head.append(button);
    return head;
  }

  buildPager(name) {
    const button = (label, step) => {
      const made = element("button", { type: "button" }, label);
      made.addEventListener("click", () => {
        const next = this.page + step;
        if (next >= 0 && next < this.pages()) {
          this.page = next;
          this.draw(true);
        }
      });
      return made;
    };
    this.previous = button("Previous page", -1);
    this.next = button("Next page", 1);
    this.place = element("span");
    const select = element("select", { id: `${name}-size` });
    const sizes = SIZES.includes(this.size) ? SIZES : [...SIZES, this.size];
    select.append(...sizes.map((size) => element("option", { value: size }, String(size))));
    select.value = String(this.size);
    select.addEventListener("change", () => {
      this.size = Number(select.value);
      this.changed();
    });
    const label = element("label", { for: `${name}-size` }, "Rows per page");
    this.pager = element("div", { class: "pager" }, this.previous, this.place, this.next, label, select);
    return this.pager;
  }

  /** Shows these rows. */
  update(rows) {
    this.rows = rows;
    this.draw(false);
  }

  /** The user changed what to see. */
  changed() {
    this.page = 0;
    this.draw(true);
  }

  pages() {
    return Math.max(1, Math.ceil(this.matching.length / this.size));
  }

  isHeld() {
    return this.body.contains(document.activeElement) || this.isTouched();
  }

  /** Whether the pointer or a selection is inside. */
  isTouched() {
    const selection = document.getSelection();
    const isSelected = selection && !selection.isCollapsed && this.body.contains(selection.anchorNode);
    return Boolean(isSelected) || this.body.matches(":hover");
  }

  draw(byUser) {
    const words = visible(this.filter.value).toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (row) => {
      const text = this.text(row).toLowerCase();
      return words.every((word) => text.includes(word));
    };
    this.matching = words.length > 0 ? this.rows.filter(matches) : this.rows.slice();
    this.sort();
    this.page = Math.min(this.page, this.pages() - 1);
    let page = this.matching.slice(this.page * this.size, (this.page + 1) * this.size);
    const held = !byUser && this.isHeld();
    if (held) {
      page = this.inHeldOrder(page);
    }
    this.placeRows(page);
    this.describe(held);
  }

  sort() {
    const column = this.columns[this.column];
    this.heads.forEach((head, index) => {
      const direction = this.descending ? "descending" : "ascending";
      setAttribute(head, "aria-sort", index === this.column ? direction : null);
    });
    if (!column) {
      return;
    }
    const sign = this.descending ? -1 : 1;
    const keyed = this.matching.map((row, index) => [column.sort(row), index, row]);
    keyed.sort(([a, first], [b, second]) => {
      if (a === b) {
        return first - second;
      }
      // Unknown values are last in both directions.
      if (a === null || b === null) {
        return a === null ? 1 : -1;
      }
      return typeof a === "string" ? sign * ORDER.compare(a, b) : sign * (a - b);
    });
    this.matching = keyed.map(([, , row]) => row);
  }

  /** The rows on display in their order, including some that have ended; then new ones while there is room. */
  inHeldOrder(page) {
    const present = new Map(this.matching.map((row) => [this.id(row), row]));
    const isTouched = this.isTouched();
    const stays = (id) => present.has(id) || isTouched || this.lines.get(id).line.contains(document.activeElement);
    const kept = this.order.filter(stays).map((id) => present.get(id) ?? { ended: true, id });
    const known = new Set(this.order);
    const room = Math.max(0, this.size - kept.length);
    return kept.concat(page.filter((row) => !known.has(this.id(row))).slice(0, room));
  }

  placeRows(page) {
    const order = page.map((row) => (row.ended ? row.id : this.id(row)));
    const wanted = new Set(order);
    for (const [id, { line }] of this.lines) {
      if (!wanted.has(id)) {
        line.remove();
        this.lines.delete(id);
      }
    }
    page.forEach((row, index) => this.placeRow(order[index], row));
    this.reorder(order.map((id) => this.lines.get(id).line));
    this.order = order;
  }

  placeRow(id, row) {
    let entry = this.lines.get(id);
    if (!entry) {
      const line = element("tr", { "data-id": id });
      for (const column of this.columns) {
        const cell = column.header ? element("th", { scope: "row" }) : element("td");
        cell.className = [column.numeric ? "numeric" : "", column.minor ? "minor" : ""].join(" ").trim();
        line.append(cell);
      }
      entry = { line };
      this.lines.set(id, entry);
    }
    entry.line.classList.toggle("ended", Boolean(row.ended));
    if (row.ended) {
      for (const button of entry.line.querySelectorAll("button")) {
        button.setAttribute("aria-disabled", "true");
        setText(button, "Ended");
      }
      return;
    }
    this.columns.forEach((column, index) => column.cell(entry.line.cells[index], row));
  }

  /** Moves as few rows as possible, and never the one with the focus, which would lose it. */
  reorder(lines) {
    const focused = lines.find((line) => line.contains(document.activeElement));
    if (!focused) {
      lines.forEach((line, index) => {
        if (this.body.children[index] !== line) {
          this.body.insertBefore(line, this.body.children[index] ?? null);
        }
      });
      return;
    }
    const place = lines.indexOf(focused);
    let next = focused;
    for (const line of lines.slice(0, place).reverse()) {
      if (next.previousElementSibling !== line) {
        this.body.insertBefore(line, next);
      }
      next = line;
    }
    let previous = focused;
    for (const line of lines.slice(place + 1)) {
      if (previous.nextElementSibling !== line) {
        previous.after(line);
      }
      previous = line;
    }
  }

  describe(held) {
    const [all, some] = [this.rows.length, this.matching.length];
    const total = some === all ? count(all, this.noun) : `${some} of ${count(all, this.noun)}`;
    setText(this.shown, held && this.column !== null && all > 1 ? `${total}; the order is held while you are in the table` : total);
    const isEmpty = this.order.length === 0;
    this.none.hidden = !isEmpty;
    setText(this.none, all === 0 ? this.empty : "No row matches the filter.");
    this.scroll.hidden = isEmpty;
    this.tools.hidden = all === 0 && isEmpty && this.filter.value === "";
    this.pager.hidden = some <= SIZES[0];
    setText(this.place, `Page ${this.page + 1} of ${this.pages()}`);
    setAttribute(this.previous, "aria-disabled", this.page === 0);
    setAttribute(this.next, "aria-disabled", this.page >= this.pages() - 1);
  }
}

/** A cell with plain text from the server. */
export function textCell(td, text) {
  setText(td, visible(text ?? "–"));
}
