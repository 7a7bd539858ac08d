//! The crate async-rdma as a provider of the driver `rdma`.
//!
//! It carries a channel's messages over RoCE v2, like the driver's own provider `verbs`, and exists for comparison with it:
//! see `docs/decisions/async-rdma.md`. Both ends of a channel must use it. It uses async-rdma as
//! plain verbs: the two ends exchange the parameters of one queue pair on the data connection. It does not use
//! async-rdma's own connections, memory management and messages.
//!
//! A program that links it is under the GPL, version 3, and has the global allocator of `lending`.

mod connection;
mod device;
mod endpoint;
mod in_order;
mod lending;
mod queue_pair;
mod signal;

use std::io;
use std::sync::{Arc, OnceLock};

use gridhaul_rdma::RdmaBy;
use gridhaul_rdma::provider::{AdapterPort, Fabric, Provider, Wanted};
use tokio::runtime::{Builder, Runtime};

use crate::endpoint::AsyncRdmaEndpoint;

/// The driver `rdma` with only this provider. It has the options of the driver except `provider`, and `qps` is 1.
pub fn driver() -> RdmaBy {
    RdmaBy::new(Arc::new(AsyncRdma))
}

/// The provider.
#[derive(Debug)]
struct AsyncRdma;

impl Provider for AsyncRdma {
    fn name(&self) -> &'static str {
        "async-rdma"
    }

    fn endpoint(&self, port: Option<&AdapterPort>, wanted: Wanted) -> io::Result<Box<dyn Fabric>> {
        let port = port.ok_or_else(|| io::Error::other("it needs an adapter"))?;
        if wanted.queue_pairs != 1 {
            return Err(io::Error::other("it has one queue pair: qps=1"));
        }
        let runtime = runtime()?.handle();
        let mtu = device::link_mtu(port)?;
        let _within = runtime.enter();
        let rdma = device::open(port, mtu, wanted.round_trip)?;
        Ok(Box::new(AsyncRdmaEndpoint::new(rdma, mtu, port, runtime)?))
    }
}

/// The runtime in which async-rdma receives completions: one thread for the process.
fn runtime() -> io::Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("async-rdma")
        .enable_all()
        .build()?;
    Ok(RUNTIME.get_or_init(|| runtime))
}
