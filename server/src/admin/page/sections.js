// The tables and plots of the page: which columns they have, and how a value is written.

import { bytes, duration, number, rate, shortened, time, visible } from "./format.js";
import { element, part, setAttribute, setFacts, setText } from "./dom.js";
import { DataTable, textCell } from "./table.js";
import { Plot } from "./plot.js";

const byId = (id) => document.getElementById(id);

/** Two lines: the second one in smaller type, or absent. */
function twoLines(td, first, second) {
  setText(part(td, "div", "first"), first);
  setText(part(td, "div", "second"), second ?? "");
}

/** A path or an identity: may break anywhere, and is shortened, with the whole text as its title. */
function longText(td, text, most) {
  const whole = visible(text ?? "–");
  setText(td, shortened(text ?? "–", most));
  setAttribute(td, "title", whole.length > most ? whole : null);
}

function timeCell(td, text) {
  const node = part(td, "time", "time");
  setAttribute(node, "datetime", visible(text));
  setText(node, time(text));
}

/** A word with a colour and a sign. */
function stateCell(td, state, text) {
  const word = part(td, "span", "state");
  word.className = `state ${state}`;
  setText(word, text);
}

function button(td, label, description, act) {
  let node = td.firstElementChild;
  if (!node) {
    node = element("button", { type: "button" }, label);
    node.addEventListener("click", () => {
      if (node.getAttribute("aria-disabled") !== "true") {
        node.act();
      }
    });
    td.append(node);
  }
  node.act = act;
  setAttribute(node, "aria-label", description);
}

const DIRECTIONS = { send: "sends", receive: "receives", list: "lists" };

function transferDetails(row) {
  const facts = [
    ["Transfer", number(row.id)],
    ["Session", number(row.session)],
    ["Command", visible(row.verb)],
    ["Started", time(row.started)],
    ["Identity", visible(row.identity ?? "–")],
    ["Data peers", row.data_peers.map(visible).join(", ") || "–"],
    ["Stripes", number(row.stripes)],
    ["Restarts", number(row.restarts)],
    ["Stalls", number(row.stalls)],
    ["Task", visible(row.task_id ?? "–")],
  ];
  const details = row.details.map(({ name, value }) => [visible(name), visible(value)]);
  return facts.concat(details, [["Path", visible(row.path)]]);
}

function pathCell(td, row) {
  const name = part(td, "bdi", "path");
  setText(name, shortened(row.path));
  const more = part(td, "details", "more");
  if (!more.firstElementChild) {
    const summary = element("summary", {}, "Details");
    more.append(summary, element("dl", { class: "facts" }));
    more.addEventListener("toggle", () => setFacts(more.lastElementChild, transferDetails(more.row)));
  }
  more.row = row;
  setAttribute(more.firstElementChild, "aria-label", `Details of transfer ${row.id}`);
  if (more.open) {
    setFacts(more.lastElementChild, transferDetails(row));
  }
}

function progressCell(td, row) {
  const bar = part(td, "progress", "bar");
  const known = Number.isFinite(row.total_bytes) && row.total_bytes > 0;
  bar.hidden = !known;
  if (known) {
    const share = Math.min(1, row.bytes / row.total_bytes);
    setAttribute(bar, "max", 100);
    setAttribute(bar, "value", (share * 100).toFixed(1));
    setAttribute(bar, "aria-label", `Progress of transfer ${row.id}`);
    // Never 100 % before the end.
    setText(part(td, "div", "first"), `${bytes(row.bytes)} of ${bytes(row.total_bytes)}, ${Math.floor(share * 100)} %`);
  } else {
    setText(part(td, "div", "first"), bytes(row.bytes));
  }
}

export function transfersTable(end) {
  return new DataTable(byId("transfers-table"), {
    name: "transfers",
    caption: "Transfers that run or wait",
    noun: "transfer",
    size: 25,
    id: (row) => row.id,
    text: (row) => [row.id, row.user, row.identity, row.peer, row.verb, row.path, row.state, row.stack, row.task_id].map(visible).join(" "),
    empty: "No transfer is running or waiting.",
    sort: [3, true],
    columns: [
      {
        label: "User",
        header: true,
        sort: (row) => row.user,
        cell: (td, row) => twoLines(td, visible(row.user), visible(row.peer)),
      },
      { label: "Path", sort: (row) => row.path, cell: pathCell },
      {
        label: "State",
        sort: (row) => `${row.state} ${row.direction}`,
        cell: (td, row) => stateCell(td, row.state, row.state === "waiting" ? "waits" : (DIRECTIONS[row.direction] ?? visible(row.direction))),
      },
      { label: "Rate", numeric: true, sort: (row) => row.bytes_per_second, cell: (td, row) => setText(td, rate(row.bytes_per_second)) },
      { label: "Progress", sort: (row) => (row.total_bytes ? row.bytes / row.total_bytes : null), cell: progressCell },
      {
        label: "Time left",
        numeric: true,
        sort: (row) => row.remaining_seconds,
        cell: (td, row) => twoLines(td, row.remaining_seconds === null ? "–" : duration(row.remaining_seconds), `after ${duration(row.seconds)}`),
      },
      {
        label: "Channels",
        numeric: true,
        sort: (row) => row.channels,
        cell: (td, row) => twoLines(td, number(row.channels), visible(row.stack)),
      },
      {
        label: "Action",
        cell: (td, row) => button(td, "End", `End transfer ${row.id} of ${visible(row.user)}: ${shortened(row.path, 60)}`, () => end(row)),
      },
    ],
  });
}

