// The secret of administrators, where the server asks for one. It is kept for this tab and this origin, and sent in a header:
// browsers would send a cookie to every port of the host, also to the servers of other users.

import { setText } from "./dom.js";

const KEY = "gridhaul-admin-token";

const byId = (id) => document.getElementById(id);

/** Keeps a secret, unless no header can have it. */
function keep(secret) {
  const isSendable = secret !== "" && !/[\u0000-\u001f\u007f]/.test(secret);
  if (isSendable) {
    sessionStorage.setItem(KEY, secret);
  }
  return isSendable;
}

/** An address may end with `#token=SECRET`, which browsers do not send. The secret does not stay there. */
export function takeFromAddress() {
  const found = location.hash.match(/^#token=(.+)$/);
  if (!found) {
    return;
  }
  history.replaceState(null, "", location.pathname);
  try {
    if (keep(decodeURIComponent(found[1]).trim()) && isAsking()) {
      byId("login").close();
    }
  } catch {
    // It is not encoded as addresses are: the form asks for it.
  }
}

/** Whether there is a secret. */
export function isKnown() {
  return sessionStorage.getItem(KEY) !== null;
}

/** The headers that show the secret, as its bytes in UTF-8. */
export function proof() {
  const bytes = new TextEncoder().encode(sessionStorage.getItem(KEY) ?? "");
  return isKnown() ? { Authorization: `Bearer ${String.fromCharCode(...bytes)}` } : {};
}

/** Forgets the secret. */
export function forget() {
  sessionStorage.removeItem(KEY);
}

/** Whether the page asks for the secret now. */
export function isAsking() {
  return byId("login").open;
}

/** Asks for the secret, and calls `done` when the administrator has given one. */
export function askFor(done) {
  const dialog = byId("login");
  setText(byId("login-hint"), isKnown() ? "The server does not accept this secret." : "");
  forget();
  if (!isAsking()) {
    dialog.addEventListener("close", done, { once: true });
    dialog.showModal();
  }
}

byId("login-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const field = byId("token");
  if (keep(field.value.trim())) {
    byId("login").close();
  }
  field.value = "";
});
