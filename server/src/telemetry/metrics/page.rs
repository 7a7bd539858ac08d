//! The page of metrics, with the help text of each.

use gridhaul_shares::Load;
use gridhaul_transfer::NodeLoad;

use super::counts::{Counts, SECONDS};
use super::text::{Kind, Text};
use crate::version::VERSION_NUMBER;

/// The present values of what is not counted by events.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Control connections.
    pub(crate) sessions: usize,
    /// Control connections that have not logged in.
    pub(crate) sessions_before_login: usize,
    pub(crate) transfers_running: usize,
    pub(crate) transfers_waiting: usize,
    pub(crate) node: NodeLoad,
    /// Threads for work on files.
    pub(crate) file_threads: Load,
    /// Processes that act for local accounts.
    pub(crate) brokers: usize,
}

/// The text for a scraper.
pub(super) fn page(counts: &Counts, now: &Snapshot) -> String {
    let mut text = Text::default();
    text.family(
        "gridhaul_build_info",
        Kind::Gauge,
        "The version of the server; always 1.",
    );
    let version = [("version", VERSION_NUMBER)];
    text.sample("gridhaul_build_info", &version, 1);
    sessions(&mut text, now, counts);
    transfers(&mut text, now, counts);
    checksums(&mut text, counts);
    resources(&mut text, now);
    text.into_string()
}

fn sessions(text: &mut Text, now: &Snapshot, counts: &Counts) {
    text.single(
        "gridhaul_sessions_open",
        Kind::Gauge,
        "Control connections.",
        now.sessions,
    );
    text.single(
        "gridhaul_sessions_before_login",
        Kind::Gauge,
        "Control connections that have not logged in.",
        now.sessions_before_login,
    );
    text.single(
        "gridhaul_sessions_opened_total",
        Kind::Counter,
        "Sessions that clients opened.",
        counts.sessions,
    );
    text.single(
        "gridhaul_connections_refused_total",
        Kind::Counter,
        "Control connections past max-connections, max-connections-per-address or max-startups, or with penalties.",
        counts.connections_refused,
    );
    let name = "gridhaul_authentications_total";
    text.family(
        name,
        Kind::Counter,
        "Security handshakes of control connections.",
    );
    for ([mechanism, result], count) in &counts.authentications {
        let labels = [("mechanism", *mechanism), ("result", *result)];
        text.sample(name, &labels, count);
    }
    text.counters(
        ("gridhaul_logins_total", "result"),
        "Logins.",
        &counts.logins,
    );
    text.single(
        "gridhaul_commands_refused_total",
        Kind::Counter,
        "Protected commands that could not be believed.",
        counts.commands_refused,
    );
}

fn transfers(text: &mut Text, now: &Snapshot, counts: &Counts) {
    text.single(
        "gridhaul_transfers_running",
        Kind::Gauge,
        "Transfers and listings under way.",
        now.transfers_running,
    );
    text.single(
        "gridhaul_transfers_waiting",
        Kind::Gauge,
        "Transfers that wait because max-transfers, or as many as the processors can serve, are running.",
        now.transfers_waiting,
    );
    let name = "gridhaul_transfers_total";
    text.family(name, Kind::Counter, "Transfers that ended, by command.");
    for ([verb, result], count) in &counts.transfers {
        text.sample(name, &[("verb", verb), ("result", result)], count);
    }
    let name = "gridhaul_transfer_bytes_total";
    text.family(
        name,
        Kind::Counter,
        "Bytes of files and listings, counted when a transfer ends, in success or not.",
    );
    for (direction, moved) in &counts.directions {
        text.sample(name, &[("direction", direction)], moved.bytes);
    }
    let name = "gridhaul_transfer_seconds";
    text.family(name, Kind::Histogram, "How long transfers took.");
    for (direction, moved) in &counts.directions {
        let bounds = SECONDS.map(|bound| bound.to_string());
        let bounds = bounds.iter().map(String::as_str).chain(["+Inf"]);
        for (bound, count) in bounds.zip(moved.within) {
            let labels = [("direction", *direction), ("le", bound)];
            text.sample("gridhaul_transfer_seconds_bucket", &labels, count);
        }
        let labels = [("direction", *direction)];
        let all = moved.within[SECONDS.len()];
        text.sample("gridhaul_transfer_seconds_sum", &labels, moved.seconds);
        text.sample("gridhaul_transfer_seconds_count", &labels, all);
    }
    text.counters(
        ("gridhaul_transfer_ways_total", "way"),
        "Transfers by the way that their driver moved bytes, where it had a choice.",
        &counts.ways,
    );
    let name = "gridhaul_transfer_choices_total";
    text.family(
        name,
        Kind::Counter,
        "Transfers by what their driver chose for their channels: its provider, a device.",
    );
    for ((choice, value), count) in &counts.choices {
        text.sample(name, &[("choice", choice), ("value", value)], count);
    }
    text.counters(
        ("gridhaul_channel_counts_total", "count"),
        "What drivers counted on data channels, added when a transfer ends.",
        &counts.channel_counts,
    );
    text.counters(
        ("gridhaul_device_counts_total", "count"),
        "What devices counted while transfers used them, added when a transfer ends; of transfers at the same time, each adds it.",
        &counts.device_counts,
    );
    text.single(
        "gridhaul_data_connections_refused_total",
        Kind::Counter,
        "Data connections of strangers, and those that failed their handshakes.",
        counts.data_connections_refused,
    );
}

