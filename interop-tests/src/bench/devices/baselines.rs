//! What bytes cost without files, for the tables of files.

use super::perftest::{Bandwidth, Device, Program};
use super::runs::load;
use crate::bench::rdma_files::baselines::{Baselines, Cost};
use crate::support::guest_network::RIGHT;

/// Over the devices of this kind.
pub(super) struct Over(pub(super) Device);

impl Baselines for Over {
    fn memory(&mut self, stack: &str, bytes: u64) -> Result<Cost, String> {
        let moved = load(stack, RIGHT, 1, bytes)?;
        Ok(Cost {
            rate: moved.megabytes_per_second(),
            processor: moved.processor_seconds(),
        })
    }

    /// The rate of WRITEs, and the processor time of SENDs, because the program that WRITEs polls all the time.
    fn devices(&mut self, bytes: u64) -> Result<Cost, String> {
        let run = |program| {
            let bandwidth = Bandwidth {
                program,
                device: self.0,
                message_bytes: 1 << 20,
                depth: 16,
                queue_pairs: 1,
                bytes,
            };
            bandwidth.run()
        };
        Ok(Cost {
            rate: run(Program::Write)?.rate,
            processor: run(Program::SleepingSend)?.processor,
        })
    }
}
