//! Tests of the rules, mostly with recorded dialogues of clients.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::address::{Family, StripeAddresses};
use crate::command::{RdmaCommand, StripeLayout};

/// A simulated session that executes each command as a server does.
#[derive(Debug, Default)]
struct Session {
    state: Negotiated,
}

impl Session {
    /// Executes a command other than a transfer, and returns the code of the reply.
    fn send(&mut self, line: &str) -> u16 {
        let command = Command::parse(line.as_bytes()).unwrap();
        self.state.observe(&command);
        if let Some(setting) = Setting::of(&command) {
            return self.state.settle(setting).reply.code();
        }
        if let Some(request) = PassiveRequest::of(&command) {
            return match self.state.passive(request) {
                Ok(Passive::Listen { striped }) => {
                    self.state.listening(if striped { 2 } else { 1 });
                    227
                }
                Ok(Passive::Delay) => 200,
                Err(refusal) => refusal.reply().code(),
            };
        }
        let addresses = match command {
            Command::Port(address) => vec![address.into()],
            Command::Eprt(address) => vec![address],
            Command::Spor(addresses) => addresses.as_slice().to_vec(),
            Command::Rdma(RdmaCommand::Address { peer, .. }) => vec![peer],
            _ => return 0,
        };
        let addresses = StripeAddresses::new(addresses).unwrap();
        match self.state.active(&addresses) {
            Ok(()) => 200,
            Err(refusal) => refusal.reply().code(),
        }
    }

    fn send_all(&mut self, lines: &[&str]) -> &mut Self {
        for line in lines {
            let code = self.send(line);
            assert!((200..400).contains(&code), "{line}: {code}");
        }
        self
    }

    /// A transfer from beginning to end.
    fn transfer(&mut self, direction: Direction) -> Result<Terms, Refusal> {
        let terms = self.state.begin(direction)?;
        if terms.delayed.is_some() {
            self.state.listening(1);
        }
        let _ = self.state.finish(TransferEnd::Complete);
        Ok(terms)
    }
}

fn session(lines: &[&str]) -> Session {
    let mut session = Session::default();
    session.send_all(lines);
    session
}

#[test]
fn in_stream_mode_a_port_is_for_one_transfer_in_either_direction() {
    for port in [
        "PASV",
        "PORT 127,0,0,1,4,5",
        "EPSV",
        "EPRT |2|::1|5|",
        "SPAS",
        "SPOR 127,0,0,1,4,5",
    ] {
        for direction in [Direction::Send, Direction::Receive] {
            let mut session = session(&["TYPE I", port]);
            let terms = session.transfer(direction).unwrap();
            assert_eq!(terms.mode, TransferMode::Stream);
            assert_eq!(
                session.transfer(direction),
                Err(Refusal::NoDataPort),
                "{port}"
            );
        }
    }
}

#[test]
fn in_extended_mode_the_sender_connects() {
    let mut active = session(&[
        "MODE E",
        "OPTS RETR Parallelism=4,4,4;",
        "PORT 127,0,0,1,237,221",
    ]);
    assert_eq!(
        active.transfer(Direction::Receive),
        Err(Refusal::ReceiverConnects)
    );
    assert!(active.transfer(Direction::Send).is_ok());
    assert_eq!(active.state.settings().parallelism, 4);

    let mut passive = session(&["MODE E", "PASV", "ALLO 1000000"]);
    assert_eq!(
        passive.transfer(Direction::Send),
        Err(Refusal::SenderListens)
    );
    assert!(passive.transfer(Direction::Receive).is_ok());
}

#[test]
fn in_extended_mode_channels_are_used_again() {
    let mut session = session(&["MODE E", "SPOR 127,0,0,1,4,5 127,0,0,1,4,6"]);
    for _ in 0..3 {
        assert!(session.transfer(Direction::Send).is_ok());
    }
    assert_eq!(
        session.transfer(Direction::Receive),
        Err(Refusal::ReceiverConnects)
    );
    session.send_all(&["PASV"]);
    assert!(session.transfer(Direction::Receive).is_ok());
}

