//! The questions of a compromised process to the login process, over the socket.
//!
//! The process has the key of one certificate, which the map gives the accounts `pool` and `grid`. The map has another
//! identity as well, whose key the process does not have. A model holds its rights by the exchanges that it has completed.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread;

use gridhaul_accounts::socket::{pair, send};
use gridhaul_accounts::{AccountRequest, BrokerSource};
use gridhaul_security::certificate::Certificate;
use gridhaul_security::context::{Context, Step};
use gridhaul_security::files::read_credential;
use gridhaul_security::tls::{TlsSettings, TlsVersions};
use gridhaul_security::trust::TrustBuilder;
use rustix::io::Errno;
use tempfile::TempDir;

use crate::config::{self, Config, HostFiles, KeyKind, Rule, ServeArguments, Settings};
use crate::fuzz_input::Input;
use crate::security::Opener;
use crate::wire::{receive_message, send_message};

use super::authenticator::Authenticator;
use super::messages::{self, Account, Answer, Asked, Established, Question};
use super::service::LoginService;

/// The limit of exchanges here.
const MOST: usize = 6;

/// The subject of the certificate whose key the process has.
const OWN: &str = "/DC=test/O=Samples/CN=localhost";

/// Its accounts.
const OWN_ACCOUNTS: [&str; 2] = ["pool", "grid"];

/// A site with one host certificate, which the client uses too.
pub(super) struct Site {
    _directory: TempDir,
    pub(super) config: Config,
    client: TlsSettings,
}

pub(super) static SITE: LazyLock<Site> = LazyLock::new(Site::new);

impl Site {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name| directory.path().join(name);
        let authority = include_bytes!("../security/samples/ca.pem").as_slice();
        let policy = include_bytes!("../security/samples/ca.signing_policy").as_slice();
        let map = format!("\"{OWN}\" pool,grid\n\"/DC=test/O=Samples/CN=Alice Smith\" alice\n");
        fs::create_dir(path("certificates")).expect("made");
        for (name, content) in [
            ("certificates/ca.pem", authority),
            ("certificates/ca.signing_policy", policy),
            ("host.pem", include_bytes!("../security/samples/host.pem")),
            ("host.key", include_bytes!("../security/samples/host.key")),
            ("grid-mapfile", map.as_bytes()),
        ] {
            fs::write(path(name), content).expect("written");
        }
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(path("host.key"), private).expect("set");
        let mut config = Config::load(&ServeArguments {
            settings: Settings {
                anonymous: Some(true),
                root: Some(PathBuf::from("/srv/everybody")),
                ..Settings::default()
            },
            ..ServeArguments::default()
        })
        .expect("a valid configuration");
        config.security = config::Security {
            host: Some(HostFiles {
                certificates: path("host.pem"),
                key: path("host.key"),
                passphrase: None,
            }),
            gsi: Some(config::Gsi {
                trust: path("certificates"),
                gridmap: Some(path("grid-mapfile")),
                vomsdir: None,
                ban_lists: Vec::new(),
                gsi_authz: PathBuf::from("/nonexistent"),
                ignore_gsi_authz: false,
                rules: vec![Rule::gridmap()],
                allow_independent_proxies: false,
                delegation_keys: KeyKind::Ec,
                tls_versions: TlsVersions::From12To13,
            }),
            tls: true,
            encrypt_data: false,
            require_dcau: false,
            handshakes_per_address: 10,
            failed_handshakes: 10,
        };
        let credential = read_credential(&path("host.pem"), &path("host.key")).expect("usable");
        let mut trust = TrustBuilder::default();
        trust.add("ca.pem", authority);
        trust.add("ca.signing_policy", policy);
        let (trust, _) = trust.build();
        Self {
            _directory: directory,
            config,
            client: TlsSettings::new(Arc::new(credential), Arc::new(trust)),
        }
    }
}

/// A monitor that records the requests.
#[derive(Debug, Default)]
pub(super) struct Brokers(Mutex<Vec<AccountRequest>>);

