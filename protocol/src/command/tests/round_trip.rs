//! Property tests: any command survives encoding and parsing.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use jiff::Timestamp;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::super::*;
use super::{parse, path};
use crate::address::{Family, StripeAddresses};
use crate::path::PathArgument;

fn any_path() -> impl Strategy<Value = PathArgument> {
    prop_oneof![
        vec(any::<u8>(), 1..20).prop_filter_map("no path", PathArgument::new),
        "[- a~/.]{1,6}".prop_map(|text| path(&text)),
    ]
}

fn any_text() -> impl Strategy<Value = Text> {
    any::<String>().prop_filter_map("no text", Text::new)
}

fn any_word() -> impl Strategy<Value = Text> {
    "[!-~]{1,8}".prop_filter_map("no text", Text::new)
}

fn any_base64() -> impl Strategy<Value = Base64> {
    "[A-Za-z0-9+/=]{1,20}".prop_filter_map("no base64", Base64::new)
}

fn any_algorithm() -> impl Strategy<Value = AlgorithmName> {
    "[A-Za-z0-9-]{1,8}".prop_filter_map("no name", |name| AlgorithmName::new(&name))
}

fn any_checksum() -> impl Strategy<Value = Checksum> {
    "[0-9a-fA-F]{1,40}".prop_filter_map("no checksum", |digits| Checksum::new(&digits))
}

fn any_time() -> impl Strategy<Value = Timestamp> {
    // The years 0001 to 9999.
    (-62_135_596_800i64..253_402_207_200).prop_map(|second| Timestamp::from_second(second).unwrap())
}

