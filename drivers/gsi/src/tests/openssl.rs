//! `gsi` against the `openssl` program.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread;

use gridhaul_stack::{Channel, Received, SocketOptions};

use super::pki::{ALICE, PKI, alice};
use super::{accept, listen, send, stack, with_operation};
use crate::Protection;
use crate::kernel::kernel_support;

const VERSIONS: [&str; 2] = ["-tls1_2", "-tls1_3"];

/// Runs with Alice's certificate.
fn openssl(arguments: &[&str]) -> Running {
    let _made = &**ALICE;
    let child = Command::new("openssl")
        .current_dir(PKI.directory())
        .args(arguments)
        .args([
            "-cert",
            "alice.pem",
            "-key",
            "alice.key",
            "-CAfile",
            "ca.pem",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the openssl program");
    Running(child)
}

/// A program that ends with the test.
struct Running(Child);

impl Running {
    fn write(&mut self, bytes: &[u8]) {
        let input = self.0.stdin.as_mut().expect("a pipe");
        input.write_all(bytes).expect("the program reads");
        input.flush().expect("the program reads");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The program may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lines of text that are not interactive commands of the program.
fn lines(count: usize) -> Vec<u8> {
    (0..count)
        .flat_map(|number| format!("line {number}\n").into_bytes())
        .collect()
}

fn receive_exactly(channel: &mut dyn Channel, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut done = 0;
    while done < length {
        match with_operation(|operation| channel.receive(&mut bytes[done..], operation)).unwrap() {
            Received::Bytes(count) => done += count.get(),
            Received::EndOfStream => panic!("the end after {done} of {length} bytes"),
        }
    }
    bytes
}

#[test]
fn its_client_is_accepted_with_any_server_name_and_data_flows_both_ways() {
    let_clients_in("tcp,gsi:ktls=off");
}

#[test]
#[ignore = "needs a kernel with TLS"]
fn its_client_speaks_with_the_kernel() {
    let_clients_in("tcp,gsi:ktls=on");
}

fn let_clients_in(spec: &str) {
    for version in VERSIONS {
        let mut listener = listen(&stack(spec, alice(Protection::Private)));
        let address = listener.address().to_string();
        let mut client = openssl(&[
            "s_client",
            "-connect",
            &address,
            version,
            "-quiet",
            // The value of globus-url-copy, which is not a host name.
            "-servername",
            "Alice Smith 12345",
        ]);
        let mut channel = accept(&mut listener).unwrap();
        let text = lines(20_000);
        thread::scope(|scope| {
            scope.spawn(|| client.write(&text));
            assert!(receive_exactly(&mut *channel, text.len()) == text);
        });
        send(&mut *channel, &text);
        drop(channel);
        let mut told = Vec::new();
        let output = client.0.stdout.as_mut().expect("a pipe");
        output.read_to_end(&mut told).unwrap();
        assert!(told == text, "{version}: {} of {}", told.len(), text.len());
    }
}

/// A server and its address.
fn server(version: &str) -> (Running, BufReader<std::process::ChildStdout>, SocketAddr) {
    let mut server = openssl(&[
        "s_server",
        "-accept",
        "127.0.0.1:0",
        version,
        "-Verify",
        "1",
        "-verify_return_error",
    ]);
    let mut output = BufReader::new(server.0.stdout.take().expect("a pipe"));
    let mut line = String::new();
    let address = loop {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the server ended");
        if let Some(address) = line.strip_prefix("ACCEPT ") {
            break address.trim().parse().expect("an address");
        }
    };
    (server, output, address)
}

#[test]
fn its_server_may_send_tickets_and_change_keys() {
    speak_to_servers("tcp,gsi:ktls=off", true);
}

#[test]
#[ignore = "needs a kernel with TLS"]
fn its_server_speaks_with_the_kernel_and_may_send_tickets() {
    let changes_keys = kernel_support().changes_keys == Some(true);
    speak_to_servers("tcp,gsi:ktls=on", changes_keys);
}

fn speak_to_servers(spec: &str, changes_keys: bool) {
    for version in VERSIONS {
        let (mut server, output, address) = server(version);
        let stack = stack(spec, alice(Protection::Private));
        let sockets = SocketOptions::default();
        let mut channel =
            with_operation(|operation| stack.connect(address, &sockets, operation)).unwrap();
        send(&mut *channel, b"first\n");
        let mut lines = output.lines().map(Result::unwrap);
        lines.find(|line| line == "first").expect("it arrived");
        if version == "-tls1_3" && changes_keys {
            // The command for a key update in both directions.
            server.write(b"K\n");
        }
        // The program reads its input before the next line is written.
        send(&mut *channel, b"second\n");
        lines.find(|line| line == "second").expect("it arrived");
        server.write(b"line of the server\n");
        let told = receive_exactly(&mut *channel, 19);
        assert_eq!(told, b"line of the server\n");
        send(&mut *channel, b"third\n");
        lines.find(|line| line == "third").expect("it arrived");
    }
}