impl Brokers {
    pub(super) fn take(&self) -> Vec<AccountRequest> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl BrokerSource for Brokers {
    fn broker(&self, request: &AccountRequest) -> Result<OwnedFd, Errno> {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push(request.clone());
        Ok(pair()?.0)
    }
}

/// Asks the questions in the input, one after another.
pub fn questions(input: &[u8]) {
    let mut input = Input(input);
    let authenticator =
        Authenticator::load(&SITE.config, &Opener::default(), None).expect("a sound site");
    let brokers = Arc::new(Brokers::default());
    let source = Arc::clone(&brokers) as Arc<dyn BrokerSource>;
    let service = LoginService::new(SITE.config.clone(), authenticator, Some(source), MOST);
    let mut asker = Asker {
        brokers,
        ended: Vec::new(),
        model: HashMap::new(),
        last: 0,
        role: messages::Asker::Front,
    };
    // Each round ends with its connection.
    while !input.is_empty() {
        let (ours, theirs) = pair().expect("a pair");
        let role = asker.change_role(&mut input);
        thread::scope(|scope| {
            let answers = scope.spawn(|| {
                let theirs = theirs;
                service.answer(&theirs, role);
            });
            while !input.is_empty() && asker.next(&mut input, &ours).is_some() {
                assert!(service.exchanges.count() <= MOST);
            }
            drop(ours);
            // The end of the scope would not wait until the thread has freed its memory, and a fuzzer would report a leak.
            answers.join().expect("no panic");
        });
    }
    assert_eq!(asker.brokers.take(), []);
}

/// The rights of an exchange in the model.
#[derive(Debug, Default)]
struct Proved {
    granted: Option<Account>,
    /// The serving process owns it.
    claimed: bool,
}

struct Asker {
    brokers: Arc<Brokers>,
    /// Exchanges whose end the next question reports.
    ended: Vec<u64>,
    /// Established exchanges.
    model: HashMap<u64, Proved>,
    /// The number of the last exchange.
    last: u64,
    /// The process whose part is played now.
    role: messages::Asker,
}

impl Asker {
    fn change_role(&mut self, input: &mut Input<'_>) -> messages::Asker {
        self.role = match input.byte() % 2 {
            0 => messages::Asker::Front,
            _ => messages::Asker::Serving,
        };
        self.role
    }

    fn serves(&self) -> bool {
        self.role == messages::Asker::Serving
    }

    /// Asks one question, or sends an invalid one; `None` when the other side has closed the socket.
    fn next(&mut self, input: &mut Input<'_>, socket: &OwnedFd) -> Option<()> {
        match input.byte() {
            0..=39 => self.log_in(input, socket),
            40..=79 => self.authorize(input, socket),
            80..=119 => self.broker(input, socket),
            120..=149 => self.token(input, socket),
            150..=179 => self.sign(input, socket),
            180..=199 => {
                let exchange = self.exchange(input);
                self.ended.push(exchange);
                Some(())
            }
            200..=209 => self.other(input, socket),
            210..=219 => self.claim(input, socket),
            220..=239 => raw_question(input, socket),
            _ => raw_piece(input, socket),
        }
    }

    /// Sends a question in the format of the other process.
    fn ask(&mut self, socket: &OwnedFd, question: Question<'_>) -> Option<(Answer, Vec<OwnedFd>)> {
        for exchange in &self.ended {
            let owned = self.model.get(exchange);
            if owned.is_some_and(|proved| proved.claimed == self.serves()) {
                self.model.remove(exchange);
            }
        }
        let has_reason = question.may_come_from(self.role);
        let asked = Asked {
            ended: std::mem::take(&mut self.ended),
            question,
        };
        let message = postcard::to_stdvec(&asked).expect("a message");
        send_message(socket, &message, &[]).ok()?;
        let mut descriptors = Vec::new();
        let answer = receive_message(socket, &mut descriptors).ok()??;
        assert!(has_reason, "an answer to the wrong process");
        let answer = postcard::from_bytes(&answer).expect("an answer that can be read");
        Some((answer, descriptors))
    }

