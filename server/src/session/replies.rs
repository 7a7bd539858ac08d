//! The code and text of every error reply, in one place each, and the replies that several commands share.
//!
//! Clients search replies for the operating system's error messages, so every text has them.

use std::io;

use gridhaul_protocol::negotiated::Refusal;
use gridhaul_protocol::path::{PathArgument, RemotePath};
use gridhaul_protocol::reply::Reply;
use gridhaul_stack::{ChannelError, ConnectError, StackError};
use gridhaul_storage::{ChecksumAlgorithm, StorageError};
use gridhaul_transfer::{CancelReason, ListenFailure, PeerError, SequenceError, TransferError};
use rustix::io::Errno;

/// The answer to most commands that changed something.
pub(crate) fn ok() -> Reply {
    Reply::new(250, "OK.")
}

pub(crate) fn noop() -> Reply {
    Reply::new(200, "NOOP command successful.")
}

pub(crate) fn login_required() -> Reply {
    Reply::new(530, "Please login with USER and PASS.")
}

/// `ABOR` came before the command was carried out.
pub(crate) fn aborted_early() -> Reply {
    Reply::new(426, "Aborted before it began.")
}

/// An administrator has ended a transfer that waited.
pub(crate) fn ended_early() -> Reply {
    Reply::new(426, "Command failed. : ended by the administrator")
}

/// Clients ignore unknown replies of 1yz. It shows people and proxies that the connection is alive.
pub(crate) fn queued(ahead: usize) -> Reply {
    Reply::new(120, format!("Transfer queued; {ahead} ahead."))
}

pub(crate) fn server_failed() -> Reply {
    Reply::new(451, "Command failed. : the server failed.")
}

/// As observed from globus-gridftp-server 13.24, with the names of this server.
pub(crate) fn unknown_algorithm() -> Reply {
    let names = ChecksumAlgorithm::ALL.map(|algorithm| algorithm.name());
    let names = names.join(", ");
    Reply::new(
        500,
        format!("Unknown checksum algorithm requested. There are: {names}."),
    )
}

/// A namespace command failed: `MKD`, `MLST`, `DELE`, ...
pub(crate) fn storage_error(error: &StorageError) -> Reply {
    let (code, class) = classify(error.errno);
    Reply::coded(
        code,
        format!("GlobusError: v=1 c={class}"),
        family(error),
        "End.",
    )
}

/// `RNTO` after an `RNFR` that failed. The Globus client library sends it nevertheless, and its users see only this reply,
/// so it repeats the reason.
pub(crate) fn rename_refused(refusal: Refusal, error: &StorageError) -> Reply {
    let reply = refusal.reply();
    Reply::coded(reply.code(), reply.text().as_bytes(), family(error), "End.")
}

/// `CWD` failed.
pub(crate) fn directory_error(directory: &RemotePath, error: &StorageError) -> Reply {
    let (code, class) = classify(error.errno);
    let first = format!("{directory}: Could not change directory. : GlobusError: v=1 c={class}");
    Reply::coded(code, first, family(error), "End.")
}

/// A file could not be opened for a checksum.
pub(crate) fn checksum_error(path: &PathArgument, error: &StorageError) -> Reply {
    let (code, _) = classify(error.errno);
    Reply::coded(
        code,
        "Command failed. : the checksum could not be computed.",
        opening(&path.to_string(), error),
        "End.",
    )
}

/// A stored file is not what `SCKS` or `SITE STORATTR` announced.
pub(crate) fn wrong_checksum(computed: &str, expected: &str) -> Reply {
    Reply::coded(
        550,
        "GlobusError: v=1 c=INCORRECT_CHECKSUM",
        [
            format!("GridFTP-Computed-Checksum: {computed}"),
            format!("GridFTP-Expected-Checksum: {expected}"),
        ],
        "End.",
    )
}