#[test]
fn a_file_that_cannot_be_opened_does_not_disturb_the_next() {
    for mode in ["MODE S", "MODE E"] {
        let mut session = session(&[mode, "PORT 127,0,0,1,4,5"]);
        session.state.begin(Direction::Send).unwrap();
        assert_eq!(
            session.state.finish(TransferEnd::NotStarted),
            Channels::Keep
        );
        assert!(session.transfer(Direction::Send).is_ok());
    }
}

#[test]
fn after_a_broken_transfer_a_new_port_is_needed() {
    let mut session = session(&["MODE E", "PASV"]);
    session.state.begin(Direction::Receive).unwrap();
    assert_eq!(session.state.finish(TransferEnd::Broken), Channels::Release);
    assert_eq!(
        session.transfer(Direction::Receive),
        Err(Refusal::NoDataPort)
    );
}

#[test]
fn another_mode_stack_or_protection_closes_channels() {
    let used = || {
        let mut session = session(&["MODE E", "PASV"]);
        session.transfer(Direction::Receive).unwrap();
        session.state
    };
    let mode = |state: &mut Negotiated, mode| state.settle(Setting::Mode(mode)).channels;
    assert_eq!(mode(&mut used(), TransferMode::Extended), Channels::Keep);
    let mut state = used();
    assert_eq!(mode(&mut state, TransferMode::Stream), Channels::Release);
    assert_eq!(state.begin(Direction::Receive), Err(Refusal::NoDataPort));

    let mut state = used();
    assert_eq!(state.security_changed(), Channels::Release);
    assert_eq!(state.begin(Direction::Receive), Err(Refusal::NoDataPort));
    let mut state = used();
    assert_eq!(state.set_stack(StackRequest::Default), Channels::Release);
    assert_eq!(state.begin(Direction::Receive), Err(Refusal::NoDataPort));
}

#[test]
fn a_port_may_come_before_the_mode() {
    let mut session = session(&["PASV", "MODE E"]);
    assert!(session.transfer(Direction::Receive).is_ok());
}

#[test]
fn a_delayed_address_comes_with_the_transfer() {
    let mut session = session(&["OPTS PASV AllowDelayed=1;"]);
    assert_eq!(session.send("PASV"), 200);
    let terms = session.transfer(Direction::Receive).unwrap();
    assert_eq!(terms.delayed, Some(PassiveRequest::Pasv));
    assert_eq!(
        session.transfer(Direction::Receive),
        Err(Refusal::NoDataPort)
    );

    session.send_all(&["MODE E", "SPAS 2"]);
    assert_eq!(
        session.transfer(Direction::Send),
        Err(Refusal::SenderListens)
    );
    let terms = session.transfer(Direction::Receive).unwrap();
    assert_eq!(
        terms.delayed,
        Some(PassiveRequest::Spas(Some(Family::Ipv6)))
    );
    // The channels exist now, and are reused.
    assert_eq!(session.transfer(Direction::Receive).unwrap().delayed, None);
}

#[test]
fn epsv_all_allows_only_epsv() {
    let mut session = session(&["EPSV ALL"]);
    for line in [
        "PASV",
        "SPAS",
        "PORT 127,0,0,1,4,5",
        "EPRT |2|::1|5|",
        "SPOR 127,0,0,1,4,5",
    ] {
        assert_eq!(session.send(line), 503, "{line}");
    }
    session.send_all(&["EPSV"]);
    assert!(session.transfer(Direction::Send).is_ok());
}

#[test]
fn stripes_need_extended_mode() {
    let spas = PassiveRequest::Spas(None);
    let mut session = session(&[]);
    assert_eq!(session.send("SPOR 127,0,0,1,4,5 127,0,0,1,4,6"), 501);
    assert_eq!(
        session.state.passive(spas),
        Ok(Passive::Listen { striped: false })
    );
    session.send_all(&["MODE E"]);
    assert_eq!(
        session.state.passive(spas),
        Ok(Passive::Listen { striped: true })
    );
    assert_eq!(
        session.state.passive(PassiveRequest::Pasv),
        Ok(Passive::Listen { striped: false })
    );
}

#[test]
fn parameters_are_reset_by_a_transfer() {
    let mut session = session(&[
        "MODE E",
        "PASV",
        "ALLO 1000000",
        "REST 0-262144,524288-800000",
    ]);
    let pending = session.transfer(Direction::Receive).unwrap().pending;
    assert_eq!(pending.promised, Some(1_000_000));
    assert_eq!(
        pending.restart,
        [0..262_144, 524_288..800_000].into_iter().collect()
    );
    let pending = session.transfer(Direction::Receive).unwrap().pending;
    assert_eq!(pending, NextTransfer::default());
}