    /// The number of an exchange, which may exist.
    fn exchange(&self, input: &mut Input<'_>) -> u64 {
        match input.byte() {
            255 => u64::MAX,
            back => self.last.wrapping_sub(u64::from(back % 8)).wrapping_add(1),
        }
    }

    /// Performs an exchange with the available key, breaks it off, or corrupts a token.
    fn log_in(&mut self, input: &mut Input<'_>, socket: &OwnedFd) -> Option<()> {
        let mut client = SITE.client.clone();
        client.versions = match input.byte() % 2 {
            0 => TlsVersions::Only13,
            _ => TlsVersions::Only12,
        };
        let delegates = input.byte().is_multiple_of(4);
        let mut context = Context::initiator(&client, delegates).expect("sound settings");
        let mut spoils = Spoils::new(input);
        let (mut received, mut exchange) = (Vec::new(), None);
        loop {
            let Ok(Step::Continue(mut token) | Step::Done(mut token)) =
                context.step(&received, &mut Vec::new())
            else {
                return Some(());
            };
            if spoils.spoil(&mut token) {
                return Some(());
            }
            let token = &token;
            match self.ask(socket, Question::Token { exchange, token })?.0 {
                Answer::Token {
                    exchange: number,
                    token,
                } => {
                    self.last = number;
                    exchange = Some(number);
                    received = token;
                }
                Answer::Established(established) => {
                    self.established(*established);
                    return Some(());
                }
                Answer::Refused(_) | Answer::Failed(_) => return Some(()),
                other => panic!("{other:?} for a token"),
            }
        }
    }

    fn established(&mut self, established: Established) {
        assert_eq!(established.identity, OWN, "no other key is there");
        self.last = established.exchange;
        let before = self.model.insert(established.exchange, Proved::default());
        assert!(before.is_none(), "an exchange is established once");
    }

    fn token(&mut self, input: &mut Input<'_>, socket: &OwnedFd) -> Option<()> {
        let exchange = input.byte().is_multiple_of(2).then(|| self.exchange(input));
        let length = usize::from(input.byte());
        let token = input.bytes(length);
        match self.ask(socket, Question::Token { exchange, token })?.0 {
            Answer::Token { exchange, .. } => self.last = exchange,
            Answer::Refused(_) | Answer::Failed(_) => {}
            other => panic!("{other:?} for bytes that no client sent"),
        }
        Some(())
    }

