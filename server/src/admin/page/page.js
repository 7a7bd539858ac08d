// The page of the administration interface: it asks for the status every two seconds while it is visible, shows it, and sends
// the actions of the administrator.

import { bytes, count, duration, number, rate, shortened, time, visible } from "./format.js";
import { element, setAttribute, setFacts, setList, setText } from "./dom.js";
import * as secret from "./secret.js";
import * as sections from "./sections.js";

const PERIOD = 2000;
/** A request that takes longer has failed. */
const PATIENCE = 10_000;
/** Results of actions are shown so long. */
const SHOWN = 60_000;
/** Data that is older is marked. */
const STALE = 10_000;

const byId = (id) => document.getElementById(id);

const tables = {
  transfers: sections.transfersTable(endTransfer),
  sessions: sections.sessionsTable(endSession),
  refusals: sections.refusalsTable(),
  errors: sections.errorsTable(),
  credentials: sections.credentialsTable(),
  rdma: sections.rdmaTable(),
  configuration: sections.configurationTable(),
  nodes: sections.nodesTable(orderNode),
};
const values = sections.valuesTable();

let plots = null;
let received = null;
let failure = null;
let paused = false;
let timer = null;
let told = null;
let asking = false;
let levelShown = null;
let draining = false;

// The server is asked while the page is visible.

async function poll() {
  clearTimeout(timer);
  if (document.hidden || paused || asking || secret.isAsking()) {
    return;
  }
  asking = true;
  let status = null;
  try {
    status = await ask();
  } catch (error) {
    failure = secret.isAsking() ? null : describe(error);
  }
  if (status) {
    received = Date.now();
    failure = null;
    try {
      show(status);
    } catch (error) {
      failure = `The page cannot show the data: ${visible(error.message)}.`;
    }
  }
  asking = false;
  byId("logout").hidden = !secret.isKnown();
  showAge();
  if (!document.hidden && !paused) {
    timer = setTimeout(poll, PERIOD);
  }
}

async function ask() {
  const response = await fetch("/status.json", {
    cache: "no-store",
    credentials: "omit",
    headers: secret.proof(),
    signal: AbortSignal.timeout(PATIENCE),
  });
  if (response.status === 401) {
    secret.askFor(poll);
  }
  if (!response.ok) {
    const reason = shortened(await response.text(), 400);
    throw new Error(`The server answers ${response.status} ${response.statusText}: ${reason}`);
  }
  return response.json();
}

/** A sentence about a request that failed. */
function describe(error) {
  if (error.name === "TimeoutError") {
    return "The server cannot be reached: it does not answer.";
  }
  // The message of a failed connection differs between browsers.
  return error instanceof TypeError ? "The server cannot be reached: there is no connection." : visible(error.message);
}

/** How old the data is. This is no live region: it changes every second. */
function showAge() {
  const age = received === null ? null : Date.now() - received;
  const isStale = failure !== null || (age !== null && age > STALE && !paused);
  document.body.classList.toggle("stale", isStale);
  if (age !== null) {
    const seconds = Math.floor(age / 1000);
    const clock = time(new Date(received).toISOString());
    setText(byId("age"), `${paused ? "Paused. " : ""}Data of ${clock}, ${seconds < 3 ? "current" : `${duration(seconds)} old`}`);
  }
  const shown = received === null ? "There is no data yet." : `The data below is of ${time(new Date(received).toISOString())}.`;
  const alert = failure === null ? "" : `${failure} ${shown} Trying again.`;
  setText(byId("alert"), alert);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    clearTimeout(timer);
  } else {
    poll();
  }
});

byId("pause").addEventListener("click", (event) => {
  paused = !paused;
  setAttribute(event.currentTarget, "aria-pressed", paused);
  setText(event.currentTarget, paused ? "Resume updates" : "Pause updates");
  showAge();
  poll();
});

byId("logout").addEventListener("click", () => {
  secret.forget();
  // What was shown is gone with the secret.
  location.reload();
});

setInterval(() => {
  if (!document.hidden) {
    showAge();
  }
}, 1000);

// What the server has answered.

function show(status) {
  showServer(status);
  for (const [name, table] of Object.entries(tables)) {
    table.update(status[name]);
  }
  setText(byId("transfers-number"), `(${number(status.transfers.length)})`);
  setText(byId("sessions-number"), `(${number(status.sessions.length)})`);
  setText(byId("refusals-number"), `(${number(status.refusals.length)})`);
  setText(byId("errors-number"), `(${number(status.errors.length)})`);
  plots ??= sections.plots(status.history.interval_seconds);
  for (const plot of plots) {
    plot.update(status.history.samples, lastTime(status));
  }
  history = status.history;
  showValues();
  showNodes(status.nodes);
}

let history = null;

function showValues() {
  if (history && byId("values").open) {
    values.update(sections.minutes(history));
  }
}

byId("values").addEventListener("toggle", showValues);

/** The end of the plots, by the server's clock. */
function lastTime(status) {
  const last = status.history.samples.at(-1);
  return last ? new Date(last.time).getTime() : Date.now();
}