#[test]
fn parameters_are_reset_by_a_refusal_too() {
    let mut session = session(&["REST 5"]);
    assert_eq!(session.transfer(Direction::Send), Err(Refusal::NoDataPort));
    session.send_all(&["PASV"]);
    assert!(
        session
            .transfer(Direction::Send)
            .unwrap()
            .pending
            .restart
            .is_empty()
    );
}

#[test]
fn a_restart_in_stream_mode_skips_the_start() {
    for line in ["REST 5", "REST 0-5", "REST 0", "REST 0-3,3-5"] {
        let mut session = session(&["PASV", line]);
        assert!(session.transfer(Direction::Send).is_ok(), "{line}");
    }
    for line in ["REST 1-5", "REST 0-10,20-30"] {
        let mut session = session(&["PASV", line]);
        assert_eq!(
            session.transfer(Direction::Send),
            Err(Refusal::RestartWithHoles),
            "{line}"
        );
        assert_eq!(Refusal::RestartWithHoles.reply().code(), 501);
    }
}

#[test]
fn only_noop_is_allowed_between_a_pair() {
    let name = || PathArgument::new("a").unwrap();
    let root = RemotePath::root();
    let path = || root.join(&name(), &root).unwrap();
    let mut session = session(&[]);
    let rename_to = Command::Rnto(name());

    session.state.rename_from(path());
    session.send("NOOP");
    session.state.observe(&rename_to);
    assert_eq!(session.state.take_rename_from(), Ok(path()));
    assert_eq!(
        session.state.take_rename_from(),
        Err(Refusal::NoFirstHalf("RNFR"))
    );

    session.state.rename_from(path());
    session.send("PWD");
    assert_eq!(
        session.state.take_rename_from().unwrap_err().reply().code(),
        503
    );

    session.state.symlink_from(name());
    assert_eq!(
        session.state.take_rename_from(),
        Err(Refusal::NoFirstHalf("RNFR"))
    );
    session.state.symlink_from(name());
    session.send("NOOP");
    assert_eq!(session.state.take_symlink_from(), Ok(name()));
    assert_eq!(
        session.state.take_symlink_from(),
        Err(Refusal::NoFirstHalf("SITE SYMLINKFROM"))
    );
}

#[test]
fn recorded_answers() {
    let mut state = Negotiated::default();
    for (line, answer) in [
        ("TYPE I", "200 Type set to I.\r\n"),
        ("MODE E", "200 Mode set to E.\r\n"),
        ("STRU F", "200 STRU F ok.\r\n"),
        (
            "OPTS RETR Parallelism=4,4,4;",
            "200 OPTS Command Successful.\r\n",
        ),
        (
            "SITE RETRBUFSIZE 262144",
            "200 Site Command Successful.\r\n",
        ),
        ("SBUF 262144", "200 SBUF Command Successful.\r\n"),
        ("TREV PERF 1", "200 Command Successful.\r\n"),
        ("ALLO 5", "200 ALLO command successful.\r\n"),
        (
            "REST 5",
            "350 Restart Marker OK. Send STORE or RETR to initiate transfer.\r\n",
        ),
        (
            "OPTS MLST size;Type;Nonsense;",
            "200 MLST OPTS Type;Size;\r\n",
        ),
        ("OPTS MLST", "200 MLST OPTS\r\n"),
        ("OPTS UTF8 ON", "200 OPTS Command Successful.\r\n"),
        ("EPSV ALL", "229 EPSV ALL Successful.\r\n"),
    ] {
        let command = Command::parse(line.as_bytes()).unwrap();
        let settled = state.settle(Setting::of(&command).unwrap());
        assert_eq!(settled.reply.encode(), answer.as_bytes(), "{line}");
    }
    for line in ["PASV", "RETR a", "SITE WHOAMI", "EPSV"] {
        let command = Command::parse(line.as_bytes()).unwrap();
        assert_eq!(Setting::of(&command), None, "{line}");
    }
}