    fn authorize(&mut self, input: &mut Input<'_>, socket: &OwnedFd) -> Option<()> {
        let exchange = self.exchange(input);
        let requested = input.one_of(&[None, Some("grid"), Some("alice"), Some("root"), Some("")]);
        let question = Question::Authorize {
            exchange,
            requested,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        match self.ask(socket, question)?.0 {
            Answer::Authorized(authorization) => {
                let account = Account {
                    account: authorization.account,
                    root: authorization.root,
                    read_only: authorization.read_only,
                };
                assert!(
                    OWN_ACCOUNTS.contains(&account.account.as_str()),
                    "{account:?}"
                );
                assert_eq!(account.root, SITE.config.root);
                assert!(requested.is_none_or(|requested| requested == account.account));
                let serves = self.serves();
                let established = self.model.get_mut(&exchange);
                let established = established.expect("it is established");
                assert_eq!(established.claimed, serves, "of the other process");
                established.granted = Some(account);
            }
            Answer::Refused(_) => {}
            other => panic!("{other:?} for an authorization"),
        }
        Some(())
    }

    fn broker(&mut self, input: &mut Input<'_>, socket: &OwnedFd) -> Option<()> {
        let account = Account {
            account: input
                .one_of(&["pool", "grid", "alice", "root", ""])
                .to_owned(),
            root: match input.byte() {
                0..=200 => SITE.config.root.clone(),
                _ => PathBuf::from("/"),
            },
            read_only: input.byte() > 200,
        };
        let (answer, descriptors) = self.ask(socket, Question::Broker(account.clone()))?;
        let claimed = self.model.values().filter(|one| one.claimed);
        let mut granted = claimed.flat_map(|one| &one.granted);
        let may = granted.any(|granted| *granted == account);
        let asked = self.brokers.take();
        match answer {
            Answer::Broker(Ok(())) => {
                assert!(may, "a broker for {account:?}, which nobody was granted");
                assert_eq!(descriptors.len(), 1);
                let [asked] = &asked[..] else {
                    panic!("{asked:?} was asked of the monitor");
                };
                let same = (&account.account, &account.root, account.read_only);
                assert_eq!((&asked.account, &asked.root, asked.read_only), same);
            }
            Answer::Broker(Err(_)) => {
                assert!(!may, "no broker for {account:?}, which was granted");
                assert_eq!(asked, []);
            }
            other => panic!("{other:?} for a broker"),
        }
        Some(())
    }

    fn claim(&mut self, input: &mut Input<'_>, socket: &OwnedFd) -> Option<()> {
        let exchange = self.exchange(input);
        match self.ask(socket, Question::Claim(exchange))?.0 {
            Answer::Claimed(claimed) => {
                assert_eq!(claimed.identity, OWN);
                let proved = self.model.get_mut(&exchange);
                let before = std::mem::replace(&mut proved.expect("established").claimed, true);
                assert!(!before, "it was claimed before");
            }
            Answer::Refused(_) => {
                let proved = self.model.get(&exchange);
                assert!(proved.is_none_or(|proved| proved.claimed), "it is there");
            }
            other => panic!("{other:?} for a claim"),
        }
        Some(())
    }

    fn sign(&mut self, input: &mut Input<'_>, socket: &OwnedFd) -> Option<()> {
        self.ask(socket, Question::Host { known: None })?;
        let host = u64::from(input.byte() % 3);
        let scheme = input.one_of(&[0x0403, 0x0503, 0x0804, 0x0401, 0x0807, 0]);
        let message = message_to_sign(input);
        let question = Question::Sign {
            host,
            scheme,
            message: &message,
        };
        match self.ask(socket, question)?.0 {
            Answer::Signature(signature) => {
                assert!(is_of_handshake(&message), "signed {message:?}");
                assert!(!makes_certificate(&message, &signature));
            }
            Answer::Failed(_) => {}
            other => panic!("{other:?} for a signature"),
        }
        Some(())
    }

    /// Questions whose answers give no rights.
    fn other(&mut self, input: &mut Input<'_>, socket: &OwnedFd) -> Option<()> {
        let length = usize::from(input.byte() % 32);
        let name = String::from_utf8_lossy(input.bytes(length)).into_owned();
        let question = match input.byte() % 6 {
            4 => Question::Redeem(&name),
            0 => Question::WithoutPassword(&name),
            1 => Question::Password {
                name: &name,
                password: b"guess",
            },
            2 => Question::Grants,
            3 => Question::Reload,
            _ => Question::ReopenLogs,
        };
        match self.ask(socket, question)?.0 {
            Answer::Granted(Some(granted)) => {
                assert!(granted.root.is_none() && granted.read_only, "{granted:?}");
            }
            Answer::Granted(None) | Answer::Failed(_) => {}
            Answer::Grants(grants) => assert!(grants.is_empty()),
            other => panic!("{other:?}"),
        }
        Some(())
    }
}

/// The place where a client breaks off, or corrupts a token.
struct Spoils {
    after: u8,
    place: usize,
    value: u8,
}

impl Spoils {
    fn new(input: &mut Input<'_>) -> Self {
        Self {
            // Most exchanges complete.
            after: input.byte() % 16,
            place: usize::from(input.byte()) * 4,
            value: input.byte(),
        }
    }