export function sessionsTable(end) {
  const protection = (row) => visible(row.protection ?? "not protected");
  return new DataTable(byId("sessions-table"), {
    name: "sessions",
    caption: "Sessions of clients that have logged in",
    noun: "session",
    id: (row) => row.id,
    text: (row) => [row.id, row.user, row.identity, ...row.attributes, row.peer, row.client, row.protection, row.activity].map(visible).join(" "),
    empty: "No client is logged in.",
    sort: [0, true],
    columns: [
      { label: "Number", numeric: true, header: true, sort: (row) => row.id, cell: (td, row) => setText(td, String(row.id)) },
      {
        label: "User",
        sort: (row) => row.user,
        cell: (td, row) => twoLines(td, `${visible(row.user)}${row.read_only ? " (read only)" : ""}`, visible(row.peer)),
      },
      {
        label: "Identity",
        sort: (row) => row.identity ?? "",
        cell: (td, row) => twoLines(td, shortened(row.identity ?? "–"), shortened(row.attributes.join(" "))),
      },
      { label: "Client", sort: (row) => row.client ?? "", cell: (td, row) => twoLines(td, shortened(row.client ?? "–", 80), protection(row)) },
      { label: "Since", sort: (row) => row.started, cell: (td, row) => timeCell(td, row.started) },
      {
        label: "Activity",
        sort: (row) => row.activity,
        cell: (td, row) => stateCell(td, row.activity, row.activity === "idle" ? `idle for ${duration(row.idle_seconds)}` : visible(row.activity)),
      },
      { label: "Action", cell: (td, row) => button(td, "End", `End session ${row.id} of ${visible(row.user)}`, () => end(row)) },
    ],
  });
}

export function refusalsTable() {
  const key = (row) => [row.time, row.event, row.peer, row.user, row.reason].join("\n");
  return new DataTable(byId("refusals-table"), {
    name: "refusals",
    caption: "The latest refused connections, logins and commands, newest first",
    noun: "refusal",
    id: key,
    text: (row) => [row.event, row.peer, row.user, row.identity, row.reason].map(visible).join(" "),
    empty: "Nothing was refused since the start.",
    columns: [
      { label: "Time", header: true, sort: (row) => row.time, cell: (td, row) => timeCell(td, row.time) },
      { label: "Event", sort: (row) => row.event, cell: (td, row) => textCell(td, row.event) },
      { label: "Peer", sort: (row) => row.peer, cell: (td, row) => textCell(td, row.peer) },
      { label: "User", sort: (row) => row.user ?? "", cell: (td, row) => twoLines(td, visible(row.user ?? "–"), shortened(row.identity ?? "", 120)) },
      { label: "Reason", sort: (row) => row.reason, cell: (td, row) => longText(td, row.reason, 300) },
    ],
  });
}

export function errorsTable() {
  return new DataTable(byId("errors-table"), {
    name: "errors",
    caption: "The latest warnings and errors of the log, newest first; equal ones are counted together",
    noun: "message",
    id: (row) => `${row.level}\n${row.message}`,
    text: (row) => `${visible(row.level)} ${visible(row.message)}`,
    empty: "The log has no warning and no error since the start.",
    columns: [
      { label: "Last time", header: true, sort: (row) => row.time, cell: (td, row) => timeCell(td, row.time) },
      {
        label: "Level",
        sort: (row) => row.level,
        cell: (td, row) => stateCell(td, row.level === "ERROR" ? "bad" : "warn", row.level === "ERROR" ? "error" : "warning"),
      },
      { label: "Message", sort: (row) => row.message, cell: (td, row) => longText(td, row.message, 400) },
      { label: "Count", numeric: true, sort: (row) => row.count, cell: (td, row) => setText(td, number(row.count)) },
    ],
  });
}