fn any_socket_address() -> impl Strategy<Value = SocketAddr> {
    (any::<IpAddr>(), 1u16..).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

fn any_family() -> impl Strategy<Value = Family> {
    prop_oneof![Just(Family::Ipv4), Just(Family::Ipv6)]
}

fn any_restart() -> impl Strategy<Value = Restart> {
    prop_oneof![
        (0..=crate::ranges::MAX_OFFSET).prop_map(Restart::At),
        vec((0u64..1 << 40, 1u64..1 << 20), 0..8).prop_map(|ranges| Restart::Ranges(
            ranges
                .into_iter()
                .map(|(start, length)| start..start + length)
                .collect()
        )),
    ]
}

fn any_opts() -> impl Strategy<Value = OptsCommand> {
    let parallelism =
        (1u32.., 1u32.., 1u32..).prop_map(|(starting, minimum, maximum)| Parallelism {
            starting,
            minimum,
            maximum,
        });
    let layout = prop_oneof![
        Just(StripeLayout::Partitioned),
        (1u64..).prop_map(|block_bytes| StripeLayout::Blocked { block_bytes }),
    ];
    let retrieve = (
        option::of(parallelism),
        option::of(layout),
        any::<Option<u32>>(),
        option::of(1u64..),
    );
    let fact = "[A-Za-z.]{1,12}".prop_filter_map("no text", Text::new);
    prop_oneof![
        retrieve.prop_map(|(parallelism, layout, marker_seconds, packet_bytes)| {
            OptsCommand::Retrieve(RetrieveOptions {
                parallelism,
                layout,
                marker_seconds,
                packet_bytes,
            })
        }),
        any::<bool>().prop_map(OptsCommand::DelayedPassive),
        vec(fact, 0..OptsCommand::MAX_FACTS).prop_map(OptsCommand::Facts),
        any::<bool>().prop_map(OptsCommand::Utf8),
        any::<u32>().prop_map(OptsCommand::ChecksumMarkers),
    ]
}

fn any_site() -> impl Strategy<Value = SiteCommand> {
    use SiteCommand as S;
    let verb = proptest::sample::select(&BufferVerb::ALL[..]);
    let stack = || {
        prop_oneof![
            Just(StackRequest::Default),
            any_word()
                .prop_filter("taken", |text| !text
                    .as_str()
                    .eq_ignore_ascii_case("default"))
                .prop_map(StackRequest::Drivers),
        ]
    };
    let attributes = (
        option::of(any_time()),
        option::of((any_algorithm(), any_checksum())),
    );
    let files = prop_oneof![
        (0u16..=0o7777, any_path()).prop_map(|(bits, path)| S::Chmod {
            mode: FileMode::new(bits).unwrap(),
            path
        }),
        (any_word(), any_path()).prop_map(|(group, path)| S::Chgrp { group, path }),
        (any_time(), any_path()).prop_map(|(modified, path)| S::Utime { modified, path }),
        (any::<u64>(), any_path()).prop_map(|(length, path)| S::Trnc { length, path }),
        any_path().prop_map(S::SymlinkFrom),
        any_path().prop_map(S::SymlinkTo),
        any_path().prop_map(S::Rdel),
        any_path().prop_map(S::Chroot),
    ];
    let texts = prop_oneof![
        any_text().prop_map(S::ClientInfo),
        any_text().prop_map(S::TaskId),
        any_text().prop_map(|text| S::AuthzAssert(Assertion(text))),
        any_text().prop_map(S::Restrict),
        any_text().prop_map(S::Dsi),
        any_text().prop_map(S::Sharing),
        any_text().prop_map(S::Http),
        any_text().prop_map(S::Upas),
        any_text().prop_map(S::Uprt),
        any_text().prop_map(S::Fault),
    ];
    prop_oneof![
        files,
        texts,
        option::of(any_text()).prop_map(S::Help),
        (verb, any::<u64>()).prop_map(|(verb, bytes)| S::BufferSize { verb, bytes }),
        Just(S::Whoami),
        Just(S::Version),
        Just(S::GetNetStack),
        stack().prop_map(S::SetNetStack),
        stack().prop_map(S::SetDiskStack),
        attributes
            .prop_map(|(modified, checksum)| S::StorAttr(StoreAttributes { modified, checksum })),
    ]
}

fn any_security_command() -> impl Strategy<Value = Command> {
    use Command as C;
    prop_oneof![
        any_text().prop_map(C::User),
        vec(any::<u8>(), 0..20)
            .prop_filter_map("no password", |bytes| Password::new(bytes).map(C::Pass)),
        vec(any::<u8>(), 0..20)
            .prop_filter_map("no account", |bytes| Password::new(bytes).map(C::Acct)),
        any_text().prop_map(C::Auth),
        any_base64().prop_map(C::Adat),
        any_base64().prop_map(C::Enc),
        any_base64().prop_map(C::Mic),
        any_base64().prop_map(C::Conf),
        any::<u32>().prop_map(C::Pbsz),
        Just(C::Prot(ProtectionLevel::Clear)),
        Just(C::Prot(ProtectionLevel::Safe)),
        Just(C::Prot(ProtectionLevel::Private)),
        Just(C::Dcau(DataChannelAuthentication::None)),
        Just(C::Dcau(DataChannelAuthentication::User)),
        any_text().prop_map(|subject| C::Dcau(DataChannelAuthentication::Subject(subject))),
        Just(C::Dcsc(DataChannelContext::Default)),
        any_base64().prop_map(|pem| C::Dcsc(DataChannelContext::Credential(pem))),
    ]
}

fn any_transfer_command() -> impl Strategy<Value = Command> {
    use Command as C;
    let event = prop_oneof![Just(MarkerEvent::Performance), Just(MarkerEvent::Restart)];
    prop_oneof![
        prop_oneof![Just(Representation::Ascii), Just(Representation::Image)].prop_map(C::Type),
        prop_oneof![Just(TransferMode::Stream), Just(TransferMode::Extended)].prop_map(C::Mode),
        any::<u64>().prop_map(C::Sbuf),
        (event, any::<u32>()).prop_map(|(event, seconds)| C::Trev { event, seconds }),
        any_family().prop_map(|family| C::Epsv(EpsvRequest::Family(family))),
        Just(C::Epsv(EpsvRequest::Same)),
        Just(C::Epsv(EpsvRequest::All)),
        option::of(any_family()).prop_map(C::Spas),
        (any::<Ipv4Addr>(), 1u16..).prop_map(|(ip, port)| C::Port(SocketAddrV4::new(ip, port))),
        any_socket_address().prop_map(C::Eprt),
        vec(any_socket_address(), 1..=StripeAddresses::MAX)
            .prop_map(|addresses| C::Spor(StripeAddresses::new(addresses).unwrap())),
        (any::<u64>(), any::<Option<u64>>()).prop_map(|(bytes, record_bytes)| C::Allo {
            bytes,
            record_bytes
        }),
        any_restart().prop_map(C::Rest),
        (any::<u64>(), any::<u64>(), any_path()).prop_map(|(offset, length, path)| C::Eret {
            offset,
            length,
            path
        }),
        (any::<u64>(), any_path()).prop_map(|(offset, path)| C::Esto { offset, path }),
        (
            any_algorithm(),
            any::<u64>(),
            any::<Option<u64>>(),
            any_path()
        )
            .prop_map(|(algorithm, offset, length, path)| C::Cksm {
                algorithm,
                offset,
                length,
                path
            }),
        (any_algorithm(), any_checksum()).prop_map(|(algorithm, checksum)| C::Scks {
            algorithm,
            checksum
        }),
        (any_time(), any_path()).prop_map(|(modified, path)| C::Mfmt { modified, path }),
        any_rdma_command().prop_map(C::Rdma),
    ]
}

fn any_rdma_command() -> impl Strategy<Value = RdmaCommand> {
    let buffer = || option::of(any::<u32>().prop_map(BufferBytes));
    prop_oneof![
        (any_socket_address(), buffer())
            .prop_map(|(peer, buffer)| RdmaCommand::Address { peer, buffer }),
        buffer().prop_map(|buffer| RdmaCommand::Passive { buffer }),
        any_path().prop_map(RdmaCommand::Store),
        any_path().prop_map(RdmaCommand::Retrieve),
    ]
}

fn any_command() -> impl Strategy<Value = Command> {
    use Command as C;
    let with_path: [fn(PathArgument) -> C; 11] = [
        C::Retr,
        C::Stor,
        C::Appe,
        C::Size,
        C::Mdtm,
        C::Cwd,
        C::Mkd,
        C::Rmd,
        C::Dele,
        C::Rnfr,
        C::Rnto,
    ];
    let maybe_path: [fn(Option<PathArgument>) -> C; 6] =
        [C::Mlsd, C::Mlsr, C::Mlsc, C::Mlst, C::Stat, C::Stou];
    let list_path = || option::of(any_path().prop_filter_map("too long", ListPath::new));
    let alone = [
        C::Quit,
        C::Rein,
        C::Ccc,
        C::Feat,
        C::Syst,
        C::Noop,
        C::Stru,
        C::Pasv,
        C::Abor,
        C::Pwd,
        C::Cdup,
    ];
    prop_oneof![
        proptest::sample::select(alone.to_vec()),
        (proptest::sample::select(with_path.to_vec()), any_path())
            .prop_map(|(command, path)| command(path)),
        (
            proptest::sample::select(maybe_path.to_vec()),
            option::of(any_path())
        )
            .prop_map(|(command, path)| command(path)),
        list_path().prop_map(C::List),
        list_path().prop_map(C::Nlst),
        option::of(any_text()).prop_map(C::Help),
        option::of(any_text()).prop_map(C::Lang),
        any_opts().prop_map(C::Opts),
        any_site().prop_map(C::Site),
        any_security_command(),
        any_transfer_command(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn commands_survive(command in any_command()) {
        let line = command.encode();
        prop_assert!(crate::line::fits(&line));
        prop_assert_eq!(Command::parse(&line), Ok(command));
    }

    #[test]
    fn no_line_makes_the_parser_panic(line: Vec<u8>) {
        let _ = Command::parse(&line);
    }

    #[test]
    fn parsed_commands_survive(
        verb in "(OPTS|SITE CHMOD|ALLO|TYPE|EPRT|SPOR|REST|LIST|CKSM|OPTS RETR|SITE STORATTR|MFMT|RADR|RPSV)",
        argument in "[ -~]{0,24}",
    ) {
        if let Ok(command) = parse(&format!("{verb} {argument}")) {
            prop_assert_eq!(Command::parse(&command.encode()), Ok(command));
        }
    }
}