    /// Whether the exchange is broken off here.
    fn spoil(&mut self, token: &mut [u8]) -> bool {
        let Some(after) = self.after.checked_sub(1) else {
            let place = self.place % token.len().max(1);
            if let Some(byte) = token.get_mut(place) {
                *byte ^= self.value;
            }
            return self.value == 0;
        };
        self.after = after;
        false
    }
}

/// A message similar to one of a handshake.
fn message_to_sign(input: &mut Input<'_>) -> Vec<u8> {
    let mut message = match input.byte() % 4 {
        0 => [&[b' '; 64], &b"TLS 1.3, server CertificateVerify\0"[..]].concat(),
        1 => [&[9; 64], &[3, 0, 23, 65, 4][..], &[7; 64]].concat(),
        2 => [&[9; 64], &[3, 0, 29, 32][..], &[7; 32]].concat(),
        _ => SITE.client.credential.chain()[0].der()[4..].to_vec(),
    };
    let tail = usize::from(input.byte() % 80);
    message.extend(std::iter::repeat_n(7, tail));
    if input.byte() > 128 {
        let place = usize::from(input.byte()) % message.len();
        message[place] = input.byte();
    }
    message
}

/// RFC 8446 4.4.3 and RFC 8422 5.4, by their lengths and constants.
fn is_of_handshake(message: &[u8]) -> bool {
    let verify = [&[b' '; 64], &b"TLS 1.3, server CertificateVerify\0"[..]].concat();
    let is_verify = message.starts_with(&verify) && matches!(message.len() - verify.len(), 32 | 48);
    let curve = message.get(64..68);
    let is_exchange = match message.len() {
        133 => curve == Some(&[3, 0, 23, 65]),
        165 => curve == Some(&[3, 0, 24, 97]),
        100 => curve == Some(&[3, 0, 29, 32]),
        _ => false,
    };
    is_verify || is_exchange
}

/// Whether a message and its signature form a certificate, for ECDSA with SHA-256.
fn makes_certificate(message: &[u8], signature: &[u8]) -> bool {
    const ALGORITHM: [u8; 12] = [
        0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02,
    ];
    let Ok(length) = u8::try_from(signature.len() + 1) else {
        return false;
    };
    let body = [message, &ALGORITHM, &[0x03, length, 0], signature].concat();
    let Ok(length) = u16::try_from(body.len()) else {
        return false;
    };
    let der = [&[0x30, 0x82][..], &length.to_be_bytes(), &body].concat();
    Certificate::from_der(&der).is_ok()
}

/// A valid frame with any content. An invalid question closes the connection.
fn raw_question(input: &mut Input<'_>, socket: &OwnedFd) -> Option<()> {
    let length = usize::from(input.byte());
    let bytes = input.bytes(length);
    // Questions that begin or end an exchange are left out here, since the model has to follow them.
    let asked = postcard::from_bytes::<Asked<'_>>(bytes);
    if asked.is_ok_and(|asked| !asked.ended.is_empty() || is_of_exchange(&asked.question)) {
        return Some(());
    }
    send_message(socket, bytes, &[]).ok()?;
    receive_message(socket, &mut Vec::new()).ok()??;
    Some(())
}

fn is_of_exchange(question: &Question<'_>) -> bool {
    matches!(
        question,
        Question::Token { .. }
            | Question::Authorize { .. }
            | Question::Broker(_)
            | Question::Claim(_)
    )
}

/// A part of a message, and then the end.
fn raw_piece(input: &mut Input<'_>, socket: &OwnedFd) -> Option<()> {
    let length = usize::from(input.byte());
    // An empty message would be an end.
    let mut piece = vec![1];
    piece.extend(input.bytes(length));
    for _ in 0..input.byte() % 4 {
        send(socket.as_fd(), &piece, &[]).ok()?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz_input::tests::over_arbitrary_bytes;

    #[test]
    fn no_questions_get_what_no_client_has_a_right_to() {
        over_arbitrary_bytes(200, 300, questions);
    }
}
