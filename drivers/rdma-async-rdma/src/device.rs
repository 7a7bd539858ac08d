//! Opens a device with async-rdma, with the parameters that it needs before the peer is known.

use std::fs;
use std::io;
use std::time::Duration;

use async_rdma::{ConnectionType, MRManageStrategy, MTU, Rdma, RdmaBuilder};
use gridhaul_rdma::provider::AdapterPort;

use crate::queue_pair::RECEIVES;

/// Requests at a time. async-rdma fails requests beyond the queue, with a wrong reason, so the caller counts them.
pub(crate) const DEPTH: usize = 256;

/// READs at a time: async-rdma locks the whole region for each.
pub(crate) const READS: u8 = 1;

/// What RoCE v2 adds to a packet, at most: IPv6, UDP, the headers of the transport, and its checksum
/// (`iboe_get_mtu` in the kernel's ib_addr.h).
const HEADER_BYTES: u64 = 96;

/// Opens the device, with a queue pair that is not connected. Call it within a runtime, which then runs a task
/// for its completions.
///
/// # Errors
///
/// If the device cannot be opened or lacks resources.
pub(crate) fn open(port: &AdapterPort, mtu: u8, round_trip: Duration) -> io::Result<Rdma> {
    // ibv_modify_qp(3): seven retries without end while the peer has no receive buffer, which is its flow control.
    const WITHOUT_END: u8 = 7;
    // InfiniBand architecture 9.7.5.2.8: 0.64 ms.
    const NOT_READY_TIME: u8 = 12;
    let requests = u32::try_from(DEPTH + 1).map_err(io::Error::other)?;
    let receives = u32::try_from(RECEIVES).map_err(io::Error::other)?;
    RdmaBuilder::default()
        .set_dev(&port.device)
        .set_port_num(port.number)
        .set_gid_index(usize::from(port.gid_index))
        .set_traffic_class(port.traffic_class)
        .set_service_level(port.service_level)
        .set_conn_type(ConnectionType::RCIBV)
        .set_raw(true)
        // The other strategy panics if a process has two queue pairs, and does not register our memory.
        .set_mr_strategy(MRManageStrategy::Raw)
        .set_qp_max_send_wr(requests)
        .set_qp_max_recv_wr(receives)
        .set_cq_size(requests + receives)
        .set_mtu(path_mtu(mtu))
        .set_timeout(timeout(round_trip))
        .set_retry_cnt(6)
        .set_rnr_retry(WITHOUT_END)
        .set_min_rnr_timer(NOT_READY_TIME)
        .set_max_rd_atomic(READS)
        .set_max_dest_rd_atomic(READS)
        .build()
}

/// The MTU of the port's link as a number: 1 is 256 bytes, and each further one twice that, to 5. async-rdma has it and
/// does not expose it.
///
/// # Errors
///
/// If the kernel does not name the network interface.
pub(crate) fn link_mtu(port: &AdapterPort) -> io::Result<u8> {
    let interface = format!(
        "/sys/class/infiniband/{}/ports/{}/gid_attrs/ndevs/{}",
        port.device, port.number, port.gid_index
    );
    let interface = fs::read_to_string(interface)?;
    let bytes = fs::read_to_string(format!("/sys/class/net/{}/mtu", interface.trim()))?;
    let bytes: u64 = bytes.trim().parse().map_err(io::Error::other)?;
    let room = bytes.saturating_sub(HEADER_BYTES);
    let fitting = (1..=5).rev().find(|&mtu| mtu_bytes(mtu) <= room);
    fitting
        .ok_or_else(|| io::Error::other(format!("an MTU of {bytes} bytes is too small for RoCE")))
}

/// The bytes of an MTU that is given as a number.
pub(crate) fn mtu_bytes(mtu: u8) -> u64 {
    128 << mtu.min(5)
}

fn path_mtu(mtu: u8) -> MTU {
    match mtu {
        1 => MTU::MTU256,
        2 => MTU::MTU512,
        3 => MTU::MTU1024,
        4 => MTU::MTU2048,
        _ => MTU::MTU4096,
    }
}

/// The retransmission timeout, as an exponent: 4.096 µs times two to this power
/// (InfiniBand architecture 9.7.6.1.3). It is four round trips, and no less than 67 ms.
fn timeout(round_trip: Duration) -> u8 {
    let wanted = (4 * round_trip).as_nanos();
    (14..31)
        .find(|&exponent| 4096_u128 << exponent >= wanted)
        .unwrap_or(31)
}

/// The underlying error, without async-rdma's advice.
pub(crate) fn words(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(": ") {
        Some((name, _)) if name.ends_with("Error") || name.ends_with("Exceeded") => name.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_repeated_after_some_round_trips() {
        assert_eq!(timeout(Duration::ZERO), 14);
        assert_eq!(timeout(Duration::from_millis(100)), 17);
        assert_eq!(timeout(Duration::MAX / 8), 31);
    }

    #[test]
    fn errors_are_short() {
        let error = io::Error::other("Remote Access Error: a protection error occurred");
        assert_eq!(words(&error), "Remote Access Error");
        let error = io::Error::from_raw_os_error(12);
        assert_eq!(words(&error), error.to_string());
    }
}