/// A transfer of a file failed.
pub(crate) fn transfer_error(error: &TransferError) -> Reply {
    if let TransferError::Peer(PeerError::WrongChecksum { computed, expected }) = error {
        return wrong_checksum(computed, expected);
    }
    let code = transfer_code(error);
    let (first, details) = match error {
        TransferError::Open { path, error } => (
            "open failed.".to_owned(),
            opening(&path.to_string_lossy(), error),
        ),
        TransferError::Storage(error) | TransferError::Lost(error) => (
            "the file failed.".to_owned(),
            system(error.call, &error.reason()),
        ),
        TransferError::Channel(ChannelError::File(error)) => (
            "the file failed.".to_owned(),
            system("read or write", &words(error)),
        ),
        TransferError::Connect(ConnectError::Peer { peer, error }) => {
            let mut details = vec![format!("Unable to connect to {peer}")];
            details.extend(system("connect", &words(error)));
            ("the data channel failed.".to_owned(), details)
        }
        TransferError::Channel(error) => (
            "the data channel failed.".to_owned(),
            vec![sentence(&error.to_string())],
        ),
        error => (error.to_string(), Vec::new()),
    };
    let first = format!("Command failed. : {first}");
    if details.is_empty() {
        Reply::new(code, first)
    } else {
        Reply::coded(code, first, details, "End.")
    }
}

/// A listing failed. Errors of storage have the form of other namespace commands.
pub(crate) fn listing_error(error: &TransferError) -> Reply {
    match error {
        TransferError::Open { error, .. } | TransferError::Storage(error) => storage_error(error),
        error => transfer_error(error),
    }
}

/// A user without a certificate may not log in. The reason may be empty: clients search for the words in front.
pub(crate) fn login_incorrect(reason: &str) -> Reply {
    if reason.is_empty() {
        return Reply::new(530, "Login incorrect.");
    }
    Reply::new(530, format!("Login incorrect. : {reason}"))
}

/// An identity may not log in, or not with the account that it asked for.
pub(crate) fn not_mapped(reason: &str) -> Reply {
    Reply::coded(530, format!("Login incorrect. : {reason}"), [""], "End.")
}

/// Data channels have to be authenticated, and the session has no credential for them.
pub(crate) fn no_channel_credential(reason: &str) -> Reply {
    Reply::new(
        535,
        format!(
            "Data channels cannot be authenticated: {reason}. Delegate a credential when you log in, or \
             send DCSC P, or DCAU N."
        ),
    )
}

/// The server's own credential cannot be used. RFC 2228 3: a resource is not available now.
pub(crate) fn no_server_credential() -> Reply {
    Reply::new(
        431,
        "Server side credential failure; the reason is in the server's log.",
    )
}

/// `PASV` or one of its variants failed.
pub(crate) fn listen_error(error: &ListenFailure) -> Reply {
    // RFC 959 5.4 has no 425 for PASV, but it is the code for "can't open data connection".
    Reply::new(425, format!("Command failed. : {error}"))
}

/// `SITE SETNETSTACK` was refused. gfal2 searches for "udt driver not whitelisted".
pub(crate) fn stack_error(reason: &str) -> Reply {
    Reply::coded(
        500,
        "Setting data channel driver stack failed.",
        [reason],
        "End.",
    )
}

/// `PORT` or one of its variants failed, because the stack that the client chose earlier cannot be used.
pub(crate) fn connect_error(error: &StackError) -> Reply {
    Reply::new(500, format!("Command failed. : {error}"))
}

