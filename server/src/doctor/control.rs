//! The control port: whether the server answers, and what it says.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use super::dialogue::{Dialogue, TIME_LIMIT};
use super::findings::Findings;

const ABOUT: &str = "control";

/// Connects, and reads the greeting.
pub(super) fn check(report: &mut Findings, server: SocketAddr) -> Option<Dialogue> {
    let begun = Instant::now();
    let mut dialogue = match Dialogue::connect(server) {
        Ok(dialogue) => dialogue,
        Err(error) => {
            let remedy = match error.kind() {
                io::ErrorKind::ConnectionRefused => {
                    "no program listens there: start the server, or correct listen"
                }
                io::ErrorKind::TimedOut => "a firewall drops the packets: let the port in",
                _ => "check the address and the routes",
            };
            report.error(ABOUT, format!("{server} does not answer ({error})"), remedy);
            return None;
        }
    };
    match dialogue.reply() {
        Ok(greeting) if greeting.code() == 220 => {
            report.ok(
                ABOUT,
                format!(
                    "{server} greets after {} ms: {}",
                    begun.elapsed().as_millis(),
                    first_line(&greeting)
                ),
            );
            Some(dialogue)
        }
        Ok(refusal) => {
            report.error(
                ABOUT,
                format!(
                    "{server} refuses with {}: {}",
                    refusal.code(),
                    first_line(&refusal)
                ),
                "a limit (max-connections, max-connections-per-address) or a penalty is in effect, or it shuts down: the log has \
                 the reason",
            );
            None
        }
        Err(error) => {
            report.error(
                ABOUT,
                format!(
                    "{server} takes connections and sends no greeting within {} s ({error})",
                    TIME_LIMIT.as_secs()
                ),
                "it is overloaded, or another program listens there (ss -tlnp): end that, or correct listen",
            );
            None
        }
    }
}

pub(super) fn first_line(reply: &gridhaul_protocol::reply::Reply) -> String {
    let line = reply.lines().next().unwrap_or_default();
    String::from_utf8_lossy(line).into_owned()
}
