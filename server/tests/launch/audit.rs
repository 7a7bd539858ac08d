//! The audit log: one record for each login, refusal, change and transfer.

use std::fs;
use std::io::Write;
use std::path::Path;

use serde_json::Value;

use crate::client::Client;
use crate::processes::set_password;
use crate::program::{Running, public_directory};

/// The records of an audit log, after the server has ended.
fn records(path: &Path) -> Vec<Value> {
    let log = fs::read_to_string(path).expect("read");
    let lines = log.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// The verbs and results of the records with this message.
fn results(records: &[Value], message: &str) -> Vec<String> {
    let of_kind = records.iter().filter(|record| record["message"] == message);
    let results = of_kind.map(|record| {
        let verb = record["verb"].as_str().expect("a verb");
        format!("{verb} {}", record["result"])
    });
    results.collect()
}

/// A directory that anonymous users may write to.
fn writable() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;

    let root = public_directory();
    let all = fs::Permissions::from_mode(0o777);
    fs::set_permissions(root.path(), all).expect("set");
    root
}

#[test]
fn each_change_has_one_record_also_when_commands_come_together() {
    let (root, logs) = (writable(), tempfile::tempdir().expect("a directory"));
    let (log, audit) = (logs.path().join("log"), logs.path().join("audit"));
    let [log_text, audit_text] = [&log, &audit].map(|path| path.to_str().expect("UTF-8"));
    let server = Running::start(
        root.path(),
        &[
            "--anonymous",
            "--anonymous-write",
            "--log-format",
            "json",
            "--log-file",
            log_text,
            "--audit-log",
            audit_text,
        ],
    );
    let (mut client, _) = Client::connect(&server);
    for line in ["USER anonymous", "PASS x", "TYPE I", "SITE TASKID t-1"] {
        client.send(line);
    }
    let mut data = client.begin(&[("STOR a", "150")]);
    data.write_all(b"content").expect("sent");
    drop(data);
    assert!(client.reply().starts_with("226"));
    // Commands, and the results of those that have a record.
    let dialogue = [
        ("MKD d", "MKD 257"),
        ("MKD d", "MKD 550"),
        ("SIZE a", ""),
        ("MLST a", ""),
        ("CWD d", ""),
        ("RNFR ../a", ""),
        ("RNTO b", "RNTO 250"),
        ("RNTO c", "RNTO 503"),
        ("SITE CHMOD 600 b", "SITE CHMOD 250"),
        ("SITE CHGRP no-such-group b", "SITE CHGRP 550"),
        ("SITE UTIME 20260101000000 b", "SITE UTIME 250"),
        ("MFMT 20260101000000 b", "MFMT 213"),
        ("SITE TRNC 1 b", "SITE TRNC 250"),
        ("SITE TRNC 9 b", "SITE TRNC 500"),
        ("SITE SYMLINKFROM b", ""),
        ("SITE SYMLINKTO l", "SITE SYMLINKTO 250"),
        ("STOR x", "STOR 425"),
        ("RETR x", "RETR 425"),
        ("DELE missing", "DELE 550"),
        ("DELE l", "DELE 250"),
        ("CDUP", ""),
        ("RMD d", "RMD 550"),
        ("SITE RDEL d", "SITE RDEL 250"),
        ("NOOP", ""),
    ];
    let lines: Vec<&str> = dialogue.iter().map(|(line, _)| *line).collect();
    client
        .stream
        .write_all(format!("{}\r\n", lines.join("\r\n")).as_bytes())
        .expect("sent");
    while !client.reply().starts_with("200 NOOP") {}
    let (status, _) = server.stop();
    assert_eq!(status, 0);

    let records = records(&audit);
    let expected: Vec<&str> = dialogue.iter().map(|(_, result)| *result).collect();
    let expected: Vec<&str> = expected.into_iter().filter(|it| !it.is_empty()).collect();
    let is_chgrp = |result: &&String| result.starts_with("SITE CHGRP");
    let found = results(&records, "file operation");
    assert_eq!(found.iter().filter(is_chgrp).count(), 1, "{found:?}");
    let others: Vec<&str> = expected
        .into_iter()
        .filter(|it| !it.starts_with("SITE CHGRP"))
        .collect();
    let found: Vec<&String> = found.iter().filter(|it| !is_chgrp(it)).collect();
    assert_eq!(found, others);
    assert_eq!(results(&records, "transfer finished"), ["STOR 226"]);

    let rename = records.iter().find(|record| record["verb"] == "RNTO");
    let rename = rename.expect("a record");
    assert_eq!(rename["path"], "/d/../a");
    assert_eq!(rename["to"], "/d/b");
    assert_eq!(rename["task_id"], "t-1");
    assert_eq!(rename["user"], "anonymous");
    assert_eq!(rename["peer"], "127.0.0.1");
    assert!(rename["session"].is_u64() && rename["error"].is_null());
    let failed = records.iter().find(|record| record["result"] == 550);
    let failed = failed.expect("a record");
    let error = failed["error"].as_str().expect("a reason");
    assert!(error.contains("File exists"), "{error}");
    let changed = records.iter().find(|record| record["verb"] == "SITE CHMOD");
    assert_eq!(changed.expect("a record")["value"], "0600");

    // The log has the same records, and lists are arrays.
    let log = fs::read_to_string(log).expect("read");
    let lines = log
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let lines: Vec<Value> = lines.collect();
    let in_log: Vec<&Value> = lines
        .iter()
        .filter(|line| line["target"] == "audit")
        .collect();
    assert_eq!(in_log.len(), records.len());
    let stored = lines
        .iter()
        .find(|line| line["message"] == "transfer finished");
    let stored = stored.expect("a transfer");
    assert_eq!(stored["peers"], serde_json::json!(["127.0.0.1"]));
    assert_eq!(stored["bytes"], 7);
}

#[test]
fn logins_and_refusals_are_recorded_whatever_the_level_is() {
    let (root, logs) = (
        public_directory(),
        tempfile::tempdir().expect("a directory"),
    );
    let audit = logs.path().join("audit");
    let users = root.path().join("users");
    set_password(&users);
    let server = Running::start(
        root.path(),
        &[
            "--passwords",
            users.to_str().expect("UTF-8"),
            "--log-level",
            "error",
            "--audit-log",
            audit.to_str().expect("UTF-8"),
        ],
    );
    let replies = server.dialogue(&["USER ann", "PASS wrong", "USER ann", "PASS secret"]);
    assert_eq!(replies[2], "530 Login incorrect.");
    assert!(replies[4].starts_with("230"), "{replies:?}");
    let (_, log) = server.stop();
    assert!(!log.contains("logged in"), "{log}");
    let records = records(&audit);
    let messages: Vec<&Value> = records.iter().map(|record| &record["message"]).collect();
    assert_eq!(messages, ["login failed", "logged in"]);
    let [failed, done] = records.as_slice() else {
        unreachable!("two records");
    };
    assert_eq!(failed["reason"], "wrong user name or password");
    assert_eq!(failed["peer"], "127.0.0.1");
    assert_eq!(done["peer"], "127.0.0.1");
    assert_eq!(done["protection"], "none");
    assert_eq!(done["session"], failed["session"]);
}