/// Code and class of an error of the operating system. The classes are those of globus-gridftp-server 13.24. The codes are
/// too, with two exceptions. That server answers 553 to `MKD` of an existing name; RFC 959 5.4 lists only 550, and rclone
/// 1.60 understands no other code. And it answers 451, a transient error, to unusable names and directories that are not
/// empty.
fn classify(errno: Errno) -> (u16, &'static str) {
    match errno {
        Errno::NOENT => (550, "PATH_NOT_FOUND"),
        Errno::ACCESS => (550, "PERMISSION_DENIED"),
        Errno::NOTDIR => (550, "NOT_A_DIRECTORY"),
        Errno::ISDIR => (550, "IS_A_DIRECTORY"),
        Errno::PERM | Errno::ROFS | Errno::SPIPE | Errno::OPNOTSUPP => (550, "INTERNAL_ERROR"),
        Errno::NOSPC => (552, "NO_SPACE_LEFT"),
        Errno::DQUOT => (552, "QUOTA_EXCEEDED"),
        Errno::FBIG => (552, "INTERNAL_ERROR"),
        Errno::EXIST => (550, "PATH_EXISTS"),
        Errno::NOTEMPTY | Errno::NAMETOOLONG | Errno::LOOP | Errno::XDEV => (550, "INTERNAL_ERROR"),
        // RFC 959 4.2.2: file name not allowed.
        Errno::ILSEQ => (553, "INVALID_PATH"),
        Errno::TXTBSY => (450, "INTERNAL_ERROR"),
        _ => (451, "INTERNAL_ERROR"),
    }
}

/// Whether the reply to this error says that the server failed.
pub(crate) fn is_internal(errno: Errno) -> bool {
    classify(errno).0 == 451
}

fn transfer_code(error: &TransferError) -> u16 {
    match error {
        TransferError::Open { error, .. }
        | TransferError::Storage(error)
        | TransferError::Lost(error) => classify(error.errno).0,
        TransferError::Channel(ChannelError::File(error)) => {
            classify(Errno::from_io_error(error).unwrap_or(Errno::IO)).0
        }
        TransferError::Channel(ChannelError::FileTooShort { .. }) | TransferError::Local(_) => 451,
        TransferError::Sequence(SequenceError::NoDataPort)
        | TransferError::Connect(_)
        | TransferError::NoConnection(_) => 425,
        TransferError::Sequence(SequenceError::StreamRestart) => 504,
        TransferError::Sequence(SequenceError::RestartPastEnd { .. }) => 554,
        TransferError::Sequence(_) => 503,
        TransferError::Channel(_)
        | TransferError::Peer(
            PeerError::EndedBeforeEod
            | PeerError::MissingEods { .. }
            | PeerError::MissingEof { .. }
            | PeerError::Incomplete { .. }
            | PeerError::Unfinished(_),
        )
        | TransferError::Cancelled(
            CancelReason::Abort
            | CancelReason::ControlChannelLost
            | CancelReason::Stalled
            | CancelReason::Shutdown
            | CancelReason::Administrator
            | CancelReason::Replaced,
        ) => 426,
        TransferError::Peer(_) => 500,
    }
}

/// The lines of an error in a namespace command.
fn family(error: &StorageError) -> [String; 3] {
    [
        format!("GridFTP-Errno: {}", error.errno.raw_os_error()),
        format!("GridFTP-Reason: System error in {}", error.call),
        format!("GridFTP-Error-String: {}", error.reason()),
    ]
}

/// The lines about a file that could not be opened.
fn opening(path: &str, error: &StorageError) -> Vec<String> {
    let mut lines = vec![format!("Unable to open file {path}")];
    // The storage fails with it for pipes, devices and sockets.
    if error.errno == Errno::OPNOTSUPP {
        lines.push("It is not a regular file.".to_owned());
    }
    lines.extend(system(error.call, &error.reason()));
    lines
}

/// The lines about a system call that failed.
fn system(call: &str, reason: &str) -> Vec<String> {
    vec![
        format!("System error in {call}: {reason}"),
        format!("A system call failed: {reason}"),
    ]
}

/// The message of the operating system, without the number that Rust adds.
fn words(error: &io::Error) -> String {
    StorageError::from_io("", error).reason()
}

/// Capitalizes the text, because clients search for `Connection reset by peer`.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}

#[cfg(test)]
mod tests;
