use std::time::Duration;

use super::*;

fn text(reply: &Reply) -> String {
    String::from_utf8(reply.encode()).expect("ASCII")
}

#[test]
fn name_space_errors_have_the_form_and_the_words_of_the_real_server() {
    assert_eq!(
        text(&storage_error(&StorageError::new("mkdir", Errno::EXIST))),
        "550-GlobusError: v=1 c=PATH_EXISTS\r\n\
         550-GridFTP-Errno: 17\r\n\
         550-GridFTP-Reason: System error in mkdir\r\n\
         550-GridFTP-Error-String: File exists\r\n\
         550 End.\r\n"
    );
    for (errno, code, class, words) in [
        (
            Errno::NOENT,
            550,
            "PATH_NOT_FOUND",
            "No such file or directory",
        ),
        (Errno::ACCESS, 550, "PERMISSION_DENIED", "Permission denied"),
        (
            Errno::PERM,
            550,
            "INTERNAL_ERROR",
            "Operation not permitted",
        ),
        (Errno::NOTDIR, 550, "NOT_A_DIRECTORY", "Not a directory"),
        (Errno::ISDIR, 550, "IS_A_DIRECTORY", "Is a directory"),
        (
            Errno::NOSPC,
            552,
            "NO_SPACE_LEFT",
            "No space left on device",
        ),
        (Errno::DQUOT, 552, "QUOTA_EXCEEDED", "Disk quota exceeded"),
        (
            Errno::NOTEMPTY,
            550,
            "INTERNAL_ERROR",
            "Directory not empty",
        ),
        (
            Errno::NAMETOOLONG,
            550,
            "INTERNAL_ERROR",
            "File name too long",
        ),
        (
            Errno::LOOP,
            550,
            "INTERNAL_ERROR",
            "Too many levels of symbolic links",
        ),
        (
            Errno::XDEV,
            550,
            "INTERNAL_ERROR",
            "Invalid cross-device link",
        ),
    ] {
        let reply = storage_error(&StorageError::new("stat", errno));
        assert_eq!(reply.code(), code, "{errno:?}");
        assert!(
            text(&reply).contains(&format!("c={class}\r\n")),
            "{errno:?}"
        );
        assert!(text(&reply).contains(words), "{errno:?}");
    }
}

#[test]
fn a_file_that_cannot_be_opened_is_named_with_the_systems_words() {
    let error = StorageError::new("open", Errno::NOENT);
    let error = TransferError::Open {
        path: "/D/nosuch".into(),
        error,
    };
    assert_eq!(
        text(&transfer_error(&error)),
        "550-Command failed. : open failed.\r\n\
         550-Unable to open file /D/nosuch\r\n\
         550-System error in open: No such file or directory\r\n\
         550-A system call failed: No such file or directory\r\n\
         550 End.\r\n"
    );
}

#[test]
fn every_transfer_error_has_its_code_and_words() {
    let refused = io::Error::from(Errno::CONNREFUSED);
    let peer = "127.0.0.1:9".parse().expect("an address");
    let full = TransferError::Channel(ChannelError::File(Errno::NOSPC.into()));
    let table = [
        (full, 552, "No space left on device"),
        (
            StorageError::new("close", Errno::DQUOT).into(),
            552,
            "System error in close: Disk quota exceeded",
        ),
        (
            ConnectError::Peer {
                peer,
                error: refused,
            }
            .into(),
            425,
            "Connection refused",
        ),
        (
            TransferError::NoConnection(Duration::from_secs(30)),
            425,
            "within 30 seconds",
        ),
        (
            ChannelError::Aborted.into(),
            426,
            "Connection reset by peer",
        ),
        (ChannelError::FileTooShort { end: 7 }.into(), 451, "byte 7"),
        (PeerError::EndedBeforeEod.into(), 426, "end-of-file"),
        (SequenceError::NoDataPort.into(), 425, "PASV or PORT"),
        (SequenceError::SenderMustConnect.into(), 503, "send PORT"),
        (
            SequenceError::RestartPastEnd { offset: 9, size: 7 }.into(),
            554,
            "byte 9 is behind the end of the file, which has 7 bytes",
        ),
        (
            TransferError::Cancelled(CancelReason::Abort),
            426,
            "the operation was aborted",
        ),
        (TransferError::Local("no thread".into()), 451, "no thread"),
    ];
    for (error, code, words) in table {
        let reply = transfer_error(&error);
        assert_eq!(reply.code(), code, "{error}");
        assert!(text(&reply).contains(words), "{error}: {reply:?}");
    }
}

#[test]
fn a_missing_directory_is_told_as_in_mlst() {
    let error = StorageError::new("scandir", Errno::NOENT);
    let error = TransferError::Open {
        path: "/x".into(),
        error,
    };
    assert!(text(&listing_error(&error)).starts_with("550-GlobusError: v=1 c=PATH_NOT_FOUND\r\n"));
}

#[test]
fn clients_find_the_words_they_search_for_in_refused_stacks() {
    let error = StackError::NotAllowed("udt".into()).to_string();
    assert!(text(&stack_error(&error)).contains("udt driver not whitelisted"));
}
