//! A client with the certificate of the sample host, which the maps of the tests name.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gridhaul_protocol::command::Base64;
use gridhaul_security::context::{Context, Step};
use gridhaul_security::files::read_credential;
use gridhaul_security::tls::TlsSettings;
use gridhaul_security::trust::TrustBuilder;

use crate::program::sample;

/// The identity of the client.
pub(crate) const IDENTITY: &str = "/DC=test/O=Samples/CN=localhost";

/// What takes longer never happens.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A control connection with a security context.
pub(crate) struct GridClient {
    stream: TcpStream,
    replies: BufReader<TcpStream>,
    context: Context,
}

impl GridClient {
    /// Authenticates with the key in this file.
    pub(crate) fn connect(address: SocketAddr, key: &Path) -> Self {
        let credential = read_credential(&sample("host.pem"), key).expect("usable");
        let mut trust = TrustBuilder::default();
        for name in ["ca.pem", "ca.signing_policy"] {
            trust.add(name, &std::fs::read(sample(name)).expect("read"));
        }
        let settings = TlsSettings::new(Arc::new(credential), Arc::new(trust.build().0));
        let context = Context::initiator(&settings, false).expect("an initiator");
        let stream = TcpStream::connect(address).expect("connected");
        stream.set_read_timeout(Some(TIME_LIMIT)).expect("set");
        let replies = BufReader::new(stream.try_clone().expect("a handle"));
        let mut client = Self {
            stream,
            replies,
            context,
        };
        assert!(client.line().starts_with("220 "));
        client.send("AUTH GSSAPI");
        assert!(client.line().starts_with("334 "));
        let mut token = Vec::new();
        loop {
            let stepped = client.context.step(&token, &mut Vec::new());
            let (Step::Continue(answer) | Step::Done(answer)) = stepped.expect("trusted");
            client.send(&format!("ADAT {}", Base64::encode(&answer)));
            let line = client.line();
            match line.strip_prefix("335 ADAT=") {
                Some(text) => token = decode(text),
                None => {
                    assert!(line.starts_with("235 "), "{line}");
                    return client;
                }
            }
        }
    }

    /// Logs in as `user`: the last reply.
    pub(crate) fn log_in_as(&mut self, user: &str) -> String {
        let reply = self.command(&format!("USER {user}"));
        match reply.starts_with("331") {
            true => self.command("PASS x"),
            false => reply,
        }
    }

    /// As [`GridClient::log_in_as`], with the account that the server chooses.
    pub(crate) fn log_in(&mut self) -> String {
        self.log_in_as(":globus-mapping:")
    }

    pub(crate) fn command(&mut self, line: &str) -> String {
        let sealed = self.context.wrap(format!("{line}\r\n").as_bytes());
        let sealed = sealed.expect("sealed");
        self.send(&format!("ENC {}", Base64::encode(&sealed)));
        self.reply().expect("a reply")
    }

    /// The next reply, or nothing if the connection has ended.
    pub(crate) fn reply(&mut self) -> Option<String> {
        let line = self.line();
        let text = line.get(4..).filter(|_| line.starts_with("632"))?;
        let opened = self.context.unwrap(&decode(text)).expect("opened");
        Some(String::from_utf8(opened).expect("UTF-8"))
    }

    fn send(&mut self, line: &str) {
        let line = format!("{line}\r\n");
        self.stream.write_all(line.as_bytes()).expect("sent");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.replies.read_line(&mut line).expect("a reply");
        line.trim_end().to_owned()
    }
}

fn decode(text: &str) -> Vec<u8> {
    let decoded = Base64::new(text).and_then(|token| token.decode());
    decoded.expect("base64").to_vec()
}