#[test]
fn settings_follow_the_commands() {
    let settings = |lines: &[&str]| session(lines).state.settings().clone();
    assert_eq!(settings(&[]).representation, Representation::Ascii);

    let all = settings(&["SBUF 65536"]);
    assert_eq!(
        (all.retrieve_buffer_bytes, all.store_buffer_bytes),
        (Some(65_536), Some(65_536))
    );
    let one = settings(&["SBUF 65536", "SITE STORBUFSIZE 1", "SITE RBUFSZ 0"]);
    assert_eq!(
        (one.retrieve_buffer_bytes, one.store_buffer_bytes),
        (None, Some(1))
    );

    assert_eq!(
        settings(&["OPTS RETR Parallelism=1000000;"]).parallelism,
        MAX_PARALLELISM
    );
    let kept = settings(&[
        "OPTS RETR StripeLayout=Partitioned;",
        "OPTS RETR Parallelism=2;",
    ]);
    assert_eq!(
        (kept.layout, kept.parallelism),
        (StripeLayout::Partitioned, 2)
    );

    let markers = settings(&[
        "TREV PERF 1",
        "TREV RESTART 0",
        "OPTS RETR Markers=2;",
        "OPTS CKSM Markers=3;",
    ]);
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(markers.performance_interval, seconds(1));
    assert_eq!(markers.restart_interval, None);
    assert_eq!(markers.retrieve_interval, seconds(2));
    assert_eq!(markers.checksum_interval, seconds(3));
}

#[test]
fn extended_mode_sends_unchanged_bytes() {
    let mut ascii = session(&["TYPE A", "PASV"]);
    let terms = ascii.transfer(Direction::Receive).unwrap();
    assert_eq!(terms.representation, Representation::Ascii);
    let mut ascii = session(&["TYPE A", "MODE E", "PASV"]);
    let terms = ascii.transfer(Direction::Receive).unwrap();
    assert_eq!(terms.representation, Representation::Image);
}

#[test]
fn an_idle_session_costs_little() {
    assert!(
        size_of::<Negotiated>() <= 512,
        "{}",
        size_of::<Negotiated>()
    );
}

proptest! {
    /// Invariants for any sequence of commands.
    #[test]
    fn no_order_of_commands_breaks_the_rules(steps in prop::collection::vec(0usize..14, 0..40)) {
        let lines = [
            "MODE E", "MODE S", "PASV", "SPAS", "EPSV", "PORT 127,0,0,1,4,5",
            "SPOR 127,0,0,1,4,5 127,0,0,1,4,6", "OPTS PASV AllowDelayed=1;", "OPTS PASV AllowDelayed=0;",
            "REST 5", "REST 5-6", "ALLO 5",
        ];
        let mut session = Session::default();
        // The last port: passive, several addresses, used.
        let mut port: Option<(bool, bool, bool)> = None;
        let (mut delayed, mut mode_before) = (false, false);
        for step in steps {
            if let Some(line) = lines.get(step) {
                let code = session.send(line);
                let is_extended = session.state.settings().mode == TransferMode::Extended;
                match step {
                    0..=1 if is_extended == (step == 0) && mode_before != is_extended => {
                        port = port.filter(|&(_, _, used)| !used);
                    }
                    2 | 4 => port = Some((true, false, false)),
                    3 => port = Some((true, is_extended && !delayed, false)),
                    5 => port = Some((false, false, false)),
                    6 if code == 200 => port = Some((false, true, false)),
                    7..=8 => delayed = step == 7,
                    _ => {}
                }
                mode_before = is_extended;
                continue;
            }
            let direction = if step == 12 { Direction::Send } else { Direction::Receive };
            let mode = session.state.settings().mode;
            let fits = port.is_some_and(|(passive, several, _)| match mode {
                TransferMode::Stream => !several,
                TransferMode::Extended => passive == (direction == Direction::Receive),
            });
            match session.transfer(direction) {
                Ok(terms) => {
                    prop_assert!(fits);
                    prop_assert_eq!(terms.mode, mode);
                    port = port.filter(|_| mode == TransferMode::Extended);
                    port = port.map(|(passive, several, _)| (passive, several, true));
                }
                Err(Refusal::RestartWithHoles) => prop_assert!(fits && mode == TransferMode::Stream),
                Err(_) => prop_assert!(!fits),
            }
            prop_assert_eq!(&session.state.next, &NextTransfer::default());
        }
    }
}