function showNodes(list) {
  byId("nodes").hidden = list.length === 0;
  byId("nodes-link").hidden = list.length === 0;
}

const PHASES = { serving: ["ok", "serving"], draining: ["warn", "draining"] };

function showServer({ server, counts, transfers, ...status }) {
  setText(byId("host"), visible(server.host));
  document.title = `${visible(server.host)}: gridhaul-server`;
  const [state, word] = PHASES[server.phase] ?? ["warn", visible(server.phase)];
  byId("phase").className = `badge ${state}`;
  setText(byId("phase"), word);
  const speed = (list) => list.reduce((sum, transfer) => sum + transfer.bytes_per_second, 0);
  const directed = (wanted) => transfers.filter(({ direction }) => (direction === "receive") === wanted);
  setFacts(byId("tiles"), [
    ["Sending", rate(speed(directed(false))), count(directed(false).length, "transfer")],
    ["Receiving", rate(speed(directed(true))), count(directed(true).length, "transfer")],
    ["Transfers running", number(counts.transfers_running), `${number(counts.transfers_waiting)} waiting`],
    ["Sessions", number(counts.sessions), `${number(counts.sessions_before_login)} before login`],
    ["Workers busy", number(counts.workers_busy), `of ${number(counts.workers_limit)}`],
    ["Memory of buffers", bytes(counts.buffer_bytes), `of ${bytes(counts.buffer_bytes_limit)}`],
  ]);
  const processes = [`server ${server.pid}`, ...server.processes.map(({ role, pid }) => `${visible(role)} ${pid}`)];
  processes.push(count(counts.brokers, "broker"));
  setFacts(byId("facts"), [
    ["Version", visible(server.version)],
    ["Running for", duration(server.uptime_seconds)],
    ["Started", time(server.started)],
    ["Account", visible(server.user)],
    ["Listening", server.listening.map(visible).join(", ")],
    ["Log level", visible(server.log_level)],
    ["Processes", processes.join(", ")],
  ]);
  setList(byId("attention"), attention(server, counts, status));
  showDrain(server.phase);
  showLevel(server.log_level);
}

function attention(server, counts, { credentials, rdma, errors, nodes, history: { samples } }) {
  const items = [];
  if (server.phase !== "serving") {
    items.push(["warn", "The server is draining: it accepts no more connections."]);
  }
  const expired = credentials.filter(({ state }) => state === "expired").length;
  const soon = credentials.filter(({ state }) => state === "soon").length;
  if (expired > 0) {
    items.push(["bad", `Certificates or revocation lists that have expired: ${number(expired)}.`]);
  }
  if (soon > 0) {
    items.push(["warn", `Certificates or revocation lists that expire soon: ${number(soon)}.`]);
  }
  const unusable = rdma.filter(({ state }) => state !== "ok").map(({ device }) => visible(device));
  if (unusable.length > 0) {
    items.push(["warn", `The RDMA device ${unusable.join(", ")} cannot be used.`]);
  }
  const inState = (wanted) => nodes.filter(({ state }) => state === wanted).length;
  if (inState("down") > 0) {
    items.push(["bad", `Data nodes that cannot be used: ${number(inState("down"))} of ${number(nodes.length)}.`]);
  }
  if (inState("draining") > 0) {
    items.push(["warn", `Data nodes that get no new transfers: ${number(inState("draining"))}.`]);
  }
  if (inState("same") > 0) {
    items.push(["warn", `Entries of nodes that name a data node a second time: ${number(inState("same"))}.`]);
  }
  if (counts.workers_limit > 0 && counts.workers_busy >= counts.workers_limit) {
    items.push(["warn", "All workers are busy: further transfers wait."]);
  }
  const recent = samples.slice(-60).reduce((sum, sample) => sum + sample.errors, 0);
  if (recent > 0 && errors.length > 0) {
    items.push(["warn", `Warnings and errors in the last ten minutes: ${number(recent)}.`]);
  }
  return items.length > 0 ? items : [["ok", "Nothing needs attention."]];
}

/** A server that drains can be ended. */
function showDrain(phase) {
  draining = phase === "draining";
  setText(byId("drain"), draining ? "End the server…" : "Drain the server…");
  setText(
    byId("drain-hint"),
    draining ? "Transfers get the configured time to finish; then the server ends." : "Accepts no more connections and lets running transfers finish.",
  );
}

/** The selection of the user stays until the server has another level. */
function showLevel(level) {
  if (level === levelShown) {
    return;
  }
  levelShown = level;
  const select = byId("level");
  if (!Array.from(select.options).some(({ value }) => value === level)) {
    select.append(element("option", { value: level }, visible(level)));
  }
  select.value = level;
}

// Actions.

