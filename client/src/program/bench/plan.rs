//! What is tried with the best number of connections. No clock, no server.
//!
//! Only options that can make a difference are tried: the others cost time, and noise could make one of them look better.

use super::setting::{Setting, Transport, size};
use super::trial::{Stage, Trial};

/// The options of `rdma` that set the length of the ring, and of `tcp` that set buffers.
const RING: [&str; 2] = ["slab", "slabs"];
const BUFFERS: [&str; 3] = ["buffer", "sndbuf", "rcvbuf"];

/// The slabs of a ring, unless the user gives another number.
const SLABS: u64 = 4;

/// The largest values that clients may set (docs/reference/drivers.md).
const MOST_SLAB: u64 = 64 << 20;
const MOST_MESSAGE: u64 = 4 << 20;

/// No larger buffer is tried; clients may set up to 1G.
const MOST_BUFFER: u64 = 256 << 20;

/// Fewer segments of TCP than this for each gigabyte, one in ten thousand, that are sent again cost no rate that could be measured.
const FEW: f64 = 70.0;

/// Below this part of the time, full windows are no limit.
const LIMITED: f64 = 0.1;

/// What a connection may have on its way before the kernel's own buffers may be too small: the default of their maximum is 4 to 6 MiB
/// (tcp(7)), of which a part is overhead.
const ROOM: f64 = (1 << 20) as f64;

/// What is known of both ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Path {
    pub(super) flow: Flow,
    /// Seconds between this machine and the servers: the longest.
    pub(super) round_trip: f64,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Get,
    Put,
    Between,
}

/// The settings that are tried beside that of `base`, the cheaper ones first. The error says why there are none.
pub(super) fn candidates(stage: Stage, base: &Trial, path: Path) -> Result<Vec<Setting>, String> {
    match (stage, base.setting.transport()) {
        (_, Transport::Other) => Err("the options of this driver are not known here".to_owned()),
        (Stage::Connections, _) => Ok(Vec::new()),
        (Stage::Blocks, Transport::Rdma) => messages(base),
        (Stage::Blocks, Transport::Tcp) => blocks(base, path),
        (Stage::Rate, Transport::Rdma) => paced(base),
        (Stage::Rate, Transport::Tcp) => slower(base, path),
        (Stage::Ring, Transport::Rdma) => rings(base),
        (Stage::Ring, Transport::Tcp) => buffers(base, path),
    }
}

fn given(option: &str) -> String {
    format!("{option} is given in the stack")
}

fn blocks(base: &Trial, path: Path) -> Result<Vec<Setting>, String> {
    match path.flow {
        Flow::Put => Ok([256 << 10, 4 << 20]
            .map(|bytes| base.setting.with_blocks(bytes))
            .to_vec()),
        Flow::Get | Flow::Between => Err(
            "the server that sends chooses its blocks, and no command sets their size (globus-gridftp-server: -blocksize of its administrator)"
                .to_owned(),
        ),
    }
}

fn messages(base: &Trial) -> Result<Vec<Setting>, String> {
    if base.setting.has(&["message"]) {
        return Err(given("message"));
    }
    let Some(known) = base.facts().message else {
        return Err("the servers do not tell how long the messages of rdma are".to_owned());
    };
    let wanted = [known / 2, known.saturating_mul(2), known.saturating_mul(4)];
    let possible = wanted
        .into_iter()
        .filter(|bytes| (4 << 10..=MOST_MESSAGE).contains(bytes));
    let settings = possible.map(|bytes| base.setting.with(&[("message", size(bytes))]));
    Ok(settings.collect())
}

/// Lower rates over TCP, where much is sent again.
fn slower(base: &Trial, path: Path) -> Result<Vec<Setting>, String> {
    if base.setting.has(&["rate"]) {
        return Err(given("rate"));
    }
    let again = match (path.flow, base.sent_again_each_gigabyte()) {
        (Flow::Put, Some(again)) => again,
        (Flow::Put, None) => {
            return Err("the kernel does not tell what was sent again".to_owned());
        }
        (Flow::Get | Flow::Between, _) => {
            return Err(
                "only the server that sends knows what it has sent again, and it does not tell"
                    .to_owned(),
            );
        }
    };
    if again < FEW {
        return Err(format!(
            "{again:.1} segments for each gigabyte were sent again, which costs nearly no time"
        ));
    }
    let each = base.rate() / f64::from(base.setting.parallel.max(1));
    let settings = [0.8, 0.95].map(|part| {
        let rate = megabits(each * part);
        base.setting.with(&[("rate", rate)])
    });
    Ok(settings.to_vec())
}