const VALIDITY = { ok: ["ok", "valid"], soon: ["warn", "expires soon"], expired: ["bad", "expired"] };

export function credentialsTable() {
  const days = (row) => (row.days_left < 0 ? `${number(-row.days_left, 1)} days ago` : `${number(row.days_left, 1)} days`);
  return new DataTable(byId("credentials-table"), {
    name: "credentials",
    caption: "Certificates and revocation lists, and how long they are valid",
    noun: "file",
    id: (row) => `${row.kind}\n${row.file}\n${row.name}`,
    text: (row) => [row.kind, row.name, row.file, row.state].map(visible).join(" "),
    empty: "The server uses no certificates.",
    sort: [2, false],
    columns: [
      {
        label: "Name",
        header: true,
        sort: (row) => row.name,
        cell: (td, row) => twoLines(td, shortened(row.name), `${visible(row.kind)}, ${shortened(row.file, 100)}`),
      },
      {
        label: "State",
        sort: (row) => row.state,
        cell: (td, row) => stateCell(td, ...(VALIDITY[row.state] ?? ["warn", visible(row.state)])),
      },
      { label: "Left", numeric: true, sort: (row) => row.days_left, cell: (td, row) => setText(td, days(row)) },
      { label: "Expires", sort: (row) => row.expires, cell: (td, row) => timeCell(td, row.expires) },
    ],
  });
}

export function rdmaTable() {
  return new DataTable(byId("rdma-table"), {
    name: "rdma",
    caption: "RDMA devices of this machine, and whether the server can use them",
    noun: "device",
    id: (row) => row.device,
    text: null,
    empty: "This machine has no RDMA device. Transfers use TCP.",
    columns: [
      { label: "Device", header: true, cell: (td, row) => textCell(td, row.device) },
      {
        label: "Verdict",
        cell: (td, row) => stateCell(td, row.state === "ok" ? "ok" : "bad", row.state === "ok" ? "usable" : visible(row.state)),
      },
      { label: "Explanation", cell: (td, row) => longText(td, row.text, 400) },
    ],
  });
}

const SOURCES = { default: "default", file: "configuration file", flag: "command line" };

export function configurationTable() {
  return new DataTable(byId("configuration-table"), {
    name: "configuration",
    caption: "Configuration keys, their values and where they come from",
    noun: "key",
    size: 25,
    id: (row) => row.key,
    text: (row) => [row.key, row.value, row.source].map(visible).join(" "),
    empty: "The server reports no configuration.",
    sort: [0, false],
    columns: [
      { label: "Key", header: true, sort: (row) => row.key, cell: (td, row) => textCell(td, row.key) },
      { label: "Value", sort: (row) => row.value, cell: (td, row) => longText(td, row.value === "" ? "(empty)" : row.value, 300) },
      { label: "From", sort: (row) => row.source, cell: (td, row) => setText(td, SOURCES[row.source] ?? visible(row.source)) },
      {
        label: "A change takes effect",
        sort: (row) => row.takes_effect,
        cell: (td, row) => setText(td, row.takes_effect === "reload" ? "after a reload" : "after a restart"),
      },
    ],
  });
}

const NODES = { up: ["ok", "up"], draining: ["warn", "draining"], same: ["warn", "not used"], down: ["bad", "down"] };

/** Why a node is not up, or else why it was down the last time. */
function nodeReason(row) {
  if (row.reason !== null) {
    return `since ${time(row.since)}: ${row.reason}`;
  }
  return row.last_error === null ? null : `down at ${time(row.last_error.time)}: ${row.last_error.reason}`;
}

function share(td, value, limit, unit) {
  twoLines(td, unit(value), `of ${unit(limit)}`);
}