/** Sends an action. Returns the answer, or `null` after it has told the failure. */
async function act(path, body, what) {
  try {
    const response = await fetch(path, {
      method: "POST",
      credentials: "omit",
      headers: { "Content-Type": "application/json", ...secret.proof() },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(PATIENCE),
    });
    const text = await response.text();
    const answer = response.headers.get("Content-Type")?.startsWith("application/json") ? JSON.parse(text) : { error: text };
    if (answer.ok || Array.isArray(answer.errors)) {
      return answer;
    }
    tell(`${what} failed: ${visible(answer.error.trim() || response.statusText)}`, "bad");
    return null;
  } catch (error) {
    tell(`${what} failed. ${describe(error)}`, "bad");
    return null;
  } finally {
    poll();
  }
}

/** Shows the result of an action for a while, and has it read out. */
function tell(text, state) {
  clearTimeout(told);
  told = setTimeout(() => setText(byId("result"), ""), SHOWN);
  byId("result").className = state;
  setText(byId("result"), `${time(new Date().toISOString())} ${text}`);
}

/** Asks in a dialog. The focus returns to the button that opened it. */
function confirmed(title, lines, label) {
  const dialog = byId("confirm");
  setText(byId("confirm-title"), title);
  byId("confirm-text").replaceChildren(...lines.map((line) => element("p", {}, line)));
  setText(byId("confirm-button"), label);
  dialog.returnValue = "cancel";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "confirm"), { once: true });
  });
}

async function endTransfer(row) {
  const lines = [
    `${visible(row.verb)} ${shortened(row.path, 400)}`,
    `User ${visible(row.user)} at ${visible(row.peer)}, ${bytes(row.bytes)} so far.`,
    "The client gets an error; its session continues.",
  ];
  if (await confirmed(`End transfer ${row.id}?`, lines, "End the transfer")) {
    if (await act(`/api/transfers/${row.id}/end`, {}, `Ending transfer ${row.id}`)) {
      tell(`Transfer ${row.id} is being ended.`, "ok");
    }
  }
}

async function endSession(row) {
  const lines = [
    `User ${visible(row.user)} at ${visible(row.peer)}.`,
    "A transfer of this session is cancelled, and the connection is closed.",
  ];
  if (await confirmed(`End session ${row.id}?`, lines, "End the session")) {
    if (await act(`/api/sessions/${row.id}/end`, {}, `Ending session ${row.id}`)) {
      tell(`Session ${row.id} is being ended.`, "ok");
    }
  }
}

async function orderNode(row) {
  const name = visible(row.name);
  if (row.drained) {
    if (await act("/api/nodes/resume", { node: row.name }, `Resuming ${name}`)) {
      tell(`The data node ${name} gets sessions and transfers again.`, "ok");
    }
    return;
  }
  const lines = [
    "This server gives it no new sessions and transfers. Those that it has finish.",
    "It lasts until the node is resumed, or this server is restarted or upgraded.",
  ];
  const answer = (await confirmed(`Drain ${name}?`, lines, "Drain the data node")) && (await act("/api/nodes/drain", { node: row.name }, `Draining ${name}`));
  if (answer) {
    tell(`The data node ${name} is being drained. Transfers left: ${number(answer.node.transfers)}.`, "ok");
  }
}

byId("drain").addEventListener("click", async () => {
  const [title, label, done] = draining
    ? ["End the server?", "End the server", "The server is ending."]
    : ["Drain the server?", "Drain the server", "The server is draining."];
  const lines = draining
    ? ["Transfers get the configured time to finish. Then the server ends, and this page is gone."]
    : [
        "The server accepts no more connections and ends idle sessions. Only a restart undoes it.",
        "Running transfers continue, and this page stays. Draining a second time ends the server.",
      ];
  const answer = (await confirmed(title, lines, label)) && (await act("/api/drain", {}, label));
  if (answer) {
    tell(`${done} Sessions left: ${number(answer.sessions)}.`, "ok");
  }
});

byId("reload").addEventListener("click", async () => {
  const answer = await act("/api/reload", {}, "The reload");
  if (!answer) {
    return;
  }
  const lists = [
    ["Applied", answer.applied, "No key has another value."],
    ["Needs a restart", answer.needs_restart, "Nothing."],
    ["Files in force", answer.files, "None that decide logins."],
    ["Sessions ended", answer.sessions_ended > 0 ? [`${number(answer.sessions_ended)}, of users who are refused now`] : [], "None."],
    ["Errors", answer.errors, "None."],
  ];
  const parts = lists.flatMap(([title, items, none]) => [
    element("h3", {}, title),
    items.length > 0 ? element("ul", {}, ...items.map((item) => element("li", {}, visible(item)))) : element("p", {}, none),
  ]);
  setText(byId("report-title"), "Report of the reload");
  byId("report-text").replaceChildren(...parts);
  byId("report").showModal();
  const errors = answer.errors.length;
  tell(`Reloaded: ${count(answer.applied.length, "key")} applied, ${count(answer.needs_restart.length, "key")} after a restart, ${count(errors, "error")}.`, errors > 0 ? "warn" : "ok");
});

byId("level-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const level = byId("level").value;
  if (await act("/api/log-level", { level }, "Changing the log level")) {
    tell(`The log level is ${level}.`, "ok");
  }
});

addEventListener("hashchange", secret.takeFromAddress);
secret.takeFromAddress();
poll();