/// As the option `rate` has it, rounded down: at least 1 Mb/s.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are positive, and the number saturates"
)]
fn megabits(bytes_per_second: f64) -> String {
    format!("{}m", ((bytes_per_second * 8.0 / 1e6) as u64).max(1))
}

fn paced(base: &Trial) -> Result<Vec<Setting>, String> {
    if base.setting.has(&["rate"]) {
        return Err(given("rate"));
    }
    if base.facts().is_soft {
        return Err("without an adapter TCP carries rdma, and finds its rate itself".to_owned());
    }
    Ok(vec![base.setting.with(&[("rate", "auto".to_owned())])])
}

fn rings(base: &Trial) -> Result<Vec<Setting>, String> {
    if let Some(option) = RING.into_iter().find(|option| base.setting.has(&[option])) {
        return Err(given(option));
    }
    let Some(ring) = base.facts().ring else {
        return Err("the servers do not tell how long the ring of rdma is".to_owned());
    };
    // Servers refuse longer slabs.
    let slabs = [ring.saturating_mul(2), ring.saturating_mul(4)].map(|bytes| bytes / SLABS);
    let possible = slabs
        .into_iter()
        .filter(|bytes| (1..=MOST_SLAB).contains(bytes));
    let settings = possible.map(|bytes| {
        let slabs = ("slabs", SLABS.to_string());
        base.setting.with(&[("slab", size(bytes)), slabs])
    });
    Ok(settings.collect())
}

fn buffers(base: &Trial, path: Path) -> Result<Vec<Setting>, String> {
    if let Some(option) = BUFFERS
        .into_iter()
        .find(|option| base.setting.has(&[option]))
    {
        return Err(given(option));
    }
    let each = base.rate() / f64::from(base.setting.parallel.max(1));
    let on_the_way = each * path.round_trip;
    if path.flow == Flow::Put
        && let Some(limited) = base.limited()
        && limited.iter().all(|part| *part < LIMITED)
    {
        return Err(format!(
            "the window of the receiver was full {:.0} % of the time, and the send buffer of this machine {:.0} %: the buffers that the kernel chooses are large enough",
            limited[0] * 100.0,
            limited[1] * 100.0
        ));
    }
    // The round trip between two servers is not known.
    if path.flow != Flow::Between && on_the_way < ROOM {
        return Err(format!(
            "a connection has {:.2} MB on its way (its rate times the round trip), for which the buffers that the kernel chooses are large enough",
            on_the_way / 1e6
        ));
    }
    let least = power_of_two(on_the_way * 2.0).max(4 << 20);
    let wanted = [least, least.saturating_mul(4)].map(|bytes| bytes.min(MOST_BUFFER));
    let mut settings: Vec<Setting> = wanted
        .into_iter()
        .map(|bytes| base.setting.with(&[("buffer", size(bytes))]))
        .collect();
    settings.dedup();
    Ok(settings)
}