/** `order` drains the node of a row, or resumes it. */
export function nodesTable(order) {
  const busy = ({ load }) => load.senders_busy + load.receivers_busy;
  const version = (row) => (row.told === null ? "" : `${row.told.version} at ${row.told.host}`);
  return new DataTable(byId("nodes-table"), {
    name: "nodes",
    caption: "Data nodes: what this server has there, and what they report of themselves",
    noun: "node",
    size: 25,
    id: (row) => row.name,
    text: (row) => [row.name, row.state, version(row), nodeReason(row)].map(visible).join(" "),
    empty: "There is no data node.",
    columns: [
      { label: "Node", header: true, sort: (row) => row.name, cell: (td, row) => twoLines(td, shortened(row.name, 80), shortened(version(row), 80)) },
      {
        label: "State",
        sort: (row) => row.state,
        cell: (td, row) => stateCell(td, ...(row.state === "draining" && row.drained ? ["warn", "drained"] : (NODES[row.state] ?? ["warn", visible(row.state)]))),
      },
      { label: "Sessions", numeric: true, sort: (row) => row.sessions, cell: (td, row) => twoLines(td, number(row.sessions), `of ${number(row.load.sessions)}`) },
      { label: "Transfers", numeric: true, sort: (row) => row.transfers, cell: (td, row) => twoLines(td, number(row.transfers), `of ${number(row.load.transfers)}`) },
      { label: "Workers busy", numeric: true, sort: busy, cell: (td, row) => share(td, busy(row), 2 * row.load.workers_limit, number) },
      { label: "Buffers", numeric: true, sort: (row) => row.load.buffer_bytes, cell: (td, row) => share(td, row.load.buffer_bytes, row.load.buffer_bytes_limit, bytes) },
      { label: "Receiving", numeric: true, sort: (row) => row.bytes_per_second.received, cell: (td, row) => setText(td, rate(row.bytes_per_second.received)) },
      { label: "Sending", numeric: true, sort: (row) => row.bytes_per_second.sent, cell: (td, row) => setText(td, rate(row.bytes_per_second.sent)) },
      { label: "Reason", sort: nodeReason, cell: (td, row) => longText(td, nodeReason(row), 300) },
      {
        label: "Action",
        cell: (td, row) => {
          const label = row.drained ? "Resume" : "Drain";
          button(td, label, `${label} the data node ${visible(row.name)}`, () => order(row));
          setText(td.firstElementChild, label);
        },
      },
    ],
  });
}

export function plots(interval) {
  const root = byId("plots");
  const perSecond = (key) => (sample) => sample[key] / interval;
  const whole = (value) => number(value);
  return [
    new Plot(root, {
      title: "Throughput",
      unit: "bytes per second",
      show: (value, tick) => (tick ? bytes(value).replace(/\.0+ /, " ") : rate(value)),
      series: [
        { name: "sent", value: perSecond("sent_bytes") },
        { name: "received", value: perSecond("received_bytes") },
      ],
    }),
    new Plot(root, {
      title: "Processor time of all processes",
      unit: "processors",
      show: (value, tick) => (tick ? String(Number(value.toPrecision(3))) : `${number(value, 2)} processors`),
      series: [{ name: "used", value: perSecond("cpu_seconds") }],
    }),
    new Plot(root, {
      title: "Sessions and transfers",
      unit: "number",
      whole: true,
      show: whole,
      series: [
        { name: "sessions", value: (sample) => sample.sessions },
        { name: "transfers", value: (sample) => sample.transfers },
      ],
    }),
    new Plot(root, {
      title: "Refusals and errors",
      unit: `number in ${interval} s`,
      whole: true,
      show: whole,
      series: [
        { name: "refusals", value: (sample) => sample.refusals },
        { name: "errors", value: (sample) => sample.errors },
      ],
    }),
  ];
}

/** The samples of each minute together, newest first. */
export function minutes(history) {
  const groups = new Map();
  for (const sample of history.samples) {
    const minute = `${sample.time.slice(0, 16)}:00Z`;
    const group = groups.get(minute) ?? [];
    group.push(sample);
    groups.set(minute, group);
  }
  const sum = (group, key) => group.reduce((total, sample) => total + sample[key], 0);
  const most = (group, key) => Math.max(...group.map((sample) => sample[key]));
  return Array.from(groups, ([minute, group]) => {
    const seconds = group.length * history.interval_seconds;
    return {
      minute,
      sent: sum(group, "sent_bytes") / seconds,
      received: sum(group, "received_bytes") / seconds,
      processors: sum(group, "cpu_seconds") / seconds,
      sessions: most(group, "sessions"),
      transfers: most(group, "transfers"),
      refusals: sum(group, "refusals"),
      errors: sum(group, "errors"),
    };
  }).reverse();
}

export function valuesTable() {
  const column = (label, key, show) => ({
    label,
    numeric: true,
    sort: (row) => row[key],
    cell: (td, row) => setText(td, show(row[key])),
  });
  return new DataTable(byId("values-table"), {
    name: "values",
    caption: "The last hour by minute: averages of rates, the highest numbers of sessions and transfers, sums of the rest",
    noun: "minute",
    id: (row) => row.minute,
    text: null,
    empty: "No samples yet.",
    size: 100,
    columns: [
      { label: "Minute", header: true, sort: (row) => row.minute, cell: (td, row) => setText(td, time(row.minute).slice(0, -3)) },
      column("Sent", "sent", rate),
      column("Received", "received", rate),
      column("Processors", "processors", (value) => number(value, 2)),
      column("Sessions", "sessions", number),
      column("Transfers", "transfers", number),
      column("Refusals", "refusals", number),
      column("Errors", "errors", number),
    ],
  });
}