fn checksums(text: &mut Text, counts: &Counts) {
    let name = "gridhaul_checksums_total";
    text.family(
        name,
        Kind::Counter,
        "Checksums by where they come from: computed on arrival of the file, remembered, carried by it, or its content.",
    );
    for ([algorithm, source], count) in &counts.checksums {
        let labels = [("algorithm", *algorithm), ("source", *source)];
        text.sample(name, &labels, count);
    }
    let name = "gridhaul_checksum_bytes_total";
    text.family(name, Kind::Counter, "Bytes that were read for checksums.");
    for (algorithm, read) in &counts.read_for_checksums {
        text.sample(name, &[("algorithm", algorithm)], read.bytes);
    }
    let name = "gridhaul_checksum_seconds_total";
    text.family(
        name,
        Kind::Counter,
        "How long it took to read them and to compute, without the wait for a turn.",
    );
    for (algorithm, read) in &counts.read_for_checksums {
        text.sample(name, &[("algorithm", algorithm)], read.seconds);
    }
}

fn resources(text: &mut Text, now: &Snapshot) {
    let load = &now.node;
    let directions = [("send", load.senders), ("receive", load.receivers)];
    let name = "gridhaul_movers_busy";
    text.family(name, Kind::Gauge, "Data channels that hold a mover.");
    for (direction, movers) in directions {
        text.sample(name, &[("direction", direction)], movers.busy);
    }
    let name = "gridhaul_movers_awaited";
    text.family(
        name,
        Kind::Gauge,
        "Transfers that wait for movers to be free.",
    );
    for (direction, movers) in directions {
        text.sample(name, &[("direction", direction)], movers.awaited);
    }
    text.single(
        "gridhaul_movers_limit",
        Kind::Gauge,
        "Movers that may be busy in each direction.",
        load.senders.limit,
    );
    text.single(
        "gridhaul_buffer_bytes",
        Kind::Gauge,
        "Memory of buffers that movers hold, in bytes.",
        load.buffer_bytes,
    );
    text.single(
        "gridhaul_buffer_bytes_limit",
        Kind::Gauge,
        "Memory that buffers may take together, in bytes.",
        load.buffer_bytes_limit,
    );
    let files = &now.file_threads;
    text.single(
        "gridhaul_file_threads_busy",
        Kind::Gauge,
        "Threads that work on files, apart from transfers.",
        files.held,
    );
    text.single(
        "gridhaul_file_threads_awaited",
        Kind::Gauge,
        "Commands that wait for a thread that works on files.",
        files.waiting,
    );
    text.single(
        "gridhaul_file_threads_limit",
        Kind::Gauge,
        "Threads that may work on files.",
        files.capacity,
    );
    #[cfg(feature = "rdma")]
    rings(text);
    text.single(
        "gridhaul_brokers",
        Kind::Gauge,
        "Processes that act for local accounts.",
        now.brokers,
    );
}

#[cfg(feature = "rdma")]
fn rings(text: &mut Text) {
    let load = gridhaul_rdma::memory_load();
    let name = "gridhaul_rdma_ring_bytes";
    text.family(
        name,
        Kind::Gauge,
        "Memory of rings: of open channels, and kept for the next.",
    );
    text.sample(name, &[("state", "used")], load.used_bytes);
    text.sample(name, &[("state", "idle")], load.idle_bytes);
    text.single(
        "gridhaul_rdma_ring_bytes_limit",
        Kind::Gauge,
        "Memory that rings may take together, in bytes.",
        load.limit_bytes,
    );
    text.single(
        "gridhaul_rdma_pinned_bytes",
        Kind::Gauge,
        "Memory of rings that is pinned for devices, in bytes.",
        load.pinned_bytes,
    );
    text.single(
        "gridhaul_rdma_channels",
        Kind::Gauge,
        "Data channels that have rings.",
        load.channels,
    );
    text.single(
        "gridhaul_rdma_channels_waiting",
        Kind::Gauge,
        "Data channels that wait for memory for their rings.",
        load.waiting,
    );
}