/// The next one that is not less, within what buffers can have.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number is positive, and saturates"
)]
fn power_of_two(bytes: f64) -> u64 {
    (bytes as u64).clamp(1, MOST_BUFFER).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use gridhaul_protocol::stack::StackSpec;

    use super::super::trial::tests::trial;
    use super::*;

    const NEAR: Path = Path {
        flow: Flow::Put,
        round_trip: 0.0001,
    };
    const FAR: Path = Path {
        flow: Flow::Put,
        round_trip: 0.05,
    };

    fn base(stack: Option<&str>) -> Trial {
        let setting = Setting {
            stack: stack.map(|stack| StackSpec::parse(stack).expect("a stack")),
            parallel: 2,
            block_bytes: None,
        };
        trial(Stage::Connections, setting, &[1000.0; 3])
    }

    fn set_sent_again(trial: &mut Trial, count: u64) {
        for sample in &mut trial.samples {
            sample.facts.sent_again = Some(count);
        }
    }

    fn words(stage: Stage, base: &Trial, path: Path) -> Vec<String> {
        let settings = candidates(stage, base, path).expect("some");
        settings.iter().map(Setting::words).collect()
    }

    #[test]
    fn blocks_are_tried_only_where_this_machine_sends() {
        let base = base(None);
        let sizes = ["256K", "4M"].map(|size| format!("--parallel 2 --block-size {size}"));
        assert_eq!(words(Stage::Blocks, &base, NEAR), sizes);
        for flow in [Flow::Get, Flow::Between] {
            candidates(Stage::Blocks, &base, Path { flow, ..NEAR }).expect_err("no command");
        }
    }

    #[test]
    fn lower_rates_are_tried_only_after_losses() {
        let mut base = base(None);
        let error = candidates(Stage::Rate, &base, NEAR).expect_err("unknown");
        assert!(error.contains("does not tell"), "{error}");
        set_sent_again(&mut base, 3);
        let error = candidates(Stage::Rate, &base, NEAR).expect_err("nearly none");
        assert!(error.contains("sent again"), "{error}");
        set_sent_again(&mut base, 3000);
        // 500 MB/s for each of two connections.
        let rates = ["3200m", "3800m"];
        let rates = rates.map(|rate| format!("--parallel 2 --stack 'auto:rate={rate}'"));
        assert_eq!(words(Stage::Rate, &base, NEAR), rates);
    }

    #[test]
    fn buffers_are_tried_only_where_they_may_be_too_small() {
        let mut base = base(None);
        let error = candidates(Stage::Ring, &base, NEAR).expect_err("a short path");
        assert!(error.contains("0.05 MB"), "{error}");
        // 500 MB/s times 50 ms are 25 MB.
        let sizes = ["64M", "256M"];
        let sizes = sizes.map(|size| format!("--parallel 2 --stack 'auto:buffer={size}'"));
        assert_eq!(words(Stage::Ring, &base, FAR), sizes);
        base.samples[0].facts.busy = 1000;
        base.samples[0].facts.receiver_limited = 20;
        let error = candidates(Stage::Ring, &base, FAR).expect_err("no full window");
        assert!(error.contains("full 2 % of the time"), "{error}");
    }

    #[test]
    fn rings_and_messages_are_multiples_of_those_that_there_were() {
        let mut base = base(Some("rdma"));
        candidates(Stage::Ring, &base, NEAR).expect_err("unknown");
        base.samples[2].facts.ring = Some(16 << 20);
        base.samples[2].facts.message = Some(2 << 20);
        let rings = ["8M", "16M"];
        let rings = rings.map(|slab| format!("--parallel 2 --stack 'rdma:slab={slab};slabs=4'"));
        assert_eq!(words(Stage::Ring, &base, NEAR), rings);
        let messages = ["1M", "4M"];
        let messages = messages.map(|size| format!("--parallel 2 --stack 'rdma:message={size}'"));
        assert_eq!(words(Stage::Blocks, &base, NEAR), messages);
        let rate = words(Stage::Rate, &base, NEAR);
        assert_eq!(rate, ["--parallel 2 --stack 'rdma:rate=auto'"]);
        base.samples[2].facts.is_soft = true;
        candidates(Stage::Rate, &base, NEAR).expect_err("TCP has a rate");
    }

    #[test]
    fn what_the_user_gives_stays() {
        for (stage, stack) in [
            (Stage::Rate, "tcp:rate=1g"),
            (Stage::Ring, "auto:sndbuf=1M"),
            (Stage::Rate, "rdma:rate=5g"),
            (Stage::Ring, "rdma:slabs=8"),
            (Stage::Blocks, "rdma:message=1M"),
            (Stage::Blocks, "udt"),
        ] {
            candidates(stage, &base(Some(stack)), FAR).expect_err(stack);
        }
    }
}
